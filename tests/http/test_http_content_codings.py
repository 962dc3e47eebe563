"""gzip and zstd: what is refused of a request body, and which answers are compressed."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from typing import Any

import anyio
import httpx
import pytest
import zstandard
from fastapi import Response
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers
from starlette.requests import Request

from catalog.http.content_codings import MIN_ANSWER, compressed, compressible, decompressed, preferred
from catalog.http.errors import ContentTypeRefused
from policy.errors import RequestInvalid
from tests.support.http_calls import new_table, refused
from tests.support.service import Service

_JSON = {"Content-Type": "application/json"}


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


_COMPRESS = {"gzip": gzip.compress, "x-gzip": gzip.compress, "zstd": _zstd}


class _TooLarge(Exception):
    pass


async def _decompressed(coding: str, body: bytes, limit: int = 10**6) -> bytes:
    taken: list[int] = []
    headers = Headers({"content-encoding": coding})
    data = await decompressed(headers, body, limit, taken.append, _TooLarge)
    assert data is body or sum(taken) >= len(data)
    return data


def _run(coding: str, body: bytes, limit: int = 10**6) -> bytes:
    return anyio.run(_decompressed, coding, body, limit)


@pytest.mark.parametrize("coding", _COMPRESS)
@given(data=st.binary(min_size=1, max_size=5_000), times=st.integers(1, 200))
def test_a_compressed_body_is_what_was_compressed(coding: str, data: bytes, times: int) -> None:
    data *= times
    assert _run(coding, _COMPRESS[coding](data), limit=len(data)) == data


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_part_a_sequel_or_a_change_of_a_compressed_body_is_refused(coding: str) -> None:
    data = json.dumps({"namespace": ["a" * 700]}).encode()
    whole = _COMPRESS[coding](data)
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
    wrong = [whole[:at] for at in range(1, len(whole))]
    wrong += [whole + whole, whole + b"\0", whole + b"{}", skippable + whole, whole + skippable, data]
    wrong += [_COMPRESS[other](data) for other in ("gzip", "zstd") if other != coding]
    for body in wrong:
        with pytest.raises(RequestInvalid, match="gzip member or zstd frame"):
            _run(coding, body)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_bomb_is_refused_at_the_limit_in_bounded_memory(coding: str) -> None:
    size = 64 * 1024 * 1024
    is_gzip = coding == "gzip"
    stream = zlib.compressobj(1, zlib.DEFLATED, 31) if is_gzip else zstandard.ZstdCompressor().compressobj()
    block = bytes(1024 * 1024)
    bomb = b"".join(stream.compress(block) for _ in range(size // len(block))) + stream.flush()
    assert len(bomb) < size // 200
    tracemalloc.start()
    try:
        with pytest.raises(_TooLarge):
            _run(coding, bomb, limit=1024 * 1024)
        assert tracemalloc.get_traced_memory()[1] < 40 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_a_zstd_frame_with_a_large_window_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    body = stream.compress(b"a" * 1000) + stream.flush()
    with pytest.raises(RequestInvalid):
        _run("zstd", body)


def test_what_a_zstd_decoder_keeps_counts_as_memory_of_bodies() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=22)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    body = stream.compress(b"[]") + stream.flush()
    taken: list[int] = []
    headers = Headers({"content-encoding": "zstd"})
    anyio.run(decompressed, headers, body, 100, taken.append, _TooLarge)
    assert taken == [2**22, 2]


@pytest.mark.parametrize(
    "coding", ["br", "deflate", "gzip, gzip", "gzip, zstd", "compress", "x-zstdd", "aws-chunked"]
)
def test_other_codings_are_refused(coding: str) -> None:
    with pytest.raises(ContentTypeRefused):
        _run(coding, b"{}")


@pytest.mark.parametrize("coding", _COMPRESS)
def test_a_request_is_taken_compressed(
    served: Service, alice: httpx.Client, namespace: str, coding: str
) -> None:
    url = f"{served.prefix}/namespaces/{namespace}/properties"
    body = _COMPRESS[coding](json.dumps({"updates": {coding: "1"}}).encode())
    answer = alice.post(url, content=body, headers=_JSON | {"Content-Encoding": coding})
    assert answer.json()["updated"] == [coding], answer.text
    refusal = alice.post(url, content=body + b"x", headers=_JSON | {"Content-Encoding": coding})
    refused(refusal, 400, "RequestInvalid", "content-encoding")
    other = alice.post(url, content=body, headers=_JSON | {"Content-Encoding": "br"})
    refused(other, 415, "ContentTypeRefused", "content-encoding")
    assert other.headers["Accept-Encoding"] == "gzip, zstd"


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_limits_of_a_body_are_those_of_what_it_becomes(
    served: Service, alice: httpx.Client, coding: str
) -> None:
    body = b'{"namespace": ["a"], "properties": {"a": "' + b"a" * 2 * 1024 * 1024 + b'"}}'
    small = _COMPRESS[coding](body)
    assert len(small) < 10_000
    answer = alice.post(
        f"{served.prefix}/namespaces", content=small, headers=_JSON | {"Content-Encoding": coding}
    )
    refused(answer, 413, "BodyTooLarge", "body-size")
    elements = _COMPRESS[coding](json.dumps({"namespace": ["a"], "x": [0] * 20_000}).encode())
    answer = alice.post(
        f"{served.prefix}/namespaces", content=elements, headers=_JSON | {"Content-Encoding": coding}
    )
    refused(answer, 400, "RequestInvalid")


def test_an_engine_signs_the_bytes_that_it_sends(served: Service, namespace: str) -> None:
    url = f"{served.prefix}/namespaces/{namespace}/properties"
    body = gzip.compress(json.dumps({"updates": {"a": "1"}}).encode())
    with served.client(engine="spark") as engine:
        answer = engine.post(url, content=body, headers=_JSON | {"Content-Encoding": "gzip"})
        assert answer.status_code == 200, answer.text
        # The same content in other bytes is not what was signed.
        request = engine.build_request(
            "POST", url, content=body, headers=_JSON | {"Content-Encoding": "gzip"}
        )
        flow = served.engine_auth("spark").auth_flow(request)
        signed = next(flow)
        plain = gzip.decompress(body)
        forged = engine.build_request("POST", url, content=plain, headers=_JSON)
        for name in ("Content-Digest", "Signature", "Signature-Input"):
            forged.headers[name] = signed.headers[name]
        refused(engine.send(forged, auth=None), 401, "NotAuthenticated", "engine-signature")


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ("", None),
        ("gzip", "gzip"),
        ("x-gzip", "gzip"),
        ("GZIP", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("zstd;q=0.5, gzip", "gzip"),
        ("zstd;q=0, gzip;q=0", None),
        ("gzip;q=0", None),
        ("*", "zstd"),
        ("*;q=0", None),
        ("zstd;q=0, *", "gzip"),
        ("identity, gzip;q=0.5", None),
        ("identity;q=0.5, gzip", "gzip"),
        ("identity;q=0", None),
        ("gzip;q=2", None),
        ("gzip;q=x, zstd;q=0.001", "zstd"),
        ("gzip;q=1;level=9", None),
        ("deflate, br", None),
        (",,;,=", None),
    ],
)
def test_the_coding_is_the_one_that_the_client_prefers(accepted: str, chosen: str | None) -> None:
    assert preferred(Headers({"accept-encoding": accepted})) == chosen


def test_answers_are_compressed_for_clients_that_ask(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    properties = {f"name-{i}": "value" for i in range(100)}
    assert new_table(alice, served.prefix, namespace, properties=properties).status_code == 200
    url = f"{served.prefix}/namespaces/{namespace}/tables/t"
    plain = alice.get(url, headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers and plain.headers["Vary"] == "Accept-Encoding"
    for coding in ("gzip", "zstd"):
        answer = alice.get(url, headers={"Accept-Encoding": coding})
        assert answer.headers["Content-Encoding"] == coding
        assert answer.headers["Vary"] == "Accept-Encoding"
        assert int(answer.headers["Content-Length"]) < len(plain.content) / 2
        assert answer.json() == plain.json()
        assert answer.headers["ETag"] == plain.headers["ETag"]
        again = alice.get(url, headers={"Accept-Encoding": coding, "If-None-Match": answer.headers["ETag"]})
        assert (again.status_code, again.headers["ETag"]) == (304, plain.headers["ETag"])
    short = alice.get(f"{served.prefix}/namespaces/{namespace}", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in short.headers


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/engine/v1/tables/{ns}/t/writes", None),
        ("POST", "/engine/v1/tables/{ns}/t/plan", {}),
        ("POST", "/admin/v1/tokens", {"principal": "dave", "kind": "user"}),
    ],
)
def test_answers_with_keys_and_tokens_are_not_compressed(
    served: Service, alice: httpx.Client, namespace: str, method: str, path: str, body: Any
) -> None:
    properties = {f"name-{i}": "value" for i in range(100)}
    assert new_table(alice, served.prefix, namespace, properties=properties).status_code == 200
    more = {} if body is None else {"json": body}
    url = path.format(ns=namespace)
    answer = alice.request(method, url, headers={"Accept-Encoding": "gzip, zstd"}, **more)
    assert answer.status_code in (200, 201), answer.text
    assert "Content-Encoding" not in answer.headers


def test_only_marked_operations_are_compressed(alice: httpx.Client) -> None:
    answer = alice.get("/metrics", headers={"Accept-Encoding": "gzip, zstd"})
    assert len(answer.content) > MIN_ANSWER
    assert "Content-Encoding" not in answer.headers and "Vary" not in answer.headers


@pytest.mark.parametrize(
    "secret",
    [
        '"storage-credentials":[]',
        '"s3.secret-access-key":"x"',
        '"s3.session-token":"x"',
        '"adls.sas-token.a":"x"',
        '"uri":"https://s3/x?X-Amz-Signature=x"',
        '"transport-key":{}',
    ],
)
def test_an_answer_with_a_credential_is_not_compressed_whatever_operation_gives_it(secret: str) -> None:
    @compressible
    def endpoint() -> None:
        """An operation whose answers are compressed."""

    async def answer(text: str) -> Response:
        scope = {"type": "http", "headers": [(b"accept-encoding", b"gzip")]}
        body = f'{{"a":"{"a" * MIN_ANSWER}",{text}}}'
        return await compressed(Request(scope), Response(body), endpoint)

    assert "Content-Encoding" in anyio.run(answer, '"b":1').headers
    assert "Content-Encoding" not in anyio.run(answer, secret).headers
