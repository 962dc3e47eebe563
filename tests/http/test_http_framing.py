"""A message over HTTP has one reading, or is refused; and it is bounded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.http.bounded_parser import MAX_FIELDS, MAX_TARGET
from tests.support.plain_http import HEAD, LEAVING, answer_to, connected, limited, status_of, upload
from tests.support.service import Service


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service without short deadlines."""
    with limited(tmp_path_factory.mktemp("lake"), max_head_bytes=16 * 1024) as service:
        yield service


POST = b"POST /nowhere HTTP/1.1\r\nHost: x\r\n"
AMBIGUOUS = {
    "length and transfer encoding": POST
    + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "transfer encoding and length": POST
    + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
    "two lengths in one field": POST + b"Content-Length: 4, 5\r\n\r\nabcde",
    "negative length": POST + b"Content-Length: -1\r\n\r\n",
    "length with a sign": POST + b"Content-Length: +4\r\n\r\nabcd",
    "chunked twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "transfer encoding of HTTP/1.0": b"POST /nowhere HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "absolute target": b"GET http://elsewhere/healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "authority as target": b"CONNECT elsewhere:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "asterisk as target": b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    "no host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /healthz HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "another version": b"GET /healthz HTTP/2.0\r\nHost: x\r\n\r\n",
    "space before the colon": b"GET /healthz HTTP/1.1\r\nHost : x\r\n\r\n",
    "NUL in a field": b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: \0\r\n\r\n",
    "field behind a bare LF": b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: a\nY: b\r\n\r\n",
    "length behind a bare LF": POST + b"X: a\nContent-Length: 4\r\n\r\nabcd",
    "end by a bare LF": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\n",
    "bare LF alone": b"\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "folded field": b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: a\r\n Y: b\r\n\r\n",
    "length in a folded field": POST + b"X: a\r\n\tContent-Length: 4\r\n\r\nabcd",
    "no HTTP": b"hello\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("sent", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_a_head_that_could_be_read_in_two_ways_is_refused(served: Service, sent: bytes) -> None:
    answer = answer_to(served, sent)
    assert answer.startswith(("HTTP/1.1 400 ", "HTTP/1.1 501 ")) and answer.count("HTTP/1.1 ") == 1
    assert '"rule": "http"' in answer


def test_the_same_length_twice_counts_once(served: Service) -> None:
    """RFC 9110, section 8.6."""
    assert answer_to(served, LEAVING.replace(b"\r\n\r\n", b"\r\nContent-Length: 0, 0\r\n\r\n")).startswith(
        "HTTP/1.1 200 "
    )


BAD_CHUNKS = {
    "no number": b"zz\r\nab\r\n0\r\n\r\n",
    "longer than said": b"2\r\nabc\r\n0\r\n\r\n",
    "huge number": b"f" * 40 + b"\r\nab\r\n",
    "endless extension": b"2;" + b"a" * 20_000,
}


@pytest.mark.parametrize("chunks", BAD_CHUNKS.values(), ids=BAD_CHUNKS.keys())
def test_bad_chunks_are_refused(served: Service, chunks: bytes) -> None:
    head = upload(served).replace(b"Content-Length: 100000", b"Transfer-Encoding: chunked")
    answer = answer_to(served, head + chunks)
    assert answer.startswith(("HTTP/1.1 400 ", "HTTP/1.1 431 ")) and answer.count("HTTP/1.1 ") == 1


def test_a_body_in_tiny_chunks_is_refused(served: Service) -> None:
    """Attack: each chunk costs the parser a round, whatever its size."""
    head = upload(served).replace(b"Content-Length: 100000", b"Transfer-Encoding: chunked")
    answer = answer_to(served, head + b"1\r\na\r\n" * 5_000)
    assert answer.startswith("HTTP/1.1 400 ") and "small pieces" in answer


@pytest.mark.parametrize(("pieces", "size"), [(3_000, 1), (4_200, 240)])
def test_bodies_in_pieces_are_read_request_after_request(served: Service, pieces: int, size: int) -> None:
    """Each request has its free pieces, and larger ones have more."""
    head = upload(served).replace(b"Content-Length: 100000", b"Transfer-Encoding: chunked")
    spaces = (b"%x\r\n" % size + b" " * size + b"\r\n") * pieces
    name = b'{"namespace": ["pieces_%05d"]}' % pieces
    body = spaces + b"%x\r\n" % len(name) + name + b"\r\n0\r\n\r\n"
    with connected(served) as client:
        assert [status_of(client, head + body) for _ in range(2)] == [200, 409]


LARGE_HEADS = {
    "one field": b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 17_000 + b"\r\n\r\n",
    "a field without an end": b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 40_000,
    "many fields": b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X: a\r\n" * MAX_FIELDS + b"\r\n",
    "target": b"GET /" + b"a" * MAX_TARGET + b" HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("sent", LARGE_HEADS.values(), ids=LARGE_HEADS.keys())
def test_a_large_head_is_refused(served: Service, sent: bytes) -> None:
    answer = answer_to(served, sent)
    assert answer.startswith("HTTP/1.1 431 ") and '"rule": "head-size"' in answer


def test_pipelined_requests_are_answered_in_order(served: Service) -> None:
    answer = answer_to(served, HEAD + HEAD.replace(b"/healthz", b"/nowhere") + LEAVING)
    assert [each[:3] for each in answer.split("HTTP/1.1 ")[1:]] == ["200", "404", "200"]


def test_http_1_0_is_answered_and_closed(served: Service) -> None:
    answer = answer_to(served, b"GET /healthz HTTP/1.0\r\n\r\n")
    assert answer.startswith("HTTP/1.1 200 ") and "connection: close" in answer.lower()


def test_no_other_protocol_is_changed_to(served: Service) -> None:
    sent = LEAVING.replace(b"close\r\n", b"Upgrade, close\r\nUpgrade: websocket\r\n")
    assert answer_to(served, sent).startswith("HTTP/1.1 200 ")


@pytest.mark.parametrize("path", ["/healthz/", "/v1/config/", "//healthz"])
def test_nothing_is_redirected(served: Service, path: str) -> None:
    with served.client() as client:
        assert client.get(f"{served.url}{path}").status_code == 404
