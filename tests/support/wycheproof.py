"""The vectors of Project Wycheproof, see tests/vectors/wycheproof."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_DIRECTORY = Path(__file__).resolve().parent.parent / "vectors" / "wycheproof"


class AeadCase(NamedTuple):
    """One test of AES-GCM.

    Attributes:
        opens: whether it has to open here, where a nonce has 12 bytes.
        sealed: ciphertext and tag.
    """

    id: str
    key: bytes
    iv: bytes
    aad: bytes
    message: bytes
    sealed: bytes
    opens: bool


class HkdfCase(NamedTuple):
    """One test of HKDF-SHA256 without salt."""

    id: str
    key: bytes
    info: bytes
    size: int
    derived: bytes


def aead_cases() -> list[AeadCase]:
    """All tests of AES-GCM."""
    return [
        AeadCase(
            str(test["tcId"]),
            *(bytes.fromhex(test[name]) for name in ("key", "iv", "aad", "msg")),
            bytes.fromhex(test["ct"] + test["tag"]),
            test["result"] == "valid" and len(test["iv"]) == 24,
        )
        for test in _tests("aes_gcm_test.json", least=200)
    ]


def hkdf_cases() -> list[HkdfCase]:
    """All tests of HKDF; what cannot be derived is not among them."""
    return [
        HkdfCase(
            str(test["tcId"]),
            bytes.fromhex(test["ikm"]),
            bytes.fromhex(test["info"]),
            test["size"],
            bytes.fromhex(test["okm"]),
        )
        for test in _tests("hkdf_sha256_test.json", least=20)
    ]


def _tests(file: str, least: int) -> Iterator[dict[str, Any]]:
    document = json.loads((_DIRECTORY / file).read_text(encoding="utf-8"))
    tests = [test for group in document["testGroups"] for test in group["tests"]]
    assert len(tests) == document["numberOfTests"] > least
    yield from tests
