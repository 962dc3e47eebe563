"""Tables for tests: names that were never used, files as an engine would name them, records of a request."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType
from sqlalchemy import select, update

from catalog.audit.records import from_columns
from catalog.audit.trail import AuditRecord
from catalog.authorization.authorizer import Caller
from catalog.base.identifiers import TableName, table_name
from catalog.crypto.secret import SecretBytes
from catalog.db.engine import read, write
from catalog.db.schema import lw_audit, lw_write
from catalog.envelope.data_keys import new_dek
from catalog.envelope.file_ids import FileIdentity, new_file_name
from catalog.envelope.transport import KeyLabel, wrap_for_write
from catalog.envelope.write_keys import WrittenKey
from catalog.tables.drafts import NewTable
from catalog.writes.new_files import FileCommit, NewFile
from catalog.writes.sessions import WriteSession
from policy.location.location import Location
from tests.support.lake import ALICE, MASTER_KEY, Lake

#: By now a write has expired, and one that is being committed has had its time, too.
LONG_AGO_MS = 1

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
ENCRYPTED = {"encryption.mechanism": "envelope"}
LABEL = KeyLabel(MASTER_KEY)

_numbers = itertools.count(1)


def named(name: str, database: str = "db") -> TableName:
    """The name of a table."""
    return table_name([database], name)


def fresh(database: str = "db", stem: str = "t") -> TableName:
    """A name that no table has had."""
    return named(f"{stem}{next(_numbers)}", database)


def make(lake: Lake, name: TableName | None = None, schema: Schema = SCHEMA, **options: Any) -> Table:
    """A new table of Alice's; `options` are pyiceberg's."""
    return lake.catalog().create_table(str(name or fresh()), schema, **options)


def name_of(table: Table) -> TableName:
    """The catalog's name for a table of pyiceberg's."""
    *namespace, name = table.name()
    return table_name(namespace, name)


def rows(first: int, count: int = 2) -> pa.Table:
    """Rows of `SCHEMA`."""
    numbers = list(range(first, first + count))
    return pa.table({"id": pa.array(numbers, pa.int64()), "name": [f"n{number}" for number in numbers]})


def records(lake: Lake, caller: Caller) -> list[AuditRecord]:
    """What the audit trail holds of one request, oldest first."""
    column = lw_audit.c
    mine = select(lw_audit).where(column.request_id == caller.request_id)
    with read(lake.services.engine) as connection:
        found = connection.execute(mine.order_by(column.writer, column.sequence)).mappings().all()
    return [from_columns(dict(each)) for each in found]


def footer_of(data: bytes, more: int = 0) -> dict[str, Any]:
    """What a commit says of the footer of a Parquet file, given its bytes.

    Args:
        data: of the whole file.
        more: so many bytes that stand before the footer are taken for a part of it; fewer than none: are not.
    """
    footer = data[-int.from_bytes(data[-8:-4], "little") - 8 - more :]
    return {"footer_bytes": len(footer), "footer_sha256": hashlib.sha256(footer).digest()}


def lay_down(file: NewFile, prefix: Location) -> None:
    """Store a file of the size that a commit says, as an engine would have, below a local prefix."""
    location = Location.parse(file.path)
    if location.scheme == "file" and prefix.contains(location):
        path = Path("/", *location.segments)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            with path.open("wb") as stored:
                stored.truncate(max(file.file_size_in_bytes, 0))


@dataclass
class Engine:
    """An engine's side of one write."""

    lake: Lake
    session: WriteSession

    @classmethod
    def begin(cls, lake: Lake, name: TableName, user: str = ALICE) -> Engine:
        """Begin a write."""
        return cls(lake, lake.services.writes.begin(lake.caller(user), name))

    @classmethod
    def stage(cls, lake: Lake, name: TableName, user: str = ALICE, **options: Any) -> Engine:
        """Begin a write that creates its table; `options` are of `NewTable`."""
        new = NewTable(name, **({"schema": SCHEMA} | options))
        return cls(lake, lake.services.writes.begin_staged(lake.caller(user), new))

    def path(self) -> str:
        """A path for a new file."""
        return self.session.prefix.child(new_file_name("part-0", "parquet")).canonical

    def key(self, path: str, dek: SecretBytes | None = None, label: KeyLabel = LABEL) -> WrittenKey:
        """A data key for the file at `path`, as an executor hands it in."""
        assert self.session.transport is not None
        identity = FileIdentity.of(self.session.table.record.table_uuid, path)
        return WrittenKey(label, wrap_for_write(self.session.transport, dek or new_dek(32), identity, label))

    def labels(self) -> list[KeyLabel]:
        """The keys that a file of the table has, the footer's first."""
        epoch = self.session.table.governed.epochs.current
        footer = KeyLabel(epoch.spec.key_ids()[0])
        return [footer, *(KeyLabel(group.key_id, group.field_ids) for group in epoch.columns)]

    def file(self, path: str | None = None, **given: Any) -> NewFile:
        """A new file, with its keys if the table is encrypted."""
        where = path or self.path()
        labels = self.labels() if self.session.transport else []
        keys = tuple(self.key(where, label=label) for label in labels)
        known = {"file_format": "parquet", "record_count": 10, "file_size_in_bytes": 1000, "keys": keys}
        said: dict[str, Any] = known | given
        if said["file_format"] == "parquet" and any(key.label.field_ids for key in said["keys"]):
            said = {"footer_bytes": 12, "footer_sha256": bytes(32)} | said
        new = NewFile(where, **said)
        lay_down(new, self.session.prefix)
        return new

    def expire(self, at_ms: int = LONG_AGO_MS) -> None:
        """Let the write's time be over."""
        with write(self.lake.services.engine) as connection:
            mine = lw_write.c.id == self.session.id
            connection.execute(update(lw_write).where(mine).values(expires_ms=at_ms))

    def commit(self, files: FileCommit, user: str = ALICE) -> Any:
        """Commit the write; rows that are replaced were read by the schema that it began with."""
        if files.operation == "replace" and files.schema_id is None:
            files = replace(files, schema_id=self.session.table.metadata.current_schema_id)
        return self.lake.services.writes.commit(self.lake.caller(user), self.session.id, files)

    def append(self, *files: NewFile) -> Any:
        """Commit the write as an append."""
        return self.commit(FileCommit("append", files))


def expire_open_writes(lake: Lake) -> None:
    """Let the time of every open write be over, of all users."""
    with write(lake.services.engine) as connection:
        connection.execute(update(lw_write).where(lw_write.c.state == "open").values(expires_ms=LONG_AGO_MS))


def append_files(lake: Lake, name: TableName, count: int = 1, **given: Any) -> list[str]:
    """Append files in one write; their paths."""
    engine = Engine.begin(lake, name)
    files = [engine.file(**given) for _ in range(count)]
    written_by = engine.session.table.metadata.current_schema_id
    engine.commit(FileCommit("append", tuple(files), schema_id=written_by))
    return [file.path for file in files]


def paths_in(manifest_rows: Sequence[dict[str, Any]]) -> set[str]:
    """The paths of a plan's rows."""
    return {row["file_path"] for row in manifest_rows}


def ten_ids(first: int) -> dict[str, dict[int, int] | dict[int, bytes]]:
    """Statistics of a file with ten ids, from `first` on, and a name of 16 digits for each."""
    low, high = (number.to_bytes(8, "little") for number in (first, first + 9))
    return {
        "value_counts": {1: 10, 2: 10},
        "null_value_counts": {1: 0, 2: 0},
        "lower_bounds": {1: low, 2: b"%016d" % first},
        "upper_bounds": {1: high, 2: b"%016d" % (first + 9)},
    }
