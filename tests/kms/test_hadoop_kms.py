"""The Hadoop KMS back end against servers that are away, slow, foreign or hostile."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from pydantic import SecretStr, ValidationError

from catalog.crypto import hadoop_base64
from catalog.crypto.secret import SecretBytes
from catalog.kms.hadoop import HadoopKms
from catalog.kms.interface import KeyContext
from catalog.kms.registry import load_kms
from catalog.settings.kms_options import HadoopKmsOptions
from policy.errors import DecryptionRefused, KeyNotUsable, KmsUnavailable, PropertyInvalid
from tests.support.vectors import each_row

CONTEXT: Final = KeyContext("prod", UUID(int=1))
IV: Final = hadoop_base64.encode_url_safe(bytes(16))
EEK: Final = hadoop_base64.encode_url_safe(bytes(32))
KEY: Final = hadoop_base64.encode_url_safe(bytes(range(32)))
GENERATED: Final = [
    {"versionName": "lake@3", "iv": IV, "encryptedKeyVersion": {"versionName": "EEK", "material": EEK}}
]
DECRYPTED: Final = {"name": "lake", "versionName": "EK", "material": KEY}
AUTHORIZATION: Final = "org.apache.hadoop.security.authorize.AuthorizationException"


def remote(java: str, message: str = "no") -> dict[str, Any]:
    """An error in Hadoop's words."""
    return {
        "RemoteException": {"javaClassName": java, "message": message, "exception": java.rpartition(".")[2]}
    }


class Server:
    """A KMS that answers what it is told to.

    Attributes:
        answers: by what the path ends with: status, and a document or bytes.
        seen: the requests: method, path and headers.
        headers: sent with every answer.
        delay_s: seconds before it answers.
    """

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {"generate": (200, GENERATED), "decrypt": (200, DECRYPTED)}
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.headers: dict[str, str] = {}
        self.delay_s = 0.0
        self.gone = threading.Event()
        self.port = 0

    def answer(self, path: str) -> tuple[int, bytes]:
        """What it says to a request."""
        for part, (status, said) in self.answers.items():
            if part in path:
                return status, said if isinstance(said, bytes) else json.dumps(said).encode()
        return 404, b"{}"


class _QuietServer(ThreadingHTTPServer):
    """Says nothing of clients that give up, as some tests make them do."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def served(address: str = "127.0.0.1", port: int = 0) -> Iterator[Server]:
    """Run such a server."""
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_any(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            server.seen.append((self.command, self.path, dict(self.headers.items())))
            server.gone.wait(server.delay_s)
            status, body = server.answer(self.path)
            self.send_response(status)
            for name, value in server.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_any

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = _QuietServer((address, port), Handler)
    server.port = http.server_address[1]
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.gone.set()
        http.shutdown()
        http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with served() as made:
        yield made


def client(url: str, **more: Any) -> HadoopKms:
    """A client that calls itself lakewarden."""
    identity = {} if {"token", "delegation_token"} & set(more) else {"user": "lakewarden"}
    return HadoopKms(HadoopKmsOptions(url=url, **identity, **more))


def at(server: Server, **more: Any) -> HadoopKms:
    """A client of one server."""
    return client(f"kms://http@127.0.0.1:{server.port}/kms", **more)


def test_eek_is_generated_and_decrypted_and_the_key_is_sealed_under_it(server: Server) -> None:
    kms = at(server)
    wrapped, key = kms.create_key("lake", 32, CONTEXT)
    assert wrapped[:8] == b"\x01\x06lake@3" and kms.get_key(wrapped, CONTEXT) == key
    asked = [(method, path) for method, path, _ in server.seen]
    assert asked == [
        ("GET", "/kms/v1/key/lake/_eek?eek_op=generate&num_keys=1&user.name=lakewarden"),
        ("POST", "/kms/v1/keyversion/lake%403/_eek?eek_op=decrypt&user.name=lakewarden"),
        ("POST", "/kms/v1/keyversion/lake%403/_eek?eek_op=decrypt&user.name=lakewarden"),
    ]


def test_tokens_go_into_headers_and_never_into_the_address(server: Server) -> None:
    for option, header, text in (
        ("token", "Authorization", "Bearer s3cret"),
        ("delegation_token", "X-Hadoop-Delegation-Token", "s3cret"),
    ):
        server.seen.clear()
        at(server, **{option: SecretStr("s3cret")}).create_key("lake", 32, CONTEXT)
        assert {headers.get(header) for _, _, headers in server.seen} == {text}
        assert not any("s3cret" in path or "user.name" in path for _, path, _ in server.seen)


def test_hosts_are_asked_in_turn_and_the_one_that_answered_first_the_next_time() -> None:
    with served("127.0.0.2") as second, served("127.0.0.3", second.port) as third:
        kms = client(f"kms://http@127.0.0.1;127.0.0.2;127.0.0.3:{second.port}/kms")
        wrapped, key = kms.create_key("lake", 32, CONTEXT)
        assert (len(second.seen), len(third.seen)) == (2, 0)
        second.answers = {"decrypt": (503, b"")}
        assert kms.get_key(wrapped, CONTEXT) == key
        assert (len(second.seen), len(third.seen)) == (3, 1)
        assert kms.get_key(wrapped, CONTEXT) == key
        assert (len(second.seen), len(third.seen)) == (3, 2)


def test_refusal_of_one_host_is_not_taken_to_the_next() -> None:
    with served("127.0.0.1") as first, served("127.0.0.2", first.port) as second:
        first.answers = {"generate": (403, remote(AUTHORIZATION))}
        with pytest.raises(KeyNotUsable):
            client(f"kms://http@127.0.0.1;127.0.0.2:{first.port}/kms").create_key("lake", 32, CONTEXT)
        assert second.seen == []


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("status", "said", "error"),
    [
        (401, remote(AUTHORIZATION), KeyNotUsable),
        (403, remote("org.apache.hadoop.security.AccessControlException"), KeyNotUsable),
        (403, remote("java.lang.SecurityException"), KeyNotUsable),
        (500, remote("java.io.IOException", f"{AUTHORIZATION}: User [x] is not authorized"), KeyNotUsable),
        (400, remote("java.lang.IllegalArgumentException"), KeyNotUsable),
        (401, remote("java.lang.SecurityException"), KmsUnavailable),
        (401, b"<html>Authentication required</html>", KmsUnavailable),
        (403, b"<html>Anonymous requests are disallowed</html>", KmsUnavailable),
        (
            403,
            remote("org.apache.hadoop.security.authentication.client.AuthenticationException"),
            KmsUnavailable,
        ),
        (403, remote("attacker.AuthorizationException"), KmsUnavailable),
        (403, {"RemoteException": None}, KmsUnavailable),
        (403, [], KmsUnavailable),
        (500, remote("java.io.IOException"), KmsUnavailable),
        (502, b"", KmsUnavailable),
        (503, b"", KmsUnavailable),
        (404, b"", KmsUnavailable),
        (204, b"", KmsUnavailable),
        (200, b"", KmsUnavailable),
        (200, b"{", KmsUnavailable),
        (200, b"null", KmsUnavailable),
        (200, b"\xff", KmsUnavailable),
        (200, b'{"material":"AA","material":"BB"}', KmsUnavailable),
        (200, b"[" * 100_000, KmsUnavailable),
        (200, b" " * 2_000_000, KmsUnavailable),
    ],
)
def test_answers_mean_what_hadoop_means_by_them(
    server: Server, status: int, said: Any, error: type[Exception]
) -> None:
    kms = at(server)
    wrapped, _ = kms.create_key("lake", 32, CONTEXT)
    server.answers = {"_eek": (status, said), "_metadata": (200, {"versions": 9})}
    calls: tuple[Callable[[], object], ...] = (
        lambda: kms.create_key("lake", 32, CONTEXT),
        lambda: kms.get_key(wrapped, CONTEXT),
    )
    for call in calls:
        with pytest.raises(error):
            call()


@pytest.mark.parametrize("metadata", [{}, {"versions": 3}, {"versions": 0}])
def test_failure_about_a_key_or_version_that_is_not_there_says_so(
    server: Server, metadata: dict[str, Any]
) -> None:
    kms = at(server)
    wrapped, _ = kms.create_key("lake", 32, CONTEXT)
    server.answers = {"_eek": (500, remote("java.io.IOException")), "_metadata": (200, metadata)}
    with pytest.raises(KeyNotUsable):
        kms.get_key(wrapped, CONTEXT)


@pytest.mark.parametrize(
    "said",
    [
        [],
        GENERATED * 2,
        [{**GENERATED[0], "versionName": "other@3"}],
        [{**GENERATED[0], "versionName": "lake"}],
        [{**GENERATED[0], "versionName": "lake@-1"}],
        [{**GENERATED[0], "versionName": "lake@" + "9" * 40}],
        [{**GENERATED[0], "versionName": 3}],
        [{**GENERATED[0], "iv": "AAAA"}],
        [{**GENERATED[0], "iv": "not base64!"}],
        [{**GENERATED[0], "encryptedKeyVersion": None}],
        [{**GENERATED[0], "encryptedKeyVersion": {"versionName": "EK", "material": EEK}}],
        [{**GENERATED[0], "encryptedKeyVersion": {"versionName": "EEK", "material": "AAAA"}}],
        [{**GENERATED[0], "encryptedKeyVersion": {"versionName": "EEK"}}],
    ],
)
def test_generated_keys_that_are_none_are_refused(server: Server, said: Any) -> None:
    server.answers["generate"] = (200, said)
    with pytest.raises(KmsUnavailable):
        at(server).create_key("lake", 32, CONTEXT)


@pytest.mark.parametrize("said", [{}, [], {"material": None}, {"material": "AAAA"}, {"material": "!" * 43}])
def test_decrypted_keys_that_are_none_are_refused(server: Server, said: Any) -> None:
    kms = at(server)
    wrapped, _ = kms.create_key("lake", 32, CONTEXT)
    server.answers["decrypt"] = (200, said)
    with pytest.raises(KmsUnavailable):
        kms.get_key(wrapped, CONTEXT)


def test_wrong_key_from_the_kms_opens_nothing(server: Server) -> None:
    kms = at(server)
    wrapped, _ = kms.create_key("lake", 32, CONTEXT)
    server.answers["decrypt"] = (200, {**DECRYPTED, "material": EEK})
    with pytest.raises(DecryptionRefused):
        kms.get_key(wrapped, CONTEXT)


def test_reencrypted_key_that_is_another_one_is_refused(server: Server) -> None:
    kms = at(server)
    wrapped, _ = kms.create_key("lake", 32, CONTEXT)
    server.answers["_reencryptbatch"] = (200, [{**GENERATED[0], "versionName": "lake@4"}])
    server.answers["lake%404"] = (200, {**DECRYPTED, "material": EEK})
    server.answers = {**server.answers, "decrypt": (200, {**DECRYPTED, "material": EEK})}
    with pytest.raises(DecryptionRefused):
        kms.rewrap_keys([(wrapped, CONTEXT)])


def test_many_keys_are_decrypted_some_at_a_time_and_stay_in_order(server: Server) -> None:
    kms = at(server)
    made = [
        (kms.create_key("lake", 32, each), each)
        for each in (KeyContext("prod", UUID(int=i)) for i in range(8))
    ]
    server.answers["_reencryptbatch"] = (200, GENERATED * len(made))
    together, answer = threading.Barrier(4), server.answer

    def meets(path: str) -> tuple[int, bytes]:
        if "decrypt" in path:
            together.wait(20)
        return answer(path)

    server.answer = meets  # type: ignore[method-assign]
    moved = kms.rewrap_keys([(created.wrapped, context) for created, context in made])
    server.answer = answer  # type: ignore[method-assign]
    assert [kms.get_key(new, context) for new, (_, context) in zip(moved, made, strict=True)] == [
        created.key for (created, _) in made
    ]


def test_redirections_are_not_followed(server: Server) -> None:
    with served() as elsewhere:
        server.headers["Location"] = f"http://127.0.0.1:{elsewhere.port}/kms/v1/key/lake/_eek"
        for status in (301, 302, 307, 308):
            server.answers["generate"] = (status, b"")
            with pytest.raises(KmsUnavailable):
                at(server, token=SecretStr("s3cret")).create_key("lake", 32, CONTEXT)
        assert elsewhere.seen == []


def test_environment_names_no_proxy(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        at(server).create_key("lake", 32, CONTEXT)
        assert proxy.seen == []


def test_slow_kms_is_given_up_in_time(server: Server) -> None:
    """A client that waits longer gets the key."""
    server.delay_s = 60.0
    with pytest.raises(KmsUnavailable):
        at(server, request_timeout_s=0.3).create_key("lake", 32, CONTEXT)


@each_row(
    "url",
    [
        "",
        "https://kms.example/kms",
        "kms://kms.example/kms",
        "kms://http@kms.example:9600/kms",
        "kms://http@127.0.0.1;kms.example:9600/kms",
        "kms://http@127.0.0.1.example/kms",
        "kms://https@user:password@kms.example/kms",
        "kms://https@kms.example:9600/kms?x=1",
        "kms://https@kms.example:9600/kms#x",
        "kms://https@kms.example:9600/../kms/..%2f",
        "kms://https@;kms.example/kms",
        "kms://https@kms.example:9600:1/kms",
        "kms://https@kms.example\n:9600/kms",
        "kms://ftp@kms.example/kms",
    ],
)
def test_addresses_elsewhere_need_tls_and_mean_one_thing(url: str) -> None:
    with pytest.raises(ValidationError):
        HadoopKmsOptions(url=url, user="lakewarden")


def test_several_hosts_over_tls() -> None:
    options = HadoopKmsOptions(url="kms://https@a.example;b.example:9600/kms/", user="x")
    assert options.addresses() == ("https://a.example:9600/kms", "https://b.example:9600/kms")


@pytest.mark.parametrize(
    "identity",
    [
        {},
        {"user": "a", "token": SecretStr("b")},
        {"token": SecretStr("a"), "delegation_token": SecretStr("b")},
        {"user": "a&doAs=b"},
        {"token": SecretStr("a\r\nX: b")},
        {"token": SecretStr("")},
        {"delegation_token": SecretStr("ä")},
    ],
)
def test_there_is_one_identity_and_it_is_well_formed(identity: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        HadoopKmsOptions(url="kms://https@kms.example/kms", **identity)


def test_registry_makes_the_client_and_repeats_no_secret(tmp_path: Path) -> None:
    options = {"url": "kms://https@kms.example:9600/kms", "token": SecretBytes(b"s3cret")}
    assert load_kms("hadoop", options).identifier == "hadoop"
    for more in ({"token": SecretBytes(b"s3cret and space")}, {"ca_file": str(tmp_path / "none")}):
        with pytest.raises(PropertyInvalid) as caught:
            load_kms("hadoop", {**options, **more})
        assert "s3cret" not in str(caught.value) and caught.value.__cause__ is None
