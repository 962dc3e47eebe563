"""A table of which a test knows the rows of every file, and commits to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from catalog.writes.new_files import FileCommit, NewFile
from tests.support.lake import Lake
from tests.support.table_keys import load
from tests.support.tables import Engine, make, name_of

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "part", StringType()))
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))


@dataclass
class Ledger:
    """A table with files of known ids, and its writes."""

    lake: Lake
    table: Table

    @classmethod
    def of(cls, lake: Lake, **options: Any) -> Ledger:
        return cls(lake, make(lake, **({"schema": SCHEMA, "partition_spec": BY_PART} | options)))

    def engine(self) -> Engine:
        return Engine.begin(self.lake, name_of(self.table))

    def file(
        self, engine: Engine, low: int, high: int, part: str | None = "a", rows: int | None = None
    ) -> NewFile:
        """A data file with ids from `low` to `high`, each one by default."""
        rows = high - low + 1 if rows is None else rows
        partitioned = bool(load(self.lake, name_of(self.table)).metadata.spec().fields)
        return engine.file(
            partition={"part": part} if partitioned else {},
            record_count=rows,
            value_counts={1: rows},
            null_value_counts={1: 0},
            lower_bounds={1: to_bytes(LongType(), low)},
            upper_bounds={1: to_bytes(LongType(), high)},
        )

    def deletes(self, engine: Engine, *paths: str, part: str = "a", **given: Any) -> NewFile:
        """A position delete file for some data files."""
        where = engine.path()
        keys = (engine.key(where),) if engine.session.transport else ()
        known = {"partition": {"part": part}, "keys": keys, "referenced_data_files": paths, "content": 1}
        return engine.file(where, **(known | {"record_count": len(paths)} | given))

    def append(self, low: int, high: int, part: str | None = "a", branch: str = "main") -> str:
        engine = self.engine()
        file = self.file(engine, low, high, part)
        engine.commit(FileCommit("append", (file,), branch=branch))
        return file.path

    def commit(
        self, operation: Any, added: Sequence[NewFile] = (), engine: Engine | None = None, **given: Any
    ) -> None:
        (engine or self.engine()).commit(FileCommit(operation, tuple(added), **given))

    def head(self, branch: str = "main") -> Snapshot:
        head = load(self.lake, name_of(self.table)).metadata.snapshot_by_name(branch)
        assert head is not None
        return head

    def summary(self, *names: str, branch: str = "main") -> dict[str, str | None]:
        summary = self.head(branch).summary
        assert summary is not None
        said = {"operation": summary.operation.value, **summary.additional_properties}
        return {name: said.get(name) for name in ("operation", *names)}

    def paths(self, branch: str = "main", content: int = 0) -> set[str]:
        """The live files, as the manifests list them."""
        loaded = load(self.lake, name_of(self.table))
        reader = self.lake.services.reader
        found: set[str] = set()
        for each in reader.open(loaded, reader.manifests(loaded, self.head(branch))):
            rows = each.entries.select(["status", "content", "file_path"]).to_pylist()
            found |= {row["file_path"] for row in rows if row["status"] != 2 and row["content"] == content}
        return found
