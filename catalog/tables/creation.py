"""Creates tables, at once or staged: a client of `/v1` first gets an identity, and commits later.

`catalog.writes.staged_writes` creates tables with their first rows for engines. `catalog.tables.registration`
takes tables from other catalogs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.table.update import (
    AssignUUIDUpdate,
    SetLocationUpdate,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersionUpdate,
)

from catalog.authorization import key_groups
from catalog.authorization.authorizer import Caller
from catalog.base import crash_points
from catalog.base.existence import table_exists
from catalog.base.identifiers import TableName
from catalog.commits.publish import Publication, Publisher
from catalog.commits.requirements import check_requirements
from catalog.context import ServiceContext
from catalog.db.engine import read, write
from catalog.iceberg.metadata import WRITTEN_FORMAT_VERSION, require_committed_version
from catalog.reading import loading
from catalog.reading.loading import LoadedTable
from catalog.rules import governance
from catalog.rules import table_changes as change_rules
from catalog.rules.openable import check_new_table
from catalog.state import staged_tables, table_state
from catalog.state.staged_tables import StagedTable
from catalog.state.table_state import TableRecord, TableState
from catalog.tables.drafts import Draft, Drafter, NewTable, new_record
from policy.encryption.file_formats import written_format
from policy.errors import RequestInvalid
from policy.location.location import Location
from policy.privileges.tables import write_paths


class Creator:
    """Creates tables.

    Args:
        context: the parts that services share.
        drafter: drafts tables, and decides whether they may be created.
    """

    def __init__(self, context: ServiceContext, drafter: Drafter) -> None:
        self._context = context
        self._drafter = drafter
        self._publisher = Publisher(context)
        self._staged_ttl_ms = context.settings.staged_ttl_s * 1000

    def create(self, caller: Caller, new: NewTable) -> LoadedTable:
        """Create a table.

        Raises:
            NotAuthorized, InvalidInput, EncryptionPolicyViolation: refused; nothing was created.
            NoSuchNamespace, TableExists: as it says.
        """
        with self._context.authorizer.recorded(caller, "table.create", str(new.name)):
            self._drafter.may_create(caller, "table.create", new.name)
            draft = self._drafter.draft(caller, new)
            overlaps = self._drafter.authorize(caller, "table.create", draft)
            self._context.standard_clients.require_new(caller, "table.create", new.name, draft.wanted.spec)
            self._drafter.require_free(draft.record.name)
            return self._publish(caller, draft, overlaps)

    def stage(self, caller: Caller, new: NewTable) -> Draft:
        """Stage a table: return the identity with which a later commit creates it.

        Raises:
            as `create`.
        """
        with self._context.authorizer.recorded(caller, "table.stage", str(new.name)):
            self._drafter.may_create(caller, "table.stage", new.name)
            draft = self._drafter.draft(caller, new)
            self._drafter.authorize(caller, "table.stage", draft)
            self._context.standard_clients.require_staged(caller, "table.stage", new.name, draft.wanted.spec)
            governance.check_schema(draft.wanted.spec, draft.metadata, str(new.name))
            self._drafter.check_rules(new.name, draft.metadata, draft.wanted.spec)
            self._drafter.require_free(draft.record.name)
            with write(self._context.engine) as connection:
                now_ms = self._context.now_ms()
                staged_tables.add(connection, self._context.catalog, self._staged(caller, draft), now_ms)
            return draft

    def commit_staged(
        self,
        caller: Caller,
        name: TableName,
        requirements: Sequence[TableRequirement],
        updates: Sequence[TableUpdate],
    ) -> LoadedTable:
        """Create a staged table, with its first snapshot if the commit has one.

        Raises:
            as `create`; and whatever rule the snapshot breaks.
        """
        with self._context.authorizer.recorded(caller, "table.create", str(name)):
            self._drafter.may_create(caller, "table.create", name)
            check_requirements(requirements, None, str(name))
            change_rules.refuse_reserved_summaries(updates, str(name))
            draft = self._staged_draft(caller, name, updates)
            overlaps = self._drafter.authorize(caller, "table.create", draft)
            self._context.standard_clients.require_staged(caller, "table.create", name, draft.wanted.spec)
            self._drafter.require_free(name, is_staged=True)
            return self._publish(caller, draft, overlaps)

    def _staged_draft(self, caller: Caller, name: TableName, updates: Sequence[TableUpdate]) -> Draft:
        record = self._staged_record(caller, name, updates)
        changes = change_rules.part(updates, {}, str(name))
        if changes.governed_unset:
            raise RequestInvalid(
                f"The commit removes {min(changes.governed_unset)!r}, but a new table has no "
                "governed properties yet.",
                table=str(name),
                hint="Leave out remove-properties.",
            )
        empty = MetastoreCatalog._empty_table_metadata()
        metadata = change_rules.apply(empty, _of_a_version(changes.updates), None, str(name))
        if metadata.table_uuid != record.table_uuid or Location.parse(metadata.location) != record.location:
            raise _not_staged(name)
        require_committed_version(metadata, str(name))
        check_new_table(metadata, self._context.now_ms(), str(name))
        wanted = governance.for_new_table(
            changes.governed_set,
            record.location,
            self._context.master_key_id,
            str(name),
            file_format=written_format(metadata.properties),
        )
        paths = tuple(write_paths(metadata.properties))
        return Draft(record, metadata, wanted, paths, changes.governed_set)

    def _staged_record(self, caller: Caller, name: TableName, updates: Sequence[TableUpdate]) -> TableRecord:
        """Return the staged identity of this table. Clients cannot choose one."""
        uuids = [update.uuid for update in updates if isinstance(update, AssignUUIDUpdate)]
        locations = [update.location for update in updates if isinstance(update, SetLocationUpdate)]
        if len(uuids) != 1 or len(locations) != 1:
            raise _not_staged(name)
        context, user = self._context, caller.principal.name
        with read(context.engine) as connection:
            staged = staged_tables.find(connection, context.catalog, name, user, uuids[0], context.now_ms())
            known = table_state.table_by_uuid(connection, uuids[0])
        if staged is None and known and (known.name, known.owner) == (name, user):
            raise table_exists(name)  # the answer was lost
        if staged is None:
            raise _not_staged(name)
        record = new_record(caller, name, uuids[0], staged.location, default=staged.default_location)
        # An interrupted creation is repeated under its internal id.
        return replace(record, id=known.id) if known and known.state is TableState.PREPARED else record

    def _publish(self, caller: Caller, draft: Draft, overlaps: frozenset[str]) -> LoadedTable:
        governance.check_schema(draft.wanted.spec, draft.metadata, str(draft.record.name))
        self._drafter.check_rules(draft.record.name, draft.metadata, draft.wanted.spec)
        refs, made = self._context.keyring.keys_for(draft.record, draft.wanted.spec)
        with read(self._context.engine) as connection:
            version = table_state.next_governed_version(connection, draft.record.id)
        governed = governance.first_version(draft.wanted, draft.metadata, refs, version)
        nothing = draft.metadata.model_copy(
            update={
                "snapshots": [],
                "statistics": [],
                "partition_statistics": [],
                "last_sequence_number": 0,
            }
        )
        before = LoadedTable(draft.record, governed, nothing, "", None)
        files = self._context.inspector.commit(before, draft.metadata)
        published = self._publisher.publish(
            Publication(
                record=draft.record,
                base=None,
                metadata=draft.metadata,
                governed=governed,
                governs=True,
                files=files,
                peks=made,
                author=caller.principal.name,
                overlaps=overlaps,
            )
        )
        with loading.left_to_the_next_load("a creation"), write(self._context.engine) as connection:
            staged_tables.remove(connection, draft.record.table_uuid)
        crash_points.point("create:unstaged")
        key_groups.report(self._context.authorizer, caller, "table.create", published)
        return published

    def _staged(self, caller: Caller, draft: Draft) -> StagedTable:
        record, wanted = draft.record, draft.wanted
        places = dict.fromkeys((record.location, *draft.write_paths))
        signed = () if wanted.spec.encrypts else [each for each in places if wanted.allowed.covers(each)]
        return StagedTable(
            record.table_uuid,
            record.name,
            caller.principal.name,
            record.location,
            record.default_location,
            tuple(signed),
            self._context.now_ms() + self._staged_ttl_ms,
        )


def _of_a_version(updates: Sequence[TableUpdate]) -> tuple[TableUpdate, ...]:
    """Return the updates of a new table; without a format version, it has the one that Lakewarden writes."""
    if any(isinstance(each, UpgradeFormatVersionUpdate) for each in updates):
        return tuple(updates)
    return UpgradeFormatVersionUpdate(format_version=WRITTEN_FORMAT_VERSION), *updates


def _not_staged(name: TableName) -> RequestInvalid:
    return RequestInvalid(
        f"The commit creates the table {name} under a UUID or location that the catalog did not "
        "stage for you.",
        table=str(name),
        rule="staged",
        hint="Stage the creation again, and commit with the UUID and location in the answer.",
    )
