from __future__ import annotations

import copy
import json
import pickle
from dataclasses import asdict, dataclass

import pytest

from catalog.keys.aead import Aead
from catalog.keys.secret import SecretBytes

RAW = b"the very secret."


@dataclass
class Holder:
    key: SecretBytes


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
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
