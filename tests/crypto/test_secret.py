"""Secrets: masked in every text, never pickled, overwritten when they are let go."""

from __future__ import annotations

import copy
import json
import logging
import pickle
from dataclasses import asdict, dataclass

import pytest

from catalog.crypto.aead import Aead
from catalog.crypto.secret import SecretBytes, hush
from policy.errors import DecryptionRefused
from tests.support.vectors import each_row

RAW = b"the very secret."


@dataclass
class Holder:
    key: SecretBytes


@each_row(
    "shown",
    [
        repr,
        str,
        lambda s: f"{s}",
        lambda s: f"{s!r:>40}",
        lambda s: f"{s:>40}",
        "{}".format,
        lambda s: repr([s]),
    ],
)
def test_text_forms_mask_the_secret(shown):
    text = shown(SecretBytes(RAW))
    assert "****" in text
    assert RAW.decode() not in text and RAW.hex() not in text


def test_holder_masks_the_secret():
    assert "very secret" not in repr(asdict(Holder(SecretBytes(RAW))))


@each_row("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_is_refused(protocol):
    with pytest.raises(TypeError, match="pickled") as caught:
        pickle.dumps(Holder(SecretBytes(RAW)), protocol)
    assert "very secret" not in str(caught.value)


def test_other_ways_out_are_refused():
    secret = SecretBytes(RAW)
    for way in (json.dumps, bytes, iter, vars, memoryview, hash, lambda s: s.__getstate__()):
        with pytest.raises(TypeError) as caught:
            way(secret)
        assert "very secret" not in str(caught.value)


def test_copies_share_the_secret_so_that_wipe_reaches_them():
    secret = SecretBytes(RAW)
    shallow, deep = copy.copy(secret), copy.deepcopy(Holder(secret)).key
    secret.wipe()
    for wiped in (secret, shallow, deep):
        with pytest.raises(ValueError, match="wiped"):
            wiped.reveal()
        assert len(wiped) == 0


def test_wipe_overwrites_the_buffer_and_may_be_repeated():
    secret = SecretBytes(RAW)
    buffer = secret._data
    secret.wipe()
    secret.wipe()
    assert buffer == bytearray(len(RAW))


def test_equality_is_of_contents_and_only_among_secrets():
    assert SecretBytes(RAW) == SecretBytes(bytearray(RAW))
    assert SecretBytes(RAW) != SecretBytes(RAW[::-1])
    assert SecretBytes(RAW) != RAW


def test_the_callers_buffer_is_copied():
    buffer = bytearray(RAW)
    secret = SecretBytes(buffer)
    buffer[:] = bytes(len(RAW))
    assert secret.reveal() == RAW


def test_cipher_cannot_be_pickled():
    with pytest.raises(TypeError):
        pickle.dumps(Aead(SecretBytes(RAW)))


def test_lent_is_the_secret_itself_and_cannot_be_written():
    secret = SecretBytes(RAW)
    with secret.lent() as lent:
        assert lent == RAW and lent.readonly
        assert "very secret" not in repr(lent)
    secret.wipe()
    with pytest.raises(ValueError, match="wiped"), secret.lent():
        pass


def test_what_is_lent_outlives_no_wipe():
    secret = SecretBytes(RAW)
    with secret.lent() as lent:
        secret.wipe()
        assert bytes(lent) == bytes(len(RAW))


def test_a_secret_that_is_let_go_is_overwritten():
    secret = SecretBytes(RAW)
    buffer = secret._data
    del secret
    assert buffer == bytearray(len(RAW))


def test_a_secret_that_is_lent_is_not_let_go():
    with SecretBytes(RAW).lent() as lent:
        assert lent == RAW


def test_a_buffer_that_is_taken_is_overwritten():
    buffer = bytearray(RAW)
    assert SecretBytes.taking(buffer).reveal() == RAW
    assert buffer == bytearray(len(RAW))


def test_a_cipher_keeps_its_key_when_the_secret_is_wiped():
    key = SecretBytes(RAW)
    cipher = Aead(key)
    before = cipher.encrypt(bytes(12), b"text", b"")
    key.wipe()
    assert cipher.encrypt(bytes(12), b"text", b"") == before


def test_a_sealed_key_opens_to_the_same_key():
    cipher, key = Aead(SecretBytes(RAW)), SecretBytes(bytes(range(32)))
    sealed = cipher.seal_key(key, b"aad")
    assert cipher.open_key(sealed, b"aad") == key == SecretBytes(cipher.open(sealed, b"aad"))
    for changed, aad in ((sealed[:-1], b"aad"), (sealed, b"other"), (sealed[:20], b"aad"), (b"", b"aad")):
        with pytest.raises(DecryptionRefused):
            cipher.open_key(changed, aad)


def test_a_hushed_logger_says_nothing_at_debug_whatever_its_level(caplog):
    talkative = logging.getLogger("tests.talkative")
    hush(talkative.name)
    hush(talkative.name)
    with caplog.at_level(logging.DEBUG, talkative.name):
        talkative.debug("the answer: %s", RAW)
        talkative.info("something happened")
    assert "very secret" not in caplog.text and "something happened" in caplog.text
    assert len(talkative.filters) == 1
