from __future__ import annotations

import json
from pathlib import Path

import pytest

from catalog.keys.aead import Aead, require_key_length
from catalog.keys.secret import SecretBytes
from policy.errors import DecryptionRefused, KeyNotUsable

WYCHEPROOF = Path(__file__).resolve().parent.parent / "vectors" / "wycheproof" / "aes_gcm_test.json"


def wycheproof():
    document = json.loads(WYCHEPROOF.read_text(encoding="utf-8"))
    cases = [(group["ivSize"], test) for group in document["testGroups"] for test in group["tests"]]
    assert len(cases) == document["numberOfTests"] > 200
    return cases


@pytest.mark.parametrize(
    ("iv_bits", "case"), wycheproof(), ids=lambda part: str(part["tcId"]) if isinstance(part, dict) else ""
)
def test_wycheproof(iv_bits, case):
    aead = Aead(SecretBytes(bytes.fromhex(case["key"])))
    iv, message, aad = (bytes.fromhex(case[name]) for name in ("iv", "msg", "aad"))
    sealed = bytes.fromhex(case["ct"] + case["tag"])
    if iv_bits == 96 and case["result"] == "valid":
        assert aead.decrypt(iv, sealed, aad) == message
        assert aead.encrypt(iv, message, aad) == sealed
    else:
        with pytest.raises(DecryptionRefused):
            aead.decrypt(iv, sealed, aad)


@pytest.mark.parametrize("length", [0, 8, 11, 13, 16])
def test_encrypting_with_another_nonce_length_is_refused(length):
    with pytest.raises(ValueError, match="12 bytes"):
        Aead(SecretBytes(bytes(16))).encrypt(bytes(length), b"x", b"")


@pytest.mark.parametrize("length", [0, 1, 15, 17, 31, 33, 64])
def test_other_key_lengths_are_refused(length):
    with pytest.raises(KeyNotUsable):
        Aead(SecretBytes(bytes(length)))
    with pytest.raises(KeyNotUsable):
        require_key_length(length)


def test_sealed_bytes_open_and_every_truncation_is_refused():
    aead = Aead(SecretBytes(bytes(32)))
    sealed = aead.seal(b"data key", b"aad")
    assert aead.open(sealed, b"aad") == b"data key"
    assert aead.seal(b"data key", b"aad") != sealed
    for end in range(len(sealed)):
        with pytest.raises(DecryptionRefused):
            aead.open(sealed[:end], b"aad")
