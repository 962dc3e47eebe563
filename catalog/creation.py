"""Creates tables, at once or in two steps (staged), and takes over tables that other catalogs made.

- The catalog gives each table its UUID and, unless the user names one, its location
  `<warehouse>/<namespace>/<table>-<uuid>`: a name used again never inherits a directory.
- The allowed list of a new table is the location; a location that the user names is authorized like any other
  path of the list, and needs ALTER on every table whose location overlaps.
- A table that is registered is parsed, checked file by file and sealed before its pointer exists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID, uuid4

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import AssignUUIDUpdate, SetLocationUpdate, TableRequirement, TableUpdate
from sqlalchemy import Engine, delete, insert, select

from catalog import changes as change_rules
from catalog import faults, gates, governance, loading, state
from catalog.authorize import Authorizer, Caller
from catalog.commits import check_requirements
from catalog.db.engine import read, write
from catalog.db.schema import lw_staged
from catalog.errors import NoSuchNamespace, TableExists
from catalog.governance import Wanted
from catalog.identifiers import TableName, slug
from catalog.inspection import Inspector
from catalog.keyring import Keyring
from catalog.landing import Lander, Landing
from catalog.loading import LoadedTable
from catalog.metadata import WRITTEN_FORMAT_VERSION, require_written_version
from catalog.pointers import PointerStore
from catalog.state import TableRecord, TableState
from policy import governed as governed_names
from policy.errors import RequestInvalid, UnsupportedFormatVersion
from policy.location import Location
from policy.requests import AccessRequest

_FORMAT_VERSION: Final = "format-version"


@dataclass(frozen=True, slots=True)
class NewTable:
    """What a user wants created.

    Attributes:
        name: its name.
        schema: its columns.
        location: where the user wants it, or None for the default.
        partition_spec: how it is partitioned.
        sort_order: how it is sorted.
        properties: table properties, governed ones among them.
    """

    name: TableName
    schema: Schema
    location: str | None = None
    partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
    sort_order: SortOrder = UNSORTED_SORT_ORDER
    properties: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class _Draft:
    """A table that does not exist yet: identity, metadata, and what is to govern it."""

    record: TableRecord
    metadata: TableMetadata
    wanted: Wanted
    write_paths: tuple[Location, ...]
    given: dict[str, str]


class Creator:
    """Creates tables.

    Args:
        engine: the catalog's database.
        catalog: the catalog's name.
        pointers: where the pointers are.
        inspector: checks what staged tables bring.
        lander: makes new metadata current.
        keyring: makes PEKs.
        authorizer: decides and records.
        warehouse: below which default locations lie.
        master_key_id: the catalog's master key, for tables that name none.
        now_ms: the time in milliseconds.
        staged_ttl_ms: for how long a staged table keeps its identity.
    """

    def __init__(
        self,
        engine: Engine,
        catalog: str,
        pointers: PointerStore,
        inspector: Inspector,
        lander: Lander,
        keyring: Keyring,
        authorizer: Authorizer,
        *,
        warehouse: Location,
        master_key_id: str | None,
        now_ms: Callable[[], int],
        staged_ttl_ms: int,
    ) -> None:
        self._engine = engine
        self._catalog = catalog
        self._pointers = pointers
        self._inspector = inspector
        self._lander = lander
        self._keyring = keyring
        self._authorizer = authorizer
        self._warehouse = warehouse
        self._master_key_id = master_key_id
        self._now_ms = now_ms
        self._staged_ttl_ms = staged_ttl_ms

    def create(self, caller: Caller, new: NewTable) -> LoadedTable:
        """Create a table.

        Raises:
            NotAuthorized, InvalidInput, EncryptionPolicyViolation: refused; nothing was created.
            NoSuchNamespace, TableExists: as it says.
        """
        with self._authorizer.recorded(caller, "table.create", str(new.name)):
            self._may_create(caller, "table.create", new.name)
            draft = self._draft(caller, new)
            overlaps = self._authorize(caller, "table.create", draft)
            self._require_free(draft.record.name)
            return self._land(caller, draft, overlaps)

    def stage(self, caller: Caller, new: NewTable) -> tuple[TableMetadata, dict[str, str]]:
        """Give out the identity of a table whose creation a later commit completes.

        Returns:
            its metadata, without governed properties, and the governed properties as the user gave them.

        Raises:
            as `create`.
        """
        with self._authorizer.recorded(caller, "table.stage", str(new.name)):
            self._may_create(caller, "table.stage", new.name)
            draft = self._draft(caller, new)
            self._authorize(caller, "table.stage", draft)
            self._require_free(draft.record.name)
            with write(self._engine) as connection:
                connection.execute(delete(lw_staged).where(lw_staged.c.expires_ms < self._now_ms()))
                connection.execute(insert(lw_staged).values(**self._staged_row(caller, draft.record)))
            return draft.metadata, draft.given

    def commit_staged(
        self,
        caller: Caller,
        name: TableName,
        requirements: Sequence[TableRequirement],
        updates: Sequence[TableUpdate],
    ) -> LoadedTable:
        """Complete the creation of a staged table, with its first snapshot if one is brought.

        Raises:
            as `create`; and whatever rule the snapshot breaks.
        """
        with self._authorizer.recorded(caller, "table.create", str(name)):
            self._may_create(caller, "table.create", name)
            check_requirements(requirements, None, str(name))
            change_rules.refuse_reserved_summaries(updates, str(name))
            draft = self._staged_draft(caller, name, updates)
            overlaps = self._authorize(caller, "table.create", draft)
            self._require_free(name)
            return self._land(caller, draft, overlaps)

    def _may_create(self, caller: Caller, action: str, name: TableName) -> None:
        """Refuse those who may not create the table before anything they sent is looked at."""
        request = gates.table_request(caller.principal, name.database, name.name, "create")
        if not self._authorizer.decide([request]).allowed:
            self._authorizer.require(caller, action, str(name), [request])

    def _draft(self, caller: Caller, new: NewTable) -> _Draft:
        table_uuid = uuid4()
        governed, ordinary = governed_names.split(new.properties or {})
        _check_format_version(ordinary, str(new.name))
        gates.check_ordinary_properties(ordinary, str(new.name))
        location = self._default_location(new.name, table_uuid)
        record = _record(caller, new.name, table_uuid, location, default=True)
        if new.location is not None:
            record = replace(record, location=Location.parse(new.location), default_location=False)
        gates.check_table_location(record.location, str(new.name))
        metadata = _new_metadata(new, record, ordinary)
        wanted = governance.for_new_table(governed, record.location, self._master_key_id, str(new.name))
        return _Draft(record, metadata, wanted, tuple(gates.write_paths(ordinary)), governed)

    def _staged_draft(self, caller: Caller, name: TableName, updates: Sequence[TableUpdate]) -> _Draft:
        record = self._staged_record(caller, name, updates)
        changes = change_rules.part(updates, {}, str(name))
        if changes.governed_unset:
            raise RequestInvalid("A new table has no governed property to remove.", table=str(name))
        empty = MetastoreCatalog._empty_table_metadata()
        metadata = change_rules.apply(empty, changes.updates, None, str(name))
        if metadata.table_uuid != record.table_uuid or Location.parse(metadata.location) != record.location:
            raise _not_staged(name)
        require_written_version(metadata, str(name))
        wanted = governance.for_new_table(
            changes.governed_set, record.location, self._master_key_id, str(name)
        )
        paths = tuple(gates.write_paths(metadata.properties))
        return _Draft(record, metadata, wanted, paths, changes.governed_set)

    def _staged_record(self, caller: Caller, name: TableName, updates: Sequence[TableUpdate]) -> TableRecord:
        """The identity that was given out for this table; clients do not make one up."""
        uuids = [update.uuid for update in updates if isinstance(update, AssignUUIDUpdate)]
        locations = [update.location for update in updates if isinstance(update, SetLocationUpdate)]
        if len(uuids) != 1 or len(locations) != 1:
            raise _not_staged(name)
        statement = select(lw_staged).where(
            lw_staged.c.table_uuid == str(uuids[0]),
            lw_staged.c.catalog == self._catalog,
            lw_staged.c.namespace == name.database,
            lw_staged.c.name == name.name,
            lw_staged.c.principal == caller.principal.name,
            lw_staged.c.expires_ms > self._now_ms(),
        )
        with read(self._engine) as connection:
            row = connection.execute(statement).first()
            known = state.table_by_uuid(connection, uuids[0])
        if row is None and known and (known.name, known.owner) == (name, caller.principal.name):
            raise TableExists(f"The table {name} exists.", table=str(name))  # the answer was lost
        if row is None:
            raise _not_staged(name)
        location = Location.parse(row.location)
        record = _record(caller, name, uuids[0], location, default=row.default_location)
        # A creation that was cut short is begun again under its internal id.
        return replace(record, id=known.id) if known and known.state is TableState.PREPARED else record

    def _authorize(self, caller: Caller, action: str, draft: _Draft) -> frozenset[str]:
        """Everything in one request: the table, every path, every key, every overlap.

        Returns:
            ids of the tables that may be overlapped.
        """
        principal, record = caller.principal, draft.record
        own = record.location if record.default_location else None
        paths = {record.location, *draft.wanted.added, *draft.write_paths}
        with read(self._engine) as connection:
            others = state.overlapping(connection, self._catalog, record.location, record.id, self._now_ms())
        requests: list[AccessRequest] = [
            gates.table_request(principal, record.name.database, record.name.name, "create"),
            *gates.storage_requests(principal, paths, own),
            *gates.key_requests(principal, draft.wanted.new_keys),
        ]
        hidden = gates.overlap_requests(principal, others)
        self._authorizer.require(caller, action, str(record.name), requests, hidden=hidden)
        return frozenset(other.id for other in others)

    def _require_free(self, name: TableName) -> None:
        """Told only to those who may create the table."""
        if self._pointers.namespace_properties(name.namespace) is None:
            raise NoSuchNamespace(
                f"The namespace {name.database} does not exist.", hint="Create the namespace first."
            )
        bound = loading.settle(self._engine, self._catalog, self._pointers, name)
        if bound is not None or self._pointers.load(name) is not None:
            raise TableExists(f"The table {name} exists.", table=str(name))

    def _land(self, caller: Caller, draft: _Draft, overlaps: frozenset[str]) -> LoadedTable:
        governance.check_schema(draft.wanted.spec, draft.metadata, str(draft.record.name))
        refs, made = self._keyring.keys_for(draft.record, draft.wanted.spec)
        with read(self._engine) as connection:
            version = state.next_governed_version(connection, draft.record.id)
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
        files = self._inspector.commit(before, draft.metadata)
        landed = self._lander.land(
            Landing(
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
        with loading.left_to_the_next_load("a creation"), write(self._engine) as connection:
            mine = lw_staged.c.table_uuid == str(draft.record.table_uuid)
            connection.execute(delete(lw_staged).where(mine))
        faults.point("create:unstaged")
        return landed

    def _default_location(self, name: TableName, table_uuid: UUID) -> Location:
        levels = [slug(level) for level in name.namespace]
        return self._warehouse.child(*levels, f"{slug(name.name)}-{table_uuid}")

    def _staged_row(self, caller: Caller, record: TableRecord) -> dict[str, object]:
        return {
            "table_uuid": str(record.table_uuid),
            "catalog": self._catalog,
            "namespace": record.name.database,
            "name": record.name.name,
            "location": record.location.canonical,
            "default_location": record.default_location,
            "principal": caller.principal.name,
            "expires_ms": self._now_ms() + self._staged_ttl_ms,
        }


def _record(
    caller: Caller, name: TableName, table_uuid: UUID, location: Location, *, default: bool
) -> TableRecord:
    return TableRecord(
        id=state.new_table_id(),
        table_uuid=table_uuid,
        name=name,
        owner=caller.principal.name,
        location=location,
        default_location=default,
        state=TableState.PREPARED,
    )


def _new_metadata(new: NewTable, record: TableRecord, ordinary: dict[str, str]) -> TableMetadata:
    try:
        return new_table_metadata(
            schema=new.schema,
            partition_spec=new.partition_spec,
            sort_order=new.sort_order,
            location=record.location.canonical,
            properties=ordinary,
            table_uuid=record.table_uuid,
        )
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise RequestInvalid(
            f"The schema, partition spec and sort order do not fit together: {type(error).__name__}.",
            table=str(new.name),
            rule="schema",
        ) from error


def _check_format_version(ordinary: dict[str, str], table: str) -> None:
    asked = ordinary.get(_FORMAT_VERSION, str(WRITTEN_FORMAT_VERSION))
    if asked != str(WRITTEN_FORMAT_VERSION):
        raise UnsupportedFormatVersion(
            f"Tables of format version {asked[:20]!r} are not written here.",
            table=table,
            rule="format-version",
            hint=f"Use format version {WRITTEN_FORMAT_VERSION}.",
        )


def _not_staged(name: TableName) -> RequestInvalid:
    return RequestInvalid(
        "The commit creates a table whose identity this catalog did not give out to you.",
        table=str(name),
        rule="staged",
        hint="Create the table, or stage its creation, and commit what the answer names.",
    )
