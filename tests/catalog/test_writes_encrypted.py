"""Write sessions: the keys of the files that are committed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table.update import SetPropertiesUpdate

from catalog.envelope.data_keys import new_dek
from catalog.envelope.file_ids import FileIdentity
from catalog.envelope.transport import KeyLabel, Purpose, TransportKey, wrap_for_write
from catalog.envelope.write_keys import WrittenKey
from policy.errors import (
    DecryptionRefused,
    EncryptionPolicyViolation,
    KeyNotUsable,
)
from tests.support.lake import ALICE, Lake
from tests.support.tables import ENCRYPTED, LABEL, Engine, append_files, make, name_of
from tests.support.write_sessions import now, refused


def test_an_encrypted_file_needs_keys_and_a_plaintext_file_none(lake: Lake) -> None:
    secret, plain = make(lake, properties=ENCRYPTED), make(lake)
    engine = Engine.begin(lake, name_of(secret))
    error = refused(lake, secret, EncryptionPolicyViolation, lambda: engine.append(engine.file(keys=())))
    assert error.rule == "encryption-required"
    other = Engine.begin(lake, name_of(plain))
    assert other.session.transport is None
    key = WrittenKey(LABEL, b"x" * 60)
    error = refused(lake, plain, EncryptionPolicyViolation, lambda: other.append(other.file(keys=(key,))))
    assert error.rule == "plaintext-required"


@pytest.mark.nightly
@pytest.mark.parametrize(("asked", "length"), [("32", 16), ("32", 24), ("16", 32)])
def test_data_keys_have_the_length_that_the_table_asks_for(lake: Lake, asked: str, length: int) -> None:
    table = make(lake, properties={"encryption.data-key-length": asked})
    engine = Engine.begin(lake, name_of(table))
    path = engine.path()
    wrong = engine.file(path, keys=(engine.key(path, new_dek(length)),))
    error = refused(lake, table, EncryptionPolicyViolation, lambda: engine.append(wrong))
    assert error.rule == "data-key-length"
    engine.append(engine.file(path, keys=(engine.key(path, new_dek(int(asked))),)))


def test_keys_are_bound_to_file_write_and_master_key(lake: Lake) -> None:
    table = make(lake, properties=ENCRYPTED)
    engine, other = Engine.begin(lake, name_of(table)), Engine.begin(lake, name_of(table))
    path = engine.path()
    identity = FileIdentity.of(table.metadata.table_uuid, path)
    made_up = TransportKey.new(Purpose.WRITE)
    foreign = KeyLabel("another-key")
    transport = engine.session.transport
    assert transport is not None
    for key in (
        engine.key(engine.path()),
        other.key(path),
        WrittenKey(LABEL, wrap_for_write(made_up, new_dek(32), identity, LABEL)),
        WrittenKey(foreign, wrap_for_write(transport, new_dek(32), identity, foreign)),
        WrittenKey(LABEL, b""),
    ):
        refused(lake, table, DecryptionRefused, lambda key=key: engine.append(engine.file(path, keys=(key,))))
    refused(
        lake,
        table,
        DecryptionRefused,
        lambda: engine.append(engine.file(f"{path}.no-id.parquet", keys=(engine.key(path),))),
    )


def test_statistics_of_an_encrypted_table_are_not_written(lake: Lake) -> None:
    table = make(lake, properties=ENCRYPTED)
    counts = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
    bounds = {"lower_bounds": {1: b"\0" * 8}, "upper_bounds": {1: b"\1" * 8}}
    append_files(lake, name_of(table), **bounds, **{name: {1: 3} for name in counts})
    loaded = now(lake, table)
    (manifest,) = loaded.current_snapshot().manifests(loaded.io)  # type: ignore[union-attr]
    (entry,) = manifest.fetch_manifest_entry(loaded.io)
    assert not any(getattr(entry.data_file, name) for name in (*counts, *bounds))
    assert entry.data_file.key_metadata is not None


def test_the_summary_names_the_keys_in_use(lake: Lake) -> None:
    table = make(lake, properties=ENCRYPTED)
    append_files(lake, name_of(table))
    summary = now(lake, table).current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    assert summary["encryption.pek-id"] == table.properties["encryption.pek-id"]


def test_a_table_encrypted_meanwhile_takes_no_plaintext_file(lake: Lake) -> None:
    table = make(lake)
    engine = Engine.begin(lake, name_of(table))
    encrypt = SetPropertiesUpdate(updates=ENCRYPTED)
    lake.services.committer.commit(lake.caller(ALICE), name_of(table), [], [encrypt])
    refused(lake, table, KeyNotUsable, lambda: engine.append(engine.file()))
    again = Engine.begin(lake, name_of(table))
    again.append(again.file())


def test_a_table_decrypted_meanwhile_takes_no_encrypted_file(lake: Lake) -> None:
    table = make(lake, properties=ENCRYPTED)
    engine = Engine.begin(lake, name_of(table))
    plain = SetPropertiesUpdate(updates={"encryption.mechanism": "plaintext"})
    lake.services.committer.commit(lake.caller(ALICE), name_of(table), [], [plain])
    refused(lake, table, EncryptionPolicyViolation, lambda: engine.append(engine.file()))


def test_transport_keys_are_never_stored_in_plaintext(lake: Lake) -> None:
    table = make(lake, properties=ENCRYPTED)
    engine = Engine.begin(lake, name_of(table))
    assert engine.session.transport is not None
    secret = engine.session.transport.key.reveal()
    stored: Iterator[Path] = (path for path in lake.root.rglob("*") if path.is_file())
    assert not any(secret in path.read_bytes() for path in stored)
    assert secret.hex() not in repr(engine.session)
