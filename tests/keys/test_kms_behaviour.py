"""What every KmsClient must do; each implementation is a fixture parameter."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import pytest

from catalog.keys.kms import KeyContext, KmsClient
from catalog.keys.local_kms import LocalKms
from catalog.keys.root_key import SCRYPT_LOG2_N_RANGE, KeyFile, Passphrase, RootDescription
from catalog.keys.secret import SecretBytes
from policy.errors import DecryptionRefused, KeyNotUsable, KmsUnavailable

TABLE, OTHER_TABLE = UUID(int=1), UUID(int=2)
CONTEXT = KeyContext("prod", TABLE)


@dataclass
class Backend:
    """A client with the master keys `lake` and `pii`, and what only the KMS's administrator can do."""

    client: KmsClient
    again: Callable[[], KmsClient]
    disable: Callable[[str], object]
    enable: Callable[[str], object]
    stop: Callable[[], object]


def local_with_key_file(directory: Path) -> Backend:
    return local(directory, KeyFile.create(directory / "root.key"))


class CheapPassphrase(Passphrase):
    """At the lowest cost that a keystore may ask for."""

    def describe(self) -> RootDescription:
        return replace(super().describe(), log2_n=SCRYPT_LOG2_N_RANGE[0])


def local_with_passphrase(directory: Path) -> Backend:
    return local(directory, CheapPassphrase(SecretBytes(b"correct horse battery")))


def local(directory: Path, root) -> Backend:
    path = directory / "keystore.json"
    client = LocalKms.create(path, root)
    client.create_master_key("lake")
    client.create_master_key("pii")
    return Backend(
        client, lambda: LocalKms(path, root), client.disable_master_key, client.enable_master_key, path.unlink
    )


@pytest.fixture(params=[local_with_key_file, local_with_passphrase])
def backend(request, tmp_path) -> Backend:
    return request.param(tmp_path)


def test_created_key_opens_again_also_for_another_client(backend):
    for length in (16, 24, 32):
        wrapped, key = backend.client.create_key("lake", length, CONTEXT)
        assert len(key) == length
        assert backend.client.get_key(wrapped, CONTEXT) == key
    assert backend.again().get_key(wrapped, CONTEXT) == key


def test_keys_are_random_and_not_inside_their_wrapped_form(backend):
    made = [backend.client.create_key("lake", 32, CONTEXT) for _ in range(3)]
    assert len({key.reveal() for _, key in made}) == len({wrapped for wrapped, _ in made}) == 3
    assert all(key.reveal() not in wrapped for wrapped, key in made)


@pytest.mark.parametrize("length", [0, 8, 15, 17, 33, 64])
def test_other_lengths_are_refused(backend, length):
    with pytest.raises(KeyNotUsable):
        backend.client.create_key("lake", length, CONTEXT)


@pytest.mark.parametrize(
    "other",
    [
        KeyContext("prod", OTHER_TABLE),
        KeyContext("test", TABLE),
        KeyContext("", TABLE),
        KeyContext("pro", TABLE),
    ],
)
def test_wrapped_key_opens_in_its_own_context_alone(backend, other):
    wrapped, _ = backend.client.create_key("lake", 32, CONTEXT)
    with pytest.raises(DecryptionRefused):
        backend.client.get_key(wrapped, other)


def test_every_truncation_and_every_flipped_byte_is_refused(backend):
    wrapped, _ = backend.client.create_key("lake", 32, CONTEXT)
    changed = [wrapped[:end] for end in range(len(wrapped))] + [wrapped + b"\0"]
    changed += [wrapped[:i] + bytes([wrapped[i] ^ 1]) + wrapped[i + 1 :] for i in range(len(wrapped))]
    for data in changed:
        with pytest.raises((DecryptionRefused, KeyNotUsable)):
            backend.client.get_key(data, CONTEXT)


def test_wrapped_key_under_one_master_key_does_not_pass_for_another(backend):
    wrapped, _ = backend.client.create_key("lake", 32, CONTEXT)
    backend.disable("lake")
    with pytest.raises((DecryptionRefused, KeyNotUsable)):
        backend.client.get_key(wrapped.replace(b"\x04lake", b"\x03pii"), CONTEXT)


@pytest.mark.parametrize("name", ["absent", "", "LAKE", "lake ", "../lake", "läke", "l" * 256])
def test_unknown_master_key_is_not_usable(backend, name):
    with pytest.raises(KeyNotUsable):
        backend.client.create_key(name, 32, CONTEXT)


def test_disabled_master_key_neither_creates_nor_opens_until_enabled(backend):
    wrapped, key = backend.client.create_key("lake", 32, CONTEXT)
    other, other_key = backend.client.create_key("pii", 32, CONTEXT)
    backend.disable("lake")
    for client in (backend.client, backend.again()):
        with pytest.raises(KeyNotUsable):
            client.get_key(wrapped, CONTEXT)
        with pytest.raises(KeyNotUsable):
            client.create_key("lake", 32, CONTEXT)
        assert client.get_key(other, CONTEXT) == other_key
    backend.enable("lake")
    assert backend.client.get_key(wrapped, CONTEXT) == key


def test_absent_kms_is_unavailable(backend):
    wrapped, _ = backend.client.create_key("lake", 32, CONTEXT)
    backend.stop()
    with pytest.raises(KmsUnavailable):
        backend.client.get_key(wrapped, CONTEXT)
    with pytest.raises(KmsUnavailable):
        backend.client.create_key("lake", 32, CONTEXT)


def test_many_threads_share_a_client(backend):
    wrapped, key = backend.client.create_key("lake", 32, CONTEXT)
    opened: list[SecretBytes] = []
    threads = [
        threading.Thread(target=lambda: opened.append(backend.client.get_key(wrapped, CONTEXT)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened == [key] * 8


def test_data_keys_are_wrapped_locally_and_bound_to_their_aad(backend):
    key, dek = SecretBytes(bytes(range(32))), SecretBytes(bytes(16))
    wrapped = backend.client.encrypt_data_key(dek, key, b"aad")
    backend.stop()
    assert backend.client.decrypt_data_key(wrapped, key, b"aad") == dek
    for data, aad in ((wrapped, b"other"), (wrapped[:-1], b"aad"), (b"", b"aad")):
        with pytest.raises(DecryptionRefused):
            backend.client.decrypt_data_key(data, key, aad)
    with pytest.raises(KeyNotUsable):
        backend.client.encrypt_data_key(dek, SecretBytes(bytes(20)), b"aad")


def test_identifier_is_a_short_name(backend):
    assert backend.client.identifier.isidentifier()


def test_errors_and_repr_carry_no_key(backend):
    wrapped, key = backend.client.create_key("lake", 32, CONTEXT)
    assert key.reveal().hex() not in repr(backend.client.create_key("lake", 32, CONTEXT))
    with pytest.raises(DecryptionRefused) as caught:
        backend.client.get_key(wrapped, KeyContext("test", TABLE))
    assert key.reveal().hex() not in str(caught.value)
