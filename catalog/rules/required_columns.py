"""Checks that the rows of every branch have a value for each required column.

Readers refuse a file without a required column, so such rows would make the branch unreadable. What columns
rows have is told by the schema that they were written by: that of their snapshot.

- A new snapshot's schema requires no column that the rows of its parent, or of the snapshot that it picks,
  do not have.
- The current schema requires no column that the rows of a branch's head do not have.
- A snapshot without `schema-id` can have rows of every schema of the table. One whose schema was removed has
  values for no column.
- The rows of a branch have what the schema required so far, whatever their snapshot says.

A snapshot that is on no branch is read by its own schema, and one without a parent starts from nothing. So a
table that is replaced can get required columns, unless another branch has rows without them.

Source: Apache Iceberg table specification, "Schema Evolution" and "Snapshots".
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import NestedField

from catalog.snapshot_checks.branches import new_snapshots
from catalog.snapshot_checks.cherry_picks import source_id
from policy.errors import RequestInvalid


def check_required_columns(base: TableMetadata, metadata: TableMetadata, table: str) -> None:
    """Check the snapshots and branches that a commit adds or changes.

    Args:
        base: the metadata before the commit.
        metadata: as it would be stored.
        table: dotted name, for errors.

    Raises:
        RequestInvalid: rows have no value for a required column.
    """
    current, schemas = metadata.schema(), {each.schema_id: each for each in metadata.schemas}
    added, before = new_snapshots(base, metadata), base.schema()
    known = _heads(base) - {each.snapshot_id for each in added}  # An id can be used again.
    # Rows that were on a branch fit its schema since the commit that brought them there.
    held = {field_id for field_id, field in before._lazy_id_to_field.items() if field.required}

    def require(source: Snapshot, schema: Schema) -> None:
        _require(metadata, source, schema, held if source.snapshot_id in known else (), table)

    for snapshot in added:
        schema = current if snapshot.schema_id is None else schemas.get(snapshot.schema_id, current)
        for source in _sources(metadata, snapshot):
            require(source, schema)
    for head in _heads(metadata) if current != before else _heads(metadata) - known:
        found = metadata.snapshot_by_id(head)
        if found is not None:
            require(found, current)


def lacking(
    metadata: TableMetadata, schema_id: int | None, wanted: Schema | None = None, held: Container[int] = ()
) -> str | None:
    """Return the name of a required column that rows do not have; None if they have all.

    Args:
        metadata: of the table.
        schema_id: the schema that the rows were written by; None if it is not known.
        wanted: the schema that requires columns; None for the current one.
        held: ids of columns that the rows have in any case.
    """
    wanted = metadata.schema() if wanted is None else wanted
    for written in _written_by(metadata, schema_id):
        for field in (each for each in _newly_required(written, wanted) if each.field_id not in held):
            return f"{wanted.find_column_name(field.field_id)!s:.160}"
    return None


def _written_by(metadata: TableMetadata, schema_id: int | None) -> Iterator[Schema]:
    if schema_id is None:
        yield from metadata.schemas
    else:
        yield next((each for each in metadata.schemas if each.schema_id == schema_id), Schema())


def _heads(metadata: TableMetadata) -> set[int]:
    branches = (each for each in metadata.refs.values() if each.snapshot_ref_type is SnapshotRefType.BRANCH)
    return {each.snapshot_id for each in branches}


def _sources(metadata: TableMetadata, snapshot: Snapshot) -> Iterator[Snapshot]:
    """Yield the snapshots whose rows a new snapshot takes over."""
    for number in (snapshot.parent_snapshot_id, source_id(snapshot)):
        source = None if number is None else metadata.snapshot_by_id(number)
        if source is not None:
            yield source


def _require(
    metadata: TableMetadata, source: Snapshot, schema: Schema, held: Container[int], table: str
) -> None:
    name = lacking(metadata, source.schema_id, schema, held)
    if name is not None:
        raise RequestInvalid(
            f"The column {name} cannot be required: rows of the snapshot {source.snapshot_id}, which are or "
            "would be on a branch, have no value for it.",
            table=table,
            snapshot=source.snapshot_id,
            rule="required-column",
            hint="Make the column optional (ALTER COLUMN … DROP NOT NULL), or remove the branch.",
        )


def _newly_required(before: Schema, after: Schema) -> Iterator[NestedField]:
    """Yield required fields that were missing or optional in an existing parent."""
    old, parents = before._lazy_id_to_field, after._lazy_id_to_parent
    for field_id, field in after._lazy_id_to_field.items():
        known = old.get(field_id)
        if not field.required or (known is not None and known.required):
            continue
        if parents.get(field_id) is None or parents[field_id] in old:
            yield field
