"""Turns a client's requirements and updates into new metadata: checked, authorized and sealed.

The order is fixed: load the sealed metadata, apply the updates to it, authorize the whole commit, open and
check the new files, publish. If commits race, the pointer's compare-and-swap decides which one wins.

A commit to several tables judges each as a commit to one, and then publishes all of them in one step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertCreate, TableRequirement, TableUpdate

from catalog.audit import outcomes
from catalog.authorization import key_groups
from catalog.authorization.authorizer import Caller
from catalog.base.errors import CommitConflict
from catalog.base.identifiers import TableName
from catalog.commits.governing import Governing
from catalog.commits.judgement import Judge
from catalog.commits.publish import Publication, Publisher
from catalog.commits.requirements import check_requirements
from catalog.context import ServiceContext
from catalog.envelope.peks import PekRecord
from catalog.iceberg.metadata import require_committed_version
from catalog.reading.loading import LoadedTable
from catalog.rules import governance
from catalog.rules import table_changes as change_rules
from catalog.rules.openable import check_commit
from catalog.rules.table_changes import Changes
from catalog.snapshot_checks.inspection import Origin
from catalog.state.idempotency import succeeds_unchanged
from catalog.state.seals import Digest
from policy.encryption.file_formats import FileFormat, written_format
from policy.errors import MetadataTampered, NotSupportedYet, RequestInvalid
from policy.location.location import Location
from policy.privileges.operations import required

#: Maximum number of tables in a transaction.
MAX_TABLES: Final = 100


@dataclass(frozen=True, slots=True)
class TableChange:
    """A change of one table; the attributes are the arguments of `Committer.commit`."""

    name: TableName
    requirements: Sequence[TableRequirement]
    updates: Sequence[TableUpdate]
    force: bool = False
    origin: Origin = Origin.CLIENT
    written: Mapping[str, Digest] | None = None
    under: int | None = None


@dataclass(frozen=True, slots=True)
class _Judged:
    """A change that was checked and authorized: the table before it, and what to publish, if anything."""

    table: LoadedTable
    publication: Publication | None


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
        self._max_metadata_bytes = context.settings.limits.metadata_bytes

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
        change = TableChange(name, requirements, updates, force, origin, written, under)
        return self._commit(caller, [change])[0]

    def commit_together(self, caller: Caller, changes: Sequence[TableChange]) -> list[LoadedTable]:
        """Commit updates to several tables: all of them or none.

        Args:
            caller: who commits.
            changes: one for each table.

        Raises:
            RequestInvalid: there is no change, there are too many, or a table has two.
            NotSupportedYet: a change creates its table.
            as `commit` otherwise. A refusal of one change refuses all.
        """
        _check_transaction(changes)
        outcomes.concerns("table.commit", [str(change.name) for change in changes])
        return self._commit(caller, changes)

    def _commit(self, caller: Caller, changes: Sequence[TableChange]) -> list[LoadedTable]:
        with ExitStack() as refusals:
            for change in changes:
                recorded = self._context.authorizer.recorded(caller, "table.commit", str(change.name))
                refusals.enter_context(recorded)
            for change in changes:
                self._may_write(caller, change.name)
            judged = list[_Judged]()
            for change in changes:
                judged.append(self._judged(caller, change))
                self._check_size(judged)
            return self._publish(caller, judged)

    def _check_size(self, judged: Sequence[_Judged]) -> None:
        """Refuse a transaction whose tables have more metadata together than one table can have."""
        size = sum(each.table.seal.digest.length for each in judged if each.table.seal)
        if size > self._max_metadata_bytes:
            raise RequestInvalid(
                f"The tables of the transaction have more than {self._max_metadata_bytes} bytes of metadata.",
                table=judged[-1].table.name,
                rule="transaction-size",
                hint="Commit to fewer tables at once.",
            )

    def _judged(self, caller: Caller, change: TableChange) -> _Judged:
        """Check and authorize a change of one table."""
        table = self._context.loader.load_sealed(change.name)
        self._context.standard_clients.require(caller, "table.commit", table)
        _check_under(table, change.under)
        changes = change_rules.part(change.updates, table.governed.to_properties(), table.name)
        if table.governed.ever_encrypted:
            change_rules.refuse_forgetting_columns(changes.updates, table.name)
        if change.origin is Origin.CLIENT:
            change_rules.refuse_reserved_summaries(changes.updates, table.name)
        check_requirements(change.requirements, table.metadata, table.name)
        metadata = change_rules.apply(
            table.metadata, changes.updates, table.metadata_location, table.name, change.requirements
        )
        _check_identity(metadata, table)
        check_commit(table.metadata, metadata, self._context.now_ms(), table.name)
        return _Judged(table, self._publication(caller, table, change, changes, metadata))

    def _publication(
        self,
        caller: Caller,
        table: LoadedTable,
        change: TableChange,
        changes: Changes,
        metadata: TableMetadata,
    ) -> Publication | None:
        """Return what to publish; None if the commit changes nothing."""
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
            return None
        governance.check_schema(wanted.spec, metadata, table.name)
        judged.verdict.enforce(table.name)
        governed, peks = table.governed, tuple[PekRecord, ...]()
        if governs:
            governed, peks = self._governing.next(table, wanted, metadata, begins=begins)
        relies = self._governing.relies(table, governed)
        next_table = replace(table, governed=governed)
        self._context.standard_clients.require_new(caller, "table.commit", table.record.name, governed.spec)
        if governs and not change.force:
            self._governing.refuse_breaking(table, next_table)
        files = self._context.inspector.commit(
            next_table,
            metadata,
            change.origin,
            change.written,
            change_rules.renumbered_orders(changes.updates, metadata),
        )
        return Publication(
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

    def _publish(self, caller: Caller, judged: Sequence[_Judged]) -> list[LoadedTable]:
        """Publish all changes in one step; return each table after it."""
        unchanged = [each.table for each in judged if each.publication is None]
        publications = [each.publication for each in judged if each.publication is not None]
        if not publications:
            succeeds_unchanged(unchanged[0].metadata_location if len(unchanged) == 1 else None)
            return unchanged
        published = {
            each.record.id: each for each in self._publisher.publish_together(publications, unchanged)
        }
        done = [published.get(each.table.record.id, each.table) for each in judged]
        for each, after in zip(judged, done, strict=True):
            if after.governed.epochs.current != each.table.governed.epochs.current:
                key_groups.report(self._context.authorizer, caller, "table.commit", after)
        return done

    def _may_write(self, caller: Caller, name: TableName) -> None:
        """Refuse users without the required privileges before the answer tells anything about the table."""
        either = required("table.commit", self._context.on(caller, name))
        self._context.authorizer.screen(caller, "table.commit", str(name), *either)


def _check_transaction(changes: Sequence[TableChange]) -> None:
    """Check the form of a transaction. A creation in it would need a name that nobody else can take."""
    if not 1 <= len(changes) <= MAX_TABLES:
        raise RequestInvalid(
            f"The transaction has {len(changes)} table changes. It must have 1 to {MAX_TABLES}.",
            rule="transaction-tables",
        )
    seen = set[TableName]()
    for change in changes:
        if change.name in seen:
            raise RequestInvalid(
                "The transaction has several changes of the table.",
                table=str(change.name),
                rule="transaction-tables",
                hint="Put all requirements and updates of a table into one change.",
            )
        seen.add(change.name)
        if any(isinstance(each, AssertCreate) for each in change.requirements):
            raise NotSupportedYet(
                "A transaction cannot create tables.",
                table=str(change.name),
                rule="transaction-create",
                hint="Create the table by a commit of its own first.",
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
    require_committed_version(metadata, table.name)
