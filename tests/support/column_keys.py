"""A table of persons some of whose columns have keys of their own, and what tests look at there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import TableUpdate
from pyiceberg.types import LongType, NestedField, StringType, StructType

from catalog.envelope.key_metadata import KeyMetadata
from catalog.iceberg.manifests import ManifestContent
from catalog.reading.loading import LoadedTable
from catalog.tables.alter import Change
from policy.encryption.epochs import FileKey
from policy.errors import LakewardenError
from tests.support.lake import ALICE, Lake, open_lake
from tests.support.tables import make, name_of

COLUMNS = "encryption.columns"
PERSON = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "ssn", StringType()),
    NestedField(3, "email", StringType()),
    NestedField(4, "home", StructType(NestedField(5, "street", StringType()))),
)


@contextmanager
def open_lake_with_keys(directory: Path) -> Iterator[Lake]:
    """A lake whose columns may be put under the master keys `pii` and `hr`."""
    with open_lake(directory) as lake:
        lake.catalog().create_namespace("db")
        for key in ("pii", "hr"):
            lake.kms.create_master_key(key)
        yield lake


def make_persons(lake: Lake) -> Table:
    """A table with two groups of columns."""
    return make(lake, schema=PERSON, properties={COLUMNS: "pii:ssn,home;hr:email"})


def alter(lake: Lake, table: Table, *changes: Change, user: str = ALICE) -> LoadedTable:
    return lake.services.alterer.alter(lake.caller(user), name_of(table), changes)


def loaded(lake: Lake, table: Table) -> LoadedTable:
    return lake.services.loader.load(name_of(table))


def groups(lake: Lake, table: Table) -> dict[str, tuple[int, ...]]:
    """The columns of the current epoch, by master key."""
    epoch = loaded(lake, table).governed.epochs.current
    return {group.key_id: group.field_ids for group in epoch.columns}


def columns(lake: Lake, table: Table) -> str:
    """The property as it is in force."""
    return loaded(lake, table).governed.to_properties()[COLUMNS]


def keys_of(lake: Lake, table: Table) -> list[list[FileKey]]:
    """What the key metadata of each live file states."""
    known = loaded(lake, table)
    snapshot = known.metadata.current_snapshot()
    assert snapshot is not None
    reader = lake.services.reader
    found = []
    for opened in reader.open(known, reader.manifests(known, snapshot)):
        assert opened.listed.content is ManifestContent.DATA
        for metadata in opened.entries["key_metadata"].to_pylist():
            found.append(list(KeyMetadata.parse(metadata).file_keys().keys))
    return found


def named(field: NestedField, field_id: int, name: str) -> NestedField:
    return field.model_copy(update={"name": name}) if field.field_id == field_id else field


def commit(lake: Lake, table: Table, *updates: TableUpdate, user: str = ALICE) -> LoadedTable:
    return lake.services.committer.commit(lake.caller(user), name_of(table), (), updates)


def refused(action: Callable[[], Any], error: type[LakewardenError], rule: str) -> None:
    with pytest.raises(error) as raised:
        action()
    assert raised.value.rule == rule, raised.value
