"""Check values of keys that were made before there were any: recorded once the key has proved itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import create_engine, update

from catalog.base.identifiers import TableName
from catalog.db.engine import write
from catalog.db.readers import set_readers
from catalog.db.schema import lw_pek
from catalog.envelope.peks import PekCache, PekRecord
from catalog.envelope.scan_keys import FormKeys
from catalog.keyring.keyring import Keyring
from catalog.keyring.kms_keys import KmsKeys
from catalog.kms.calls import CountedKms
from catalog.kms.clients import KmsClients
from catalog.state import pek_records as key_records
from policy.errors import DecryptionRefused, KmsUnavailable
from tests.support.lake import Lake
from tests.support.table_keys import encrypted, load, peks, released
from tests.support.tables import append_files


def aged(lake: Lake, record: PekRecord, **stored: object) -> None:
    """The record is one of old, without a check value, and perhaps otherwise changed."""
    with write(lake.services.engine) as connection:
        old = update(lw_pek).where(lw_pek.c.id == str(record.id))
        connection.execute(old.values(key_check=None, **stored))
    lake.reopen()


def old_table(lake: Lake) -> tuple[TableName, PekRecord]:
    """A table with a file, and its key as it was before it lost its check value."""
    name = encrypted(lake, files=1)
    (record,) = peks(lake, name)
    aged(lake, record)
    return name, record


def test_a_key_of_old_gets_its_check_value_once_it_has_opened_a_data_key(lake: Lake) -> None:
    name, record = old_table(lake)
    append_files(lake, name)
    assert peks(lake, name) == [replace(record, check=None)]
    keys = released(lake, name)
    assert peks(lake, name) == [record]
    assert released(lake, name) == keys


def test_what_opens_no_data_key_is_not_taken_for_the_key(lake: Lake) -> None:
    """Another key of the same table in its place: it unwraps, and would be held to be right ever after."""
    name, record = old_table(lake)
    lake.kms.create_master_key("other")
    lake.services.key_life.create(lake.caller("alice"), name, "other")
    (other,) = [each for each in peks(lake, name) if each.master_key_id == "other"]
    aged(lake, record, wrapped=other.wrapped)
    with pytest.raises(DecryptionRefused):
        released(lake, name)
    aged(lake, record, wrapped=record.wrapped)
    assert len(released(lake, name)) == 1
    assert record in peks(lake, name)
    with write(lake.services.engine) as connection:
        changed = update(lw_pek).where(lw_pek.c.id == str(record.id)).values(wrapped=other.wrapped)
        connection.execute(changed)
    lake.reopen()
    with pytest.raises(KmsUnavailable) as refused:
        released(lake, name)
    assert refused.value.rule == "key-check"


def test_a_destroyed_key_gets_none(lake: Lake) -> None:
    name = encrypted(lake, files=1)
    (record,) = peks(lake, name)
    aged(lake, record, state="destroyed", wrapped=b"")
    with write(lake.services.engine) as connection:
        key_records.add_check(connection, record.ref, b"c" * 16)
    assert peks(lake, name)[0].check is None


def test_who_may_only_read_the_database_scans_all_the_same(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    name, record = old_table(lake)
    table = load(lake, name)
    reader = lake.services.reader
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    (opened,) = reader.open(table, reader.manifests(table, snapshot))
    rows = opened.entries.select(["content", "file_path", "key_metadata", "file_sequence_number"])
    database = lake.services.engine.url.database
    engine = create_engine(f"sqlite:///file:{database}?mode=ro&uri=true")
    set_readers(engine, engine)
    cache = PekCache({lake.kms.identifier: lake.kms}, catalog=lake.settings.catalog.name)
    clients = KmsClients(CountedKms(lake.kms))
    keyring = Keyring(engine, KmsKeys(engine, lake.settings.catalog.name, clients), cache)
    judged = keyring.checked_files(table.record, table.governed, rows)
    keys = keyring.scan_keys(table.record, judged.paths, [FormKeys(form, (0,)) for form in judged.forms])
    engine.dispose()
    assert keys is not None and len(keys.wrapped.wrapped) == 1
    assert "could not be stored: The catalog's database is read-only." in caplog.text
    assert peks(lake, name) == [replace(record, check=None)]
