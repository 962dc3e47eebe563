"""Turns a client's requirements and updates into new metadata: checked, authorized and sealed.

The order is fixed: load the sealed metadata, apply the updates to it, authorize the whole commit, open and
check the new files, publish. If commits race, the pointer's compare-and-swap decides which one wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
)

from catalog.authorization import key_groups
from catalog.authorization.authorizer import Caller
from catalog.base.errors import CommitConflict
from catalog.base.identifiers import TableName
from catalog.commits.governing import Governing
from catalog.commits.judgement import Judge
from catalog.commits.publish import Publication, Publisher
from catalog.context import ServiceContext
from catalog.envelope.peks import PekRecord
from catalog.iceberg.metadata import require_written_version
from catalog.reading.loading import LoadedTable
from catalog.rules import governance
from catalog.rules import table_changes as change_rules
from catalog.rules.openable import check_commit
from catalog.rules.table_changes import Changes
from catalog.snapshot_checks.inspection import Origin
from catalog.state.idempotency import succeeds_unchanged
from catalog.state.seals import Digest
from policy.encryption.file_formats import FileFormat, written_format
from policy.errors import MetadataTampered
from policy.location.location import Location
from policy.privileges.operations import required


class Committer:
    """Commits to existing tables.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._judge = Judge(context)
        self._governing = Governing(context)
        self._publisher = Publisher(context)

    def commit(
        self,
        caller: Caller,
        name: TableName,
        requirements: Sequence[TableRequirement],
        updates: Sequence[TableUpdate],
        *,
        force: bool = False,
        origin: Origin = Origin.CLIENT,
        written: Mapping[str, Digest] | None = None,
        under: int | None = None,
    ) -> LoadedTable:
        """Commit updates to a table.

        Args:
            caller: who commits.
            name: the table.
            requirements: conditions that the current metadata must meet.
            updates: the changes.
            force: narrow the allowed list even if live snapshots become unreadable.
            origin: who made the snapshots. Summaries of clients cannot contain entries that are reserved for
                the catalog.
            written: digests of the files that the catalog wrote for this commit; see `Inspector.commit`.
            under: the governed version that the commit was built under; None if that does not matter.

        Raises:
            CommitConflict: a requirement is not met, or another commit came first.
            NotAuthorized, LocationNotAllowed, MetadataTampered, MetadataUnsealed, EncryptionPolicyViolation,
            DecryptionRefused, InvalidInput: refused; nothing was changed.
        """
        with self._context.authorizer.recorded(caller, "table.commit", str(name)):
            self._may_write(caller, name)
            table = self._context.loader.load_sealed(name)
            self._context.standard_clients.require(caller, "table.commit", table)
            _check_under(table, under)
            changes = change_rules.part(updates, table.governed.to_properties(), table.name)
            if table.governed.ever_encrypted:
                change_rules.refuse_forgetting_columns(changes.updates, table.name)
            if origin is Origin.CLIENT:
                change_rules.refuse_reserved_summaries(changes.updates, table.name)
            check_requirements(requirements, table.metadata, table.name)
            metadata = change_rules.apply(
                table.metadata, changes.updates, table.metadata_location, table.name, requirements
            )
            _check_identity(metadata, table)
            check_commit(table.metadata, metadata, self._context.now_ms(), table.name)
            return self._take(caller, table, changes, metadata, force, origin, written)

    def _take(
        self,
        caller: Caller,
        table: LoadedTable,
        changes: Changes,
        metadata: TableMetadata,
        force: bool,
        origin: Origin,
        written: Mapping[str, Digest] | None,
    ) -> LoadedTable:
        wanted = governance.for_change(
            table.governed,
            changes,
            table.record.location,
            self._context.master_key_id,
            table.name,
            written_format(metadata.properties) or FileFormat.AVRO,
        )
        wanted = governance.following(
            table.governed,
            wanted,
            table.metadata,
            metadata.schema(),
            table.name,
            said=changes.governed_said,
        )
        begins = governance.begins_epoch(table.governed, wanted.spec, metadata.schema())
        governs = changes.governs or begins or wanted.allowed != table.governed.allowed
        change_rules.refuse_mixture(changes, table.name, governs=governs)
        moved = [Location.parse(text) for text in changes.locations]
        judged = self._judge.require(caller, table, metadata, wanted, changes.operations, moved)
        if metadata == table.metadata and not governs:
            succeeds_unchanged(table.metadata_location)
            return table
        governance.check_schema(wanted.spec, metadata, table.name)
        judged.verdict.enforce(table.name)
        governed, peks = table.governed, tuple[PekRecord, ...]()
        if governs:
            governed, peks = self._governing.next(table, wanted, metadata, begins=begins)
        relies = self._governing.relies(table, governed)
        next_table = replace(table, governed=governed)
        self._context.standard_clients.require_new(caller, "table.commit", table.record.name, governed.spec)
        if governs and not force:
            self._governing.refuse_breaking(table, next_table)
        files = self._context.inspector.commit(next_table, metadata, origin, written)
        published = self._publisher.publish(
            Publication(
                record=table.record,
                base=table,
                metadata=metadata,
                governed=governed,
                governs=governs,
                files=files,
                peks=peks,
                author=caller.principal.name,
                relies=relies,
                overlaps=judged.overlaps,
            )
        )
        if governed.epochs.current != table.governed.epochs.current:
            key_groups.report(self._context.authorizer, caller, "table.commit", published)
        return published

    def _may_write(self, caller: Caller, name: TableName) -> None:
        """Refuse users without the required privileges before the answer tells anything about the table."""
        either = required("table.commit", self._context.on(caller, name))
        self._context.authorizer.screen(caller, "table.commit", str(name), *either)


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
            raise CommitConflict(
                _text_of(requirement, failed),
                table=table,
                rule=requirement.type,
                hint="Load the table, and make the change again.",
            ) from failed


#: What the reference implementation says first, where pyiceberg says it in other words.
#: Source: Apache Iceberg, `UpdateRequirement`.
_CHANGED: Final[Mapping[type[Any], str]] = {
    AssertTableUUID: "UUID does not match",
    AssertLastAssignedFieldId: "last assigned field id changed",
    AssertCurrentSchemaId: "current schema changed",
    AssertLastAssignedPartitionId: "last assigned partition id changed",
    AssertDefaultSpecId: "default partition spec changed",
    AssertDefaultSortOrderId: "default sort order changed",
}


def _text_of(requirement: TableRequirement, failed: CommitFailedException) -> str:
    """Return the text of a requirement that is not met; clients know it by its beginning."""
    changed = _CHANGED.get(type(requirement))
    if changed is None:
        return str(failed)
    return f"Requirement failed: {changed}: {str(failed).removeprefix('Requirement failed: ')}"


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


def _check_under(table: LoadedTable, under: int | None) -> None:
    """Refuse a commit that was built under an earlier governed version. The client has to build it again."""
    if under is not None and table.governed.version != under:
        raise CommitConflict(
            f"Another commit changed the governed properties from version {under} to "
            f"{table.governed.version}.",
            table=table.name,
            rule="governed-version",
            hint="Load the table and commit again.",
        )


def _check_identity(metadata: TableMetadata, table: LoadedTable) -> None:
    if metadata.table_uuid != table.record.table_uuid:
        raise MetadataTampered(
            f"The commit changes the table's UUID from {table.record.table_uuid} to {metadata.table_uuid}.",
            table=table.name,
            rule="table-uuid",
            hint="Load the table and commit again without the update assign-uuid.",
        )
    require_written_version(metadata, table.name)
