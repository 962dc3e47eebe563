"""Counts and deletes the rows of a table that have one of the identifiers in some columns.

Identifiers are a temporary view of the session, and conditions compare columns with it. So they stand in no
SQL text, plan or event log: Spark shows a local relation by its columns alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from threading import Lock
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IcebergType, NestedField, StructType

from catalog.base.identifiers import TableName
from policy.errors import RequestInvalid
from spark_ext.pipelines.erase.identifiers import Identifiers
from spark_ext.pipelines.lake import Lake, quoted

#: Snapshots that are searched by one statement.
_AT_ONCE: Final = 16


class Views:
    """The temporary views of identifiers, one for each type of columns.

    Args:
        lake: the lake.
        identifiers: the identifiers.
    """

    def __init__(self, lake: Lake, identifiers: Identifiers) -> None:
        self._spark = lake.spark
        self._identifiers = identifiers
        self._names: dict[str, str | None] = {}
        self._lock = Lock()

    def of(self, kind: IcebergType) -> str | None:
        """Return the view of the identifiers that can be values of a type; None if there are none."""
        with self._lock:
            if str(kind) not in self._names:
                self._names[str(kind)] = self._create(kind)
            return self._names[str(kind)]

    def _create(self, kind: IcebergType) -> str | None:
        values = self._identifiers.values(kind)
        if values is None:
            return None
        name = f"lakewarden_erase_{uuid4().hex}"
        self._spark.createDataFrame(pa.table({"id": values})).createOrReplaceTempView(name)
        return name

    def drop(self) -> None:
        """Drop the views."""
        for name in filter(None, self._names.values()):
            self._spark.catalog.dropTempView(name)
        self._names.clear()


class Search:
    """Searches a table.

    Args:
        lake: the lake.
        table: the table.
        views: the identifiers.
        metadata: the table's.
        columns: dotted names of columns of the current schema.

    Raises:
        RequestInvalid: a column does not exist, is inside of a list or map, or has a type that no identifier
            fits.
    """

    def __init__(
        self, lake: Lake, table: TableName, views: Views, metadata: TableMetadata, columns: Sequence[str]
    ) -> None:
        self._lake = lake
        self._name = lake.name(table)
        self._table = str(table)
        self._views = views
        schema = metadata.schema()
        self._field_ids = [_field_id(schema, each, str(table)) for each in columns]
        self.condition = self._condition(schema)
        if self.condition is None:
            raise RequestInvalid(
                f"None of the identifiers can be a value of {', '.join(columns):.200}.",
                table=str(table),
                rule="identifier-type",
                hint="Compare the types of the columns with the identifiers.",
            )

    def count(self, metadata: TableMetadata, snapshots: Collection[int]) -> dict[int, int]:
        """Return how many rows match in some snapshots, by their ids.

        Raises:
            RequestInvalid: a snapshot can have values of a column that its schema does not show.
        """
        found = dict.fromkeys(snapshots, 0)
        texts = self._counts([each for each in metadata.snapshots if each.snapshot_id in found], metadata)
        while batch := list(islice(texts, _AT_ONCE)):
            found |= {row["snapshot"]: row["rows"] for row in self._lake.sql(" UNION ALL ".join(batch))}
        return found

    def _counts(self, snapshots: Sequence[Snapshot], metadata: TableMetadata) -> Iterator[str]:
        for each in snapshots:
            schema = _schema_of(metadata, each)
            if any(path_of(schema, field_id) is None for field_id in self._field_ids):
                self._require_absent(metadata, each)
            condition = self._condition(schema)
            # A snapshot from before the columns were added has no such row.
            if condition is not None:
                number, name = each.snapshot_id, self._name
                yield (
                    f"SELECT {number}L AS snapshot, count(*) AS rows FROM {name} VERSION AS OF {number} "
                    f"WHERE {condition}"
                )

    def _require_absent(self, metadata: TableMetadata, snapshot: Snapshot) -> None:
        """Refuse a snapshot whose files can have a column that was dropped then, and restored later."""
        number = snapshot.sequence_number or 0
        before = [each for each in metadata.snapshots if (each.sequence_number or 0) <= number]
        schemas = [each for each in metadata.schemas if each.schema_id < (snapshot.schema_id or 0)]
        schemas += [_schema_of(metadata, each) for each in before]
        own = _schema_of(metadata, snapshot)
        lacking = [each for each in self._field_ids if path_of(own, each) is None]
        if any(path_of(schema, each) is not None for schema in schemas for each in lacking):
            raise self._hidden(snapshot)
        for name, ref in metadata.refs.items():
            if (ref.snapshot_id, ref.snapshot_ref_type) == (snapshot.snapshot_id, SnapshotRefType.BRANCH):
                # A branch is read by the current schema, which the snapshot does not have.
                source = f"{self._name}.{quoted(f'branch_{name}')}"
                if self._lake.sql(f"SELECT 1 FROM {source} WHERE {self.condition} LIMIT 1"):
                    raise self._hidden(snapshot)

    def _hidden(self, snapshot: Snapshot) -> RequestInvalid:
        return RequestInvalid(
            f"Snapshot {snapshot.snapshot_id} can have values of a column that was dropped and restored, and "
            "does not show them.",
            table=self._table,
            rule="restored-column",
            hint="Write to each branch, expire the snapshots without the column, and run the erasure again.",
        )

    def delete(self, branch: str) -> None:
        """Delete the matching rows of a branch.

        Raises:
            PySparkException: the catalog refuses, or another commit conflicts.
        """
        self._lake.sql(f"DELETE FROM {self._name}.{quoted(f'branch_{branch}')} WHERE {self.condition}")

    def _condition(self, schema: Schema) -> str | None:
        """Return the condition on the columns as a schema names them; None if it has none of them."""
        terms = []
        for field_id in self._field_ids:
            found = path_of(schema, field_id)
            view = None if found is None else self._views.of(found[1])
            if found is not None and view is not None:
                terms.append(f"{'.'.join(map(quoted, found[0]))} IN (SELECT id FROM {view})")
        return " OR ".join(terms) or None


def _schema_of(metadata: TableMetadata, snapshot: Snapshot) -> Schema:
    """Return the schema that a snapshot is read by; the current one where none is recorded, as Spark does."""
    found = None if snapshot.schema_id is None else metadata.schema_by_id(snapshot.schema_id)
    return found or metadata.schema()


def path_of(schema: Schema, field_id: int) -> tuple[tuple[str, ...], IcebergType] | None:
    """Return the names of the structs around a field with its own, and its type; None if there is none."""
    left: list[tuple[tuple[str, ...], NestedField]] = [((), each) for each in schema.fields]
    while left:
        above, each = left.pop()
        path = (*above, each.name)
        if each.field_id == field_id:
            return path, each.field_type
        if isinstance(each.field_type, StructType):
            left += [(path, inner) for inner in each.field_type.fields]
    return None


def _field_id(schema: Schema, name: str, table: str) -> int:
    try:
        field_id = schema.find_field(name).field_id
    except ValueError:
        raise RequestInvalid(
            f"Column {name[:80]!r} does not exist.",
            table=table,
            rule="column",
            hint="Use the names in the table's schema, with dots between the names of nested columns.",
        ) from None
    if path_of(schema, field_id) is None:
        raise RequestInvalid(
            f"Column {name[:80]!r} is inside of a list or map, whose rows are not searched.",
            table=table,
            rule="nested-identifier",
            hint="Delete these rows with a statement of your own, and expire the snapshots.",
        )
    return field_id
