"""AES-GCM and the derivation of keys, against public vectors."""

from __future__ import annotations

from operator import attrgetter

import pytest

from catalog.crypto.aead import Aead, require_key_length
from catalog.crypto.hkdf import derived
from catalog.crypto.secret import SecretBytes
from catalog.envelope.data_keys import new_dek
from policy.errors import DecryptionRefused, KeyNotUsable
from tests.support.vectors import each_row
from tests.support.wycheproof import aead_cases, hkdf_cases


@each_row("case", aead_cases(), count=239, ids=attrgetter("id"))
def test_wycheproof(case):
    aead = Aead(SecretBytes(case.key))
    if case.opens:
        assert aead.decrypt(case.iv, case.sealed, case.aad) == case.message
        assert aead.open(case.iv + case.sealed, case.aad) == case.message
        assert aead.open_key(case.iv + case.sealed, case.aad).reveal() == case.message
        assert aead.encrypt(case.iv, case.message, case.aad) == case.sealed
    else:
        with pytest.raises(DecryptionRefused):
            aead.decrypt(case.iv, case.sealed, case.aad)


@each_row("case", hkdf_cases(), count=23, ids=attrgetter("id"))
def test_wycheproof_of_derived_keys(case):
    assert derived(SecretBytes(case.key), case.size, case.info) == case.derived


def test_more_than_can_be_derived_is_refused():
    with pytest.raises(ValueError, match="8160"):
        derived(SecretBytes(bytes(32)), 8161, b"")


@each_row("length", [0, 8, 11, 13, 16])
def test_encrypting_with_another_nonce_length_is_refused(length):
    with pytest.raises(ValueError, match="12 bytes"):
        Aead(SecretBytes(bytes(16))).encrypt(bytes(length), b"x", b"")


@each_row("length", [0, 1, 15, 17, 31, 33, 64])
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


def test_each_encryption_is_counted_before_it_and_no_opening_is():
    spent = []
    counted, plain = Aead(new_dek(32), lambda: spent.append(1)), Aead(new_dek(32))
    nonce, done = bytes(12), []
    uses = [
        lambda: counted.seal(b"x", b""),
        lambda: counted.seal_key(new_dek(32), b""),
        lambda: counted.encrypt(nonce, b"x", b""),
        lambda: plain.reseal([(nonce, plain.encrypt(nonce, b"x", b""), b"", nonce, b"")], 1, counted, done),
    ]
    for times, use in enumerate(uses, 1):
        use()
        assert len(spent) == times
    sealed, key = counted.seal(b"x", b""), counted.seal_key(new_dek(32), b"")
    counted.open(sealed, b"")
    counted.decrypt(sealed[:12], sealed[12:], b"")
    counted.open_key(key, b"")
    counted.open_all([(sealed[:12], sealed[12:], b"")], done)
    counted.reseal([(sealed[:12], sealed[12:], b"", nonce, b"")], 1, plain, done)
    assert len(spent) == len(uses) + 2


def test_a_key_that_may_encrypt_no_more_gives_nothing_out():
    def refuse():
        raise KeyNotUsable("often enough", rule="key-invocations")

    used_up, plain, done = Aead(new_dek(32), refuse), Aead(new_dek(32)), []
    item = (bytes(12), plain.encrypt(bytes(12), b"x", b""), b"", bytes(12), b"")
    for use in (
        lambda: used_up.seal(b"x", b""),
        lambda: used_up.seal_key(new_dek(32), b""),
        lambda: used_up.encrypt(bytes(12), b"x", b""),
        lambda: plain.reseal([item], 1, used_up, done),
    ):
        with pytest.raises(KeyNotUsable):
            use()
    assert done == []
