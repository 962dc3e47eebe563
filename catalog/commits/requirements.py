"""Checks a client's requirements on the metadata that its commit changes.

pyiceberg decides. The texts are those of Iceberg's reference implementation, because its clients and its
compatibility kit expect them (`org.apache.iceberg.UpdateRequirement`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertCreate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
    TableRequirement,
)

from catalog.base.errors import CommitConflict


def check_requirements(
    requirements: Sequence[TableRequirement], metadata: TableMetadata | None, table: str
) -> None:
    """Check a client's requirements on the current metadata.

    Raises:
        CommitConflict: a requirement is not met.
    """
    for requirement in requirements:
        if _asks_for_no_ref(requirement, metadata):
            continue
        try:
            requirement.validate(metadata)
        except CommitFailedException as failed:
            problem = None if metadata is None else _problem(requirement, metadata)
            text = str(failed) if problem is None else f"Requirement failed: {problem}"
            raise CommitConflict(
                text,
                table=table,
                rule=requirement.type,
                hint="Load the table, and make the change again.",
            ) from failed


def _asks_for_no_ref(requirement: TableRequirement, metadata: TableMetadata | None) -> bool:
    """Return whether the requirement is that a branch or tag does not exist, and it does not.

    pyiceberg fails this requirement for every branch but main if the table has no snapshots. The REST
    specification does not ("assert-ref-snapshot-id"), and Iceberg Java creates branches of empty tables this
    way.
    """
    return (
        isinstance(requirement, AssertRefSnapshotId)
        and requirement.snapshot_id is None
        and metadata is not None
        and requirement.ref not in metadata.refs
    )


def _problem(requirement: TableRequirement, base: TableMetadata) -> str | None:
    """Return what an unmet requirement expected; None if pyiceberg's text is the same."""
    match requirement:
        case AssertCreate():
            return "table already exists"
        case AssertTableUUID(uuid=wanted):
            return f"UUID does not match: expected {base.table_uuid} != {wanted}"
        case AssertRefSnapshotId(ref=name, snapshot_id=wanted) if wanted is not None:
            ref = base.refs.get(name)
            if ref is None:
                return f"branch or tag {name} is missing, expected {wanted}"
            return f"{ref.snapshot_ref_type} {name} has changed: expected id {wanted} != {ref.snapshot_id}"
        case AssertLastAssignedFieldId(last_assigned_field_id=wanted):
            what, found = "last assigned field id", base.last_column_id
        case AssertCurrentSchemaId(current_schema_id=wanted):
            what, found = "current schema", base.current_schema_id
        case AssertLastAssignedPartitionId(last_assigned_partition_id=wanted):
            what, found = "last assigned partition id", base.last_partition_id or 0
        case AssertDefaultSpecId(default_spec_id=wanted):
            what, found = "default partition spec", base.default_spec_id
        case AssertDefaultSortOrderId(default_sort_order_id=wanted):
            what, found = "default sort order", base.default_sort_order_id
        case _:
            return None
    return f"{what} changed: expected id {wanted} != {found}"
