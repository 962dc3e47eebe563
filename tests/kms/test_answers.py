"""Answers without an end: a KMS that drips or pours holds no call, and fills no memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from uuid import UUID

import pytest

from catalog.kms.aws import AwsKms
from catalog.kms.hadoop import HadoopKms
from catalog.kms.interface import KeyContext, KmsClient
from catalog.kms.vault import VaultKms
from catalog.settings.kms_options import AwsKmsOptions, HadoopKmsOptions, VaultKmsOptions
from policy.errors import KmsUnavailable
from tests.support.fault_proxy import listening

CONTEXT = KeyContext("prod", UUID(int=1))
#: After so many pieces the server ends the answer by itself.
PIECES = 1000
TIMEOUT = {"request_timeout_s": 0.3}


@dataclass
class Endless:
    """A server of answers that go on as long as a client listens.

    Attributes:
        piece: what is sent again and again.
        pause_s: seconds between two of them.
        status: of the answers.
        left: the client has gone, before the answer was whole.
        headers: whether the pieces are headers, so that not even the head of an answer is ever whole.
    """

    piece: bytes
    pause_s: float
    status: int = 200
    left: threading.Event = field(default_factory=threading.Event)
    headers: bool = False

    def answer(self, asked: BaseHTTPRequestHandler) -> None:
        """Send pieces until the client goes."""
        asked.rfile.read(int(asked.headers.get("Content-Length") or 0))
        asked.send_response(self.status)
        asked.send_header("Content-Length", str(PIECES * len(self.piece)))
        if self.headers:
            asked.flush_headers()
        else:
            asked.end_headers()
        try:
            for _ in range(PIECES):
                asked.wfile.write(self.piece)
                threading.Event().wait(self.pause_s)
        except OSError:
            self.left.set()


def vault(url: str) -> KmsClient:
    return VaultKms.connect(VaultKmsOptions.model_validate({"url": url, "token": "t", **TIMEOUT}))


def hadoop(url: str) -> KmsClient:
    address = url.replace("://", "@")
    return HadoopKms(
        HadoopKmsOptions.model_validate({"url": f"kms://{address}/kms", "user": "lakewarden", **TIMEOUT})
    )


def aws(url: str) -> KmsClient:
    given = {"region": "eu-central-1", "endpoint": url, "access_key_id": "a", "secret_access_key": "s"}
    return AwsKms.connect(AwsKmsOptions.model_validate({**given, **TIMEOUT}))


@pytest.fixture(params=[vault, hadoop, aws], ids=lambda make: make.__name__)
def connect(request: pytest.FixtureRequest) -> Callable[[str], KmsClient]:
    made: Callable[[str], KmsClient] = request.param
    return made


@pytest.fixture(params=[200, 500])
def status(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=[(b"x", 0.03), (b"x" * 65536, 0.0)], ids=["drips", "pours"])
def endless(request: pytest.FixtureRequest, status: int) -> Iterator[tuple[str, Endless]]:
    piece, pause_s = request.param
    server = Endless(piece, pause_s, status)
    with listening(server.answer) as url:
        yield url, server


def test_an_answer_without_an_end_is_left(
    connect: Callable[[str], KmsClient], endless: tuple[str, Endless]
) -> None:
    url, server = endless
    with pytest.raises(KmsUnavailable) as refusal:
        connect(url).create_key("lake", 32, CONTEXT)
    assert server.left.wait(30), "the whole answer was read"
    assert "xxx" not in str(refusal.value) and refusal.value.__cause__ is None


@pytest.mark.parametrize("make", [vault, hadoop])
def test_an_answer_that_does_not_come_to_its_body_is_left(make: Callable[[str], KmsClient]) -> None:
    server = Endless(b"x", 0.03, headers=True)
    with listening(server.answer) as url:
        with pytest.raises(KmsUnavailable):
            make(url).create_key("lake", 32, CONTEXT)
        assert server.left.wait(30), "the whole head was read"
