"""Checks that every Iceberg engine can open committed metadata and build on it.

- Timestamps: Iceberg Java refuses a snapshot log or metadata log that runs backwards by more than a minute,
  and metadata that is older than its last entry. A snapshot from the future would make the next correct one
  run backwards, so it is refused by the same limit.
- Snapshots: engines add to the totals in a summary, and fail if one is not a number. The id -1 means that a
  table has no snapshot. A snapshot's parents must not lead back to it, because engines walk through all of
  them. Row ids need format version 3. `main` must be a branch.
- New schemas, partition specs and sort orders: see `catalog.iceberg.layout`.
- The rows of a branch have a value for every required column: see `required_columns`.
- A new schema does not use the id of a column that no schema of the table names any more: files can still
  have that column, and policies know it by a name that is forgotten.

Source: Apache Iceberg's `TableMetadata` and `PartitionSpecParser`; table specification, "Schema evolution".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from catalog.iceberg import layout
from catalog.iceberg.metadata import ROW_IDS_VERSION, last_sequence_number
from catalog.rules.required_columns import check_required_columns
from catalog.snapshot_checks.branches import new_snapshots
from policy.errors import RequestInvalid

#: The maximum difference of clocks (Apache Iceberg, `TableMetadata.ONE_MINUTE`).
CLOCK_SKEW_MS: Final = 60_000
_SMALLEST_INT: Final = -(2**31)
_LARGEST_INT: Final = 2**31 - 1
_LARGEST_LONG: Final = 2**63 - 1
#: Summary entries that engines read as numbers (table specification, "Appendix F", "Metrics").
_NUMBERS: Final = re.compile(
    "(added|deleted|total)-(data-files|records)|(added|removed|total)-(delete-files|(position|equality)-deletes)"
    "|(added|removed|total)-files-size|changed-partition-count"
)


def never_back(base: TableMetadata, made: TableMetadata) -> TableMetadata:
    """Return `made` with a sequence number and an update time that are at least those of `base`.

    A snapshot without a parent can have an older sequence number; the table's last one stays. A branch that
    is set back to an older snapshot enters the snapshot log with the clock's time, and the clock can be set
    back.
    """
    updated = max(base.last_updated_ms, made.last_updated_ms)
    changes: dict[str, object] = {"last_updated_ms": updated, "snapshot_log": list(_in_order(base, made))}
    if made.format_version > 1:
        numbers = (each.sequence_number or 0 for each in made.snapshots)
        changes["last_sequence_number"] = max(last_sequence_number(base), *numbers, 0)
    return made.model_copy(update=changes)


def _in_order(base: TableMetadata, made: TableMetadata) -> Iterator[SnapshotLogEntry]:
    """Yield the snapshot log. New entries of existing snapshots get at least the time of the entry before."""
    had = {snapshot.snapshot_id for snapshot in base.snapshots}
    logged = {(entry.snapshot_id, entry.timestamp_ms) for entry in base.snapshot_log}
    latest = base.last_updated_ms
    for entry in made.snapshot_log:
        if entry.snapshot_id in had and (entry.snapshot_id, entry.timestamp_ms) not in logged:
            entry = entry.model_copy(update={"timestamp_ms": max(entry.timestamp_ms, latest)})
        latest = max(latest, entry.timestamp_ms)
        yield entry


def check_new_table(metadata: TableMetadata, now_ms: int, table: str) -> None:
    """Check the metadata of a table that is created.

    Args:
        metadata: as it would be stored.
        now_ms: the time in milliseconds.
        table: dotted name, for errors.

    Raises:
        RequestInvalid: an engine could not open it.
    """
    for spec in metadata.partition_specs:
        layout.check_redundancy(spec.fields, table)
    _check_layout(None, metadata, table)
    _check_times(metadata.snapshots, None, now_ms, table)
    _check_snapshots(metadata, metadata.snapshots, {}, table)


def check_commit(base: TableMetadata, metadata: TableMetadata, now_ms: int, table: str) -> None:
    """Check the metadata that a commit makes.

    Args:
        base: the metadata before the commit.
        metadata: as it would be stored.
        now_ms: the time in milliseconds.
        table: dotted name, for errors.

    Raises:
        RequestInvalid: an engine could not open it, or could not read the table with it.
    """
    present = {(field.source_id, str(field.transform)) for field in base.spec().fields}
    known = {spec.spec_id for spec in base.partition_specs}
    for spec in metadata.partition_specs:
        if spec.spec_id not in known:
            new = [each for each in spec.fields if (each.source_id, str(each.transform)) not in present]
            layout.check_redundancy(new, table)
    _check_layout(base, metadata, table)
    _check_field_ids(base, metadata, table)
    check_required_columns(base, metadata, table)
    added = new_snapshots(base, metadata)
    _check_times(added, base.last_updated_ms, now_ms, table)
    _check_snapshots(metadata, added, base.refs, table)


def _check_layout(base: TableMetadata | None, metadata: TableMetadata, table: str) -> None:
    _check_ids(metadata, table)
    schema = metadata.schema()
    known_schemas = {each.schema_id for each in base.schemas} if base else set()
    known_specs = {each.spec_id for each in base.partition_specs} if base else set()
    known_orders = {each.order_id for each in base.sort_orders} if base else set()
    for each in metadata.schemas:
        if each.schema_id not in known_schemas:
            layout.check_schema(each, metadata.format_version, table)
    other_schema = base is None or schema != base.schema()
    for spec in metadata.partition_specs:
        if base is not None and spec.spec_id not in known_specs:
            layout.check_field_ids(spec, base.partition_specs, table)
        if spec.spec_id not in known_specs:
            layout.check_sequential(spec, metadata.format_version, table)
        if spec.spec_id not in known_specs or (other_schema and spec.spec_id == metadata.default_spec_id):
            layout.check_spec(spec, schema, table)
        elif other_schema:
            layout.check_names(spec, schema, table)
    for order in metadata.sort_orders:
        current = other_schema and order.order_id == metadata.default_sort_order_id
        if order.order_id not in known_orders or current:
            layout.check_order(order, schema, table)


def _check_ids(metadata: TableMetadata, table: str) -> None:
    """Check that ids have 32 bits, as in engines; `layout.check_schema` checks the minimum of field ids."""
    ids = [
        metadata.last_column_id,
        metadata.last_partition_id or 0,
        *(each.schema_id for each in metadata.schemas),
        *(each.highest_field_id for each in metadata.schemas),
        *(each.spec_id for each in metadata.partition_specs),
        *(field.field_id for each in metadata.partition_specs for field in each.fields),
        *(each.order_id for each in metadata.sort_orders),
        *(number for file in metadata.statistics for blob in file.blob_metadata for number in blob.fields),
    ]
    for wrong in (each for each in (min(ids), max(ids)) if not _SMALLEST_INT <= each <= _LARGEST_INT):
        raise RequestInvalid(
            f"The id {wrong} is not a 32-bit integer. Engines read ids from {_SMALLEST_INT} to "
            f"{_LARGEST_INT}.",
            table=table,
            rule="id-range",
            hint="Continue the numbers of schemas, fields, partition specs and sort orders from the "
            "last ones.",
        )


def _check_field_ids(base: TableMetadata, metadata: TableMetadata, table: str) -> None:
    """Refuse new schemas with the id of a column whose last schema was removed."""
    known = {each.schema_id: each for each in base.schemas}
    new = [each for each in metadata.schemas if known.get(each.schema_id) != each]
    if not new:
        return
    named = {field_id for each in base.schemas for field_id in each.field_ids}
    for schema in new:
        for field_id in schema.field_ids:
            if field_id <= base.last_column_id and field_id not in named:
                name = f"{schema.find_column_name(field_id)!s:.160}"
                raise RequestInvalid(
                    f"The column {name} has the field id {field_id}, which a column had that no schema of "
                    "the table names any more.",
                    table=table,
                    rule="field-id",
                    hint=f"Give it an id above {base.last_column_id}.",
                )


def _check_times(snapshots: list[Snapshot], last_ms: int | None, now_ms: int, table: str) -> None:
    """Check the timestamps of new snapshots.

    A snapshot is at most a minute older than the previous one, and at most a minute in the future.
    """
    latest = last_ms
    for snapshot in snapshots:
        at = snapshot.timestamp_ms
        if latest is not None and at < latest - CLOCK_SKEW_MS:
            raise _wrong_time(snapshot, f"{latest - at:,} ms before the table's last update", table)
        if at > max(now_ms, last_ms or 0) + CLOCK_SKEW_MS:
            raise _wrong_time(snapshot, f"{at - now_ms:,} ms after the catalog's time", table)
        latest = at if latest is None else max(latest, at)


def _check_snapshots(
    metadata: TableMetadata, added: list[Snapshot], refs: Mapping[str, SnapshotRef], table: str
) -> None:
    schemas = {each.schema_id for each in metadata.schemas}
    new = {each.snapshot_id for each in added}
    parents = {each.parent_snapshot_id for each in metadata.snapshots if each.snapshot_id not in new}
    for snapshot in added:
        if snapshot.snapshot_id <= 0 or snapshot.snapshot_id in parents:
            raise _wrong_snapshot(
                snapshot, "an id that is not positive, or that another snapshot names as parent", table
            )
        if snapshot.schema_id is not None and snapshot.schema_id not in schemas:
            raise _wrong_snapshot(
                snapshot, f"the schema id {snapshot.schema_id}, which does not exist", table
            )
        has_row_ids = snapshot.first_row_id is not None or snapshot.added_rows is not None
        if has_row_ids and metadata.format_version < ROW_IDS_VERSION:
            raise _wrong_snapshot(snapshot, "row ids, which its format version does not have", table)
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        for name, value in summary.items():
            if _NUMBERS.fullmatch(name) and not _is_long(value):
                raise _wrong_snapshot(
                    snapshot, f"a value of {name} in its summary that is not a number", table
                )
    for name, ref in metadata.refs.items():
        if ref != refs.get(name):
            _check_reference(name, ref, table)


def _check_reference(name: str, ref: SnapshotRef, table: str) -> None:
    if (ref.min_snapshots_to_keep or 0) > _LARGEST_INT:
        raise RequestInvalid(
            f"The branch {name[:80]!r} would keep {ref.min_snapshots_to_keep} snapshots. Engines "
            f"read at most {_LARGEST_INT}.",
            table=table,
            rule="snapshot-reference",
            hint="Set min-snapshots-to-keep to a smaller number.",
        )
    if name == MAIN_BRANCH and ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
        raise RequestInvalid(
            f"{MAIN_BRANCH} must be a branch, because engines add no snapshots to a tag of that name.",
            table=table,
            rule="snapshot-reference",
            hint="Give the tag another name.",
        )


def _is_long(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= _LARGEST_LONG


def _wrong_snapshot(snapshot: Snapshot, problem: str, table: str) -> RequestInvalid:
    return RequestInvalid(
        f"The snapshot has {problem}.",
        table=table,
        snapshot=snapshot.snapshot_id,
        rule="snapshot",
        hint="Correct the snapshot, then commit again.",
    )


def _wrong_time(snapshot: Snapshot, problem: str, table: str) -> RequestInvalid:
    return RequestInvalid(
        f"The timestamp {snapshot.timestamp_ms} of the snapshot is {problem}. The maximum "
        "difference is one minute.",
        table=table,
        snapshot=snapshot.snapshot_id,
        rule="snapshot-timestamp",
        hint="Correct the clock of the client, then commit again.",
    )
