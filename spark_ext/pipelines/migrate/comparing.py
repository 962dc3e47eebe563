"""Compares the rows of a table before and after a migration, exactly, beside writers.

Snapshots never change. So the rows of each branch are read at two fixed snapshots: the one that was its head
when the migration began, and one when no file is left to be rewritten. Between the two lie snapshots of
writers, whose changes the metadata table `changes` has, and snapshots that replace files, which it leaves
out. If these changed no row, then

    checksum at the beginning + inserted rows - deleted rows = checksum at the end

Checksums are sums over rows, so the equation holds for any multiset of rows, however many commits of writers
came in whatever order. It takes two scans of the table, and one of what writers wrote.

Columns are compared by field id. Those that were added, dropped or changed in their fields meanwhile are not
compared, and are named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from pyiceberg.table.metadata import TableMetadata
from pyspark.sql import DataFrame

from catalog.base.errors import ConcurrentModification
from catalog.base.identifiers import TableName
from spark_ext.pipelines.items import Finding, Rule, Severity
from spark_ext.pipelines.lake import Lake
from spark_ext.pipelines.migrate.checksum import Checksum, balance, checksum, counted_types
from spark_ext.pipelines.migrate.lineage import Line, branches, line_of

ROWS_DIFFER: Final = Rule(
    "rows-differ",
    Severity.ERROR,
    "Rows of a branch differ after files were rewritten.",
    "Expire no snapshots of the table. Compare the rows of the two snapshots. If rows were lost, go back to "
    "the first one with rollback_to_snapshot.",
)
ROWS_NOT_COMPARED: Final = Rule(
    "rows-not-compared",
    Severity.WARNING,
    "Rows of a branch cannot be compared, because snapshots since the beginning have expired.",
    "Expire no snapshots of the table while it is migrated.",
)
COLUMNS_NOT_COMPARED: Final = Rule(
    "columns-not-compared",
    Severity.WARNING,
    "Columns changed during the migration, so their values were not compared.",
    "Compare their values at the two snapshots.",
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The rows of a branch when the migration began.

    Attributes:
        snapshot: its head.
        columns: the types by which columns were counted, by field id.
        checksum: of all of its rows and columns.
    """

    snapshot: int
    columns: Mapping[int, str]
    checksum: Checksum

    def to_json(self) -> dict[str, Any]:
        """Encode for `Steps`."""
        columns = {str(each): kind for each, kind in self.columns.items()}
        return {"snapshot": self.snapshot, "columns": columns, **self.checksum.to_json()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Decode what `to_json` encoded."""
        columns = {int(each): kind for each, kind in document["columns"].items()}
        return cls(document["snapshot"], columns, Checksum.from_json(document))


@dataclass(slots=True)
class Compared:
    """The result of a comparison.

    Attributes:
        rows: rows that were compared, on all branches.
        findings: what is wrong, or could not be compared.
    """

    rows: int = 0
    findings: list[Finding] = field(default_factory=list)

    def broke(self, rule: Rule) -> bool:
        """Return whether there is a finding of a rule."""
        return any(each.rule == rule.id for each in self.findings)


def recorded(lake: Lake, table: TableName, metadata: TableMetadata) -> dict[str, Recorded]:
    """Read the rows of all branches as they are now.

    Raises:
        LakewardenError, PySparkException: they cannot be read.
    """
    heads = branches(metadata)
    states = {head: _read(lake, table, metadata, head) for head in set(heads.values())}
    return {name: states[head] for name, head in heads.items()}


def _read(lake: Lake, table: TableName, metadata: TableMetadata, snapshot: int) -> Recorded:
    rows = _Rows.at(lake, table, metadata, snapshot)
    return Recorded(snapshot, rows.columns, checksum(rows.frame, rows.places(sorted(rows.columns))))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows, and the type of each column by field id, in the order of the DataFrame."""

    frame: DataFrame
    columns: Mapping[int, str]

    @classmethod
    def at(cls, lake: Lake, table: TableName, metadata: TableMetadata, snapshot: int) -> Self:
        """Read the rows of a snapshot."""
        frame = lake.spark.read.option("snapshot-id", str(snapshot)).table(lake.name(table))
        found = metadata.snapshot_by_id(snapshot)
        schemas = {each.schema_id: each for each in metadata.schemas}
        schema_id = None if found is None else found.schema_id
        schema = metadata.schema() if schema_id is None else schemas[schema_id]
        ids = [each.field_id for each in schema.fields]
        return cls(frame, dict(zip(ids, counted_types(frame.schema), strict=True)))

    def places(self, columns: Sequence[int]) -> list[int]:
        """Return the positions of columns."""
        order = list(self.columns)
        return [order.index(each) for each in columns]


def compare(
    lake: Lake,
    table: TableName,
    metadata: TableMetadata,
    known: frozenset[int],
    before: Mapping[str, Recorded],
) -> Compared:
    """Compare the rows of all branches with those of before.

    Args:
        lake: the lake.
        table: the table.
        metadata: its metadata now.
        known: the snapshots that it had when the migration began.
        before: the rows of its branches then.

    Raises:
        LakewardenError, PySparkException: rows cannot be read.
    """
    comparison = _Comparison(lake, table, metadata, {each.snapshot: each for each in before.values()})
    lines = (line_of(metadata, branch, known) for branch in branches(metadata))
    return comparison.of(line for line in lines if line.replaces or line.broken)


@dataclass(slots=True)
class _Comparison:
    lake: Lake
    table: TableName
    metadata: TableMetadata
    before: Mapping[int, Recorded]
    done: Compared = field(default_factory=Compared)

    def of(self, lines: Iterator[Line]) -> Compared:
        for line in lines:
            compared = line.replaces and line.base is not None and self._compare(line, line.base)
            if line.broken or not compared:
                self._found(ROWS_NOT_COMPARED, line)
        return self.done

    def _compare(self, line: Line, base: int) -> bool:
        """Compare a branch; return False if that takes a snapshot that has expired."""
        retained = self.metadata.snapshot_by_id(base) is not None
        if not retained and (base not in self.before or line.writes):
            return False
        before = self.before.get(base)
        columns = before.columns if before is not None else self._at(base).columns
        after = self._at(line.head)
        changes = self._changes(base, line.head) if line.writes else None
        readers = [after] if changes is None else [after, changes]
        common = sorted(
            each
            for each, kind in columns.items()
            if all(other.columns.get(each) == kind for other in readers)
        )
        if before is not None and len(common) == len(columns):
            expected = before.checksum
        elif retained:
            start = self._at(base)
            expected = checksum(start.frame, start.places(common))
        else:
            return False
        if changes is not None:
            kind = changes.frame.columns.index("_change_type")
            expected = expected + balance(changes.frame, changes.places(common), kind)
        found = checksum(after.frame, after.places(common))
        self.done.rows += found.rows
        if found != expected:
            text = f"Snapshot {line.head} has {found}, but {expected} follow from snapshot {base}."
            self._found(ROWS_DIFFER, line, text)
        self._tell_others(line, {*columns, *after.columns}.difference(common))
        return True

    def _at(self, snapshot: int) -> _Rows:
        return _Rows.at(self.lake, self.table, self.metadata, snapshot)

    def _changes(self, start: int, end: int) -> _Rows:
        """Read what writers changed; its first columns are those of the current schema.

        Raises:
            ConcurrentModification: the schema has changed, so that the columns are those of another one.
        """
        reader = self.lake.spark.read.option("start-snapshot-id", str(start))
        frame = reader.option("end-snapshot-id", str(end)).table(f"{self.lake.name(self.table)}.changes")
        if self.lake.metadata(self.table).current_schema_id != self.metadata.current_schema_id:
            raise ConcurrentModification(
                "The columns of the table were changed while its rows were compared.",
                table=str(self.table),
                rule="schema-changed",
                hint="Run the migration again.",
            )
        ids = [each.field_id for each in self.metadata.schema().fields]
        return _Rows(frame, dict(zip(ids, counted_types(frame.schema), strict=False)))

    def _tell_others(self, line: Line, columns: set[int]) -> None:
        names = {each.field_id: each.name for schema in self.metadata.schemas for each in schema.fields}
        told = [names[each] for each in sorted(columns) if each in names]
        if told:
            shown = ", ".join(map(repr, told[:10]))
            text = f"Columns {shown} changed during the migration, so their values were not compared."
            self._found(COLUMNS_NOT_COMPARED, line, text)

    def _found(self, rule: Rule, line: Line, message: str | None = None) -> None:
        finding = rule.found(str(self.table), message, snapshot=line.head, ref=line.branch)
        self.done.findings.append(finding)
