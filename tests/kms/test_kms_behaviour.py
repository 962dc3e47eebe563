"""What every KmsClient must do; each implementation is a fixture parameter."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest

from catalog.crypto.secret import SecretBytes
from catalog.kms.interface import CreatedKey, KeyContext
from policy.errors import DecryptionRefused, KeyNotUsable, KmsUnavailable
from tests.support.documented_kms import documented
from tests.support.hadoop_kms import hadoop
from tests.support.hadoop_server import hadoop_server
from tests.support.kms_backends import Backend, local_with_key_file, local_with_passphrase
from tests.support.moto_kms import aws
from tests.support.transit_backends import transit
from tests.support.vault_server import vault

TABLE, OTHER_TABLE = UUID(int=1), UUID(int=2)
CONTEXT = KeyContext("prod", TABLE)


BACK_ENDS = (
    local_with_key_file,
    local_with_passphrase,
    aws,
    transit,
    hadoop,
    documented,
    pytest.param(vault, marks=pytest.mark.interop),
    pytest.param(hadoop_server, marks=pytest.mark.interop),
)


@pytest.fixture(params=BACK_ENDS, ids=lambda make: make.__name__)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with request.param(tmp_path) as made:
        yield made


@pytest.mark.nightly
def test_created_key_opens_again_also_for_another_client(backend):
    for length in (16, 24, 32):
        wrapped, key = backend.client.create_key(backend.lake, length, CONTEXT)
        assert len(key) == length
        assert backend.client.get_key(wrapped, CONTEXT) == key
    assert backend.again().get_key(wrapped, CONTEXT) == key


@pytest.mark.nightly
def test_given_key_is_wrapped_and_opens_again_in_its_own_context_alone(backend):
    for length in (16, 24, 32):
        key = SecretBytes(secrets.token_bytes(length))
        wrapped = backend.client.wrap_key(backend.lake, key, CONTEXT)
        assert key.reveal() not in wrapped
        assert backend.again().get_key(wrapped, CONTEXT) == key
    with pytest.raises(DecryptionRefused):
        backend.client.get_key(wrapped, KeyContext("prod", OTHER_TABLE))
    backend.rotate(backend.lake)
    (moved,) = backend.client.rewrap_keys([(wrapped, CONTEXT)])
    assert backend.client.get_key(moved, CONTEXT) == key
    with pytest.raises(KeyNotUsable):
        backend.client.wrap_key(backend.lake, SecretBytes(bytes(8)), CONTEXT)
    backend.disable(backend.lake)
    for master_key_id in (backend.lake, "no-such-key", "no such key", "../lake"):
        with pytest.raises(KeyNotUsable):
            backend.client.wrap_key(master_key_id, key, CONTEXT)


def test_keys_are_random_and_not_inside_their_wrapped_form(backend):
    made = [backend.client.create_key(backend.lake, 32, CONTEXT) for _ in range(3)]
    assert len({key.reveal() for _, key in made}) == len({wrapped for wrapped, _ in made}) == 3
    assert all(key.reveal() not in wrapped for wrapped, key in made)


def test_other_lengths_are_refused(backend):
    for length in (0, 8, 15, 17, 33, 64):
        with pytest.raises(KeyNotUsable):
            backend.client.create_key(backend.lake, length, CONTEXT)


def test_wrapped_key_opens_in_its_own_context_alone(backend):
    wrapped, _ = backend.client.create_key(backend.lake, 32, CONTEXT)
    for catalog, table in (("prod", OTHER_TABLE), ("test", TABLE), ("", TABLE), ("pro", TABLE)):
        with pytest.raises(DecryptionRefused):
            backend.client.get_key(wrapped, KeyContext(catalog, table))


@pytest.mark.nightly
def test_truncations_and_flipped_bytes_are_refused(backend):
    wrapped, _ = backend.client.create_key(backend.lake, 32, CONTEXT)
    places = [*range(min(64, len(wrapped))), *range(64, len(wrapped), 7), len(wrapped) - 1]
    changed = [wrapped[:end] for end in places] + [wrapped + b"\0"]
    changed += [wrapped[:i] + bytes([wrapped[i] ^ 1]) + wrapped[i + 1 :] for i in places]
    for data in changed:
        with pytest.raises((DecryptionRefused, KeyNotUsable)):
            backend.client.get_key(data, CONTEXT)


def test_wrapped_key_under_one_master_key_does_not_pass_for_another(backend):
    wrapped, _ = backend.client.create_key(backend.lake, 32, CONTEXT)
    other, _ = backend.client.create_key(backend.pii, 32, CONTEXT)
    backend.disable(backend.lake)
    names = backend.lake.encode(), backend.pii.encode()
    for data in (
        wrapped.replace(bytes([len(names[0])]) + names[0], bytes([len(names[1])]) + names[1]),
        other[: len(other) // 2] + wrapped[len(other) // 2 :],
    ):
        with pytest.raises((DecryptionRefused, KeyNotUsable)):
            backend.client.get_key(data, CONTEXT)


NO_WRAPPED_KEYS = (
    b"",
    b"\0",
    b"\xff" * 100,
    b"A" * 10_000_000,
    b"\x01" * 10_000_000,
    b"https://kms.attacker.example/v1/transit/decrypt/lake",
    b"arn:aws:kms:us-east-1:999999999999:key/0f0f0f0f-0000-4000-8000-000000000000",
    b"kms://http@attacker.example:9600/kms",
    b"vault:v1:" + base64.b64encode(bytes(60)),
    b"../../../../etc/passwd",
    b'{"kmsInstanceURL":"https://attacker.example","wrappedDEK":"AA=="}',
)


def test_what_is_no_wrapped_key_is_refused(backend):
    for data in NO_WRAPPED_KEYS:
        with pytest.raises(DecryptionRefused):
            backend.client.get_key(data, CONTEXT)
        with pytest.raises(DecryptionRefused):
            backend.client.rewrap_keys([(data, CONTEXT)])


def test_wrapped_key_with_ten_megabytes_behind_it_is_refused(backend):
    wrapped, _ = backend.client.create_key(backend.lake, 32, CONTEXT)
    with pytest.raises(DecryptionRefused):
        backend.client.get_key(wrapped + bytes(10_000_000), CONTEXT)


@pytest.mark.nightly
def test_rotated_master_key_opens_what_it_wrapped_and_wraps_by_the_new_version(backend):
    old, old_key = backend.client.create_key(backend.lake, 32, CONTEXT)
    backend.rotate(backend.lake)
    new, new_key = backend.client.create_key(backend.lake, 32, CONTEXT)
    assert backend.version_of(old) != backend.version_of(new)
    for client in (backend.client, backend.again()):
        assert client.get_key(old, CONTEXT) == old_key and client.get_key(new, CONTEXT) == new_key


@pytest.mark.nightly
def test_rewrapped_keys_are_the_same_and_name_the_newest_version(backend):
    other = KeyContext("test", OTHER_TABLE)
    old = [backend.client.create_key(backend.lake, length, CONTEXT) for length in (16, 24, 32)]
    elsewhere = backend.client.create_key(backend.lake, 32, other)
    unrotated = backend.client.create_key(backend.pii, 32, CONTEXT)
    backend.rotate(backend.lake)
    items = [(made.wrapped, CONTEXT) for made in (*old, unrotated)] + [(elsewhere.wrapped, other)]
    moved = backend.client.rewrap_keys(items)
    newest = backend.version_of(backend.client.create_key(backend.lake, 32, CONTEXT).wrapped)
    assert [backend.version_of(moved[n]) == newest for n in (0, 1, 2, 4)] == [True] * 4
    for client in (backend.client, backend.again()):
        opened = [
            client.get_key(wrapped, context) for wrapped, (_, context) in zip(moved, items, strict=True)
        ]
        assert opened == [made.key for made in (*old, unrotated, elsewhere)]
    with pytest.raises(DecryptionRefused):
        backend.client.get_key(moved[0], other)
    assert backend.client.get_key(old[0].wrapped, CONTEXT) == old[0].key


def test_rewrapping_again_and_nothing_at_all_is_harmless(backend):
    wrapped, key = backend.client.create_key(backend.lake, 32, CONTEXT)
    for _ in range(3):
        (wrapped,) = backend.client.rewrap_keys([(wrapped, CONTEXT)])
    assert backend.client.get_key(wrapped, CONTEXT) == key
    assert backend.client.rewrap_keys([]) == []


@pytest.mark.nightly
def test_rewrap_refuses_another_context_and_changed_bytes_as_a_whole(backend):
    good, _ = backend.client.create_key(backend.lake, 32, CONTEXT)
    for bad in (
        (good, KeyContext("prod", OTHER_TABLE)),
        (good, KeyContext("test", TABLE)),
        (good[:-1], CONTEXT),
        (good[:-1] + bytes([good[-1] ^ 1]), CONTEXT),
    ):
        with pytest.raises(DecryptionRefused):
            backend.client.rewrap_keys([(good, CONTEXT), bad])


def test_rewrap_wants_a_usable_master_key_and_a_kms(backend):
    wrapped, _ = backend.client.create_key(backend.lake, 32, CONTEXT)
    backend.disable(backend.lake)
    with pytest.raises(KeyNotUsable):
        backend.client.rewrap_keys([(wrapped, CONTEXT)])
    backend.enable(backend.lake)
    assert len(backend.client.rewrap_keys([(wrapped, CONTEXT)])) == 1
    backend.stop()
    with pytest.raises(KmsUnavailable):
        backend.client.rewrap_keys([(wrapped, CONTEXT)])


def test_unknown_master_key_is_not_usable(backend):
    known = backend.lake
    for name in ("absent", "", known.upper(), f"{known} ", f"{known}\n", f"../{known}", "läke", "l" * 256):
        with pytest.raises(KeyNotUsable):
            backend.client.create_key(name, 32, CONTEXT)
    for name in (
        f"{known}?x=1",
        f"{known}#x",
        f"{known}/../{backend.pii}",
        f"{known}%2f",
        "http://127.0.0.1:1/x",
    ):
        with pytest.raises(KeyNotUsable):
            backend.client.create_key(name, 32, CONTEXT)


@pytest.mark.nightly
def test_disabled_master_key_neither_creates_nor_opens_until_enabled(backend):
    wrapped, key = backend.client.create_key(backend.lake, 32, CONTEXT)
    other, other_key = backend.client.create_key(backend.pii, 32, CONTEXT)
    backend.disable(backend.lake)
    for client in (backend.client, backend.again()):
        with pytest.raises(KeyNotUsable):
            client.get_key(wrapped, CONTEXT)
        with pytest.raises(KeyNotUsable):
            client.create_key(backend.lake, 32, CONTEXT)
        assert client.get_key(other, CONTEXT) == other_key
    backend.enable(backend.lake)
    assert backend.client.get_key(wrapped, CONTEXT) == key


def test_absent_kms_is_unavailable(backend):
    wrapped, _ = backend.client.create_key(backend.lake, 32, CONTEXT)
    backend.stop()
    with pytest.raises(KmsUnavailable):
        backend.client.get_key(wrapped, CONTEXT)
    with pytest.raises(KmsUnavailable):
        backend.client.create_key(backend.lake, 32, CONTEXT)


@pytest.mark.nightly
@pytest.mark.rows_by_day(3)
def test_many_threads_share_a_client(backend):
    wrapped, key = backend.client.create_key(backend.lake, 32, CONTEXT)

    def everything(number: int) -> bool:
        context = KeyContext("prod", UUID(int=number))
        made = backend.client.create_key(backend.lake, 32, context)
        moved = backend.client.rewrap_keys([(made.wrapped, context), (wrapped, CONTEXT)])
        opened = [backend.client.get_key(moved[0], context), backend.client.get_key(moved[1], CONTEXT)]
        return opened == [made.key, key]

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(everything, range(10, 26)))


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


def test_errors_and_repr_carry_no_key(backend):
    wrapped, key = backend.client.create_key(backend.lake, 32, CONTEXT)
    moved = backend.client.rewrap_keys([(wrapped, CONTEXT)])
    with pytest.raises(DecryptionRefused) as context:
        backend.client.get_key(wrapped, KeyContext("test", TABLE))
    backend.disable(backend.lake)
    with pytest.raises(KeyNotUsable) as disabled:
        backend.client.get_key(wrapped, CONTEXT)
    backend.stop()
    with pytest.raises(KmsUnavailable) as stopped:
        backend.client.get_key(wrapped, CONTEXT)
    said = [repr(backend.client), repr(CreatedKey(wrapped, key)), repr(moved)]
    for caught in (context, disabled, stopped):
        said += shown(caught.value)
    forms = {key.reveal().hex(), repr(key.reveal()), base64.b64encode(key.reveal()).decode()}
    assert not [form for form in forms for text in said if form in text]


def shown(error: BaseException | None) -> list[str]:
    """An error and all that it was raised from, as any log would show them."""
    texts = []
    while error is not None:
        texts += [str(error), repr(error), repr(getattr(error, "args", ())), repr(vars(error))]
        error = error.__cause__ or error.__context__
    return texts


def test_identifier_is_a_short_name(backend):
    assert backend.client.identifier.isidentifier()
