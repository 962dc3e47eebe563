"""Loads a trusted table by name, or raises the precise reason why it cannot be trusted.

The pointer store and storage are not trusted. A load therefore goes

    name → binding → internal id → seal of the metadata.json that the pointer names → bytes → digest → parse

and stops at the first step that does not hold. A pointer on metadata that is not the current sealed one makes
the table *unsealed*: a writer went straight to the store, or rolled the pointer back. Such a table can be
read, each path checked on each read, where its namespace allows it; it is never committed to and never gets a
key.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.table.metadata import TableMetadata
from sqlalchemy import Connection, Engine

from catalog.base.errors import NoSuchTable
from catalog.base.existence import no_table
from catalog.base.identifiers import TableName
from catalog.base.recent import Recent
from catalog.db.engine import read, write
from catalog.iceberg.metadata import parse_metadata
from catalog.state import pek_records as key_records
from catalog.state import seals, standing, table_state
from catalog.state.pointers import PointerStore
from catalog.state.seals import Seal, SealState
from catalog.state.standing import Standing
from catalog.state.table_state import Governed, TableRecord, TableState
from catalog.storage.base import Storage
from catalog.storage.errors import MetadataMissing, ObjectMissing
from catalog.storage.volumes import stored_before
from policy.encryption import governed as governed_names
from policy.encryption.specification import EncryptionSpec, StandardClients
from policy.errors import (
    CommitStateUnknown,
    LocationNotAllowed,
    MetadataTampered,
    MetadataUnsealed,
    StateUnavailable,
)
from policy.location.location import Location
from policy.privileges.namespaces import UNSEALED_PROPERTY
from policy.privileges.tables import configures_readers

logger = logging.getLogger(__name__)

#: The maximum number of snapshots in verified metadata that is remembered.
_MAX_SNAPSHOTS: Final = 20_000
#: How often a load starts again because commits overtook it.
_ATTEMPTS: Final = 100

_UNSEALED_HINT = "Examine it and run `lakewarden table reseal`, or go back with `lakewarden table restore`."


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table that the catalog trusts.

    Attributes:
        record: its identity.
        governed: what governs it.
        metadata: the parsed metadata.json.
        metadata_location: where that file lies.
        seal: the seal of that file, or None if it is unsealed.
    """

    record: TableRecord
    governed: Governed
    metadata: TableMetadata
    metadata_location: str
    seal: Seal | None

    @property
    def name(self) -> str:
        """The dotted name."""
        return str(self.record.name)

    @property
    def etag(self) -> str:
        """Return the ETag; it changes with the metadata and with the governed properties."""
        text = f"{self.metadata_location}\n{self.governed.version}\n{self.seal is not None}"
        return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'

    @property
    def governed_copies(self) -> list[str]:
        """Return governed properties in metadata.json, where they have no effect."""
        return sorted(name for name in self.metadata.properties if governed_names.is_governed(name))

    @property
    def shown_metadata(self) -> TableMetadata:
        """Return the metadata as clients get it.

        The governed properties in force stand in place of whatever the file says of them, and what would
        configure the readers' file access, which only unsealed metadata can hold, is left out.
        """
        ordinary = {
            name: value
            for name, value in self.metadata.properties.items()
            if not governed_names.is_governed(name) and not configures_readers(name)
        }
        return self.metadata.model_copy(update={"properties": ordinary | self.governed.to_properties()})


class TableLoader:
    """Loads tables.

    Args:
        engine: the catalog's database.
        catalog: the catalog's name.
        pointers: where the pointers are.
        storage: where the metadata files are.
        max_metadata_bytes: bound on a metadata.json.
        unsealed_default: ``allow`` or ``forbid``, for namespaces that do not say.
        standard_clients: whether standard clients can load encrypted tables, for namespaces that do not say.
    """

    def __init__(
        self,
        engine: Engine,
        catalog: str,
        pointers: PointerStore,
        storage: Storage,
        *,
        max_metadata_bytes: int,
        unsealed_default: str,
        standard_clients: StandardClients,
    ) -> None:
        self._engine = engine
        self._catalog = catalog
        self._pointers = pointers
        self._storage = storage
        self._max_metadata_bytes = max_metadata_bytes
        self.unsealed_default = unsealed_default
        self._standard_clients = standard_clients
        self._verified: Recent[TableMetadata] = Recent(_MAX_SNAPSHOTS, lambda each: len(each.snapshots) + 1)

    def owner(self, name: TableName) -> str | None:
        """Return the owner of a table for policies; None if no such table is governed."""
        known = self.standing(name)
        if known is not None:
            return known.record.owner
        with read(self._engine) as connection:
            record = table_state.bound(connection, self._catalog, name)
        record = record or self.settle(name)
        return record.owner if record is not None else None

    def standing(self, name: TableName) -> Standing | None:
        """Return what the rows of a sealed table say; None for any other, which `load` looks at closely."""
        rows = standing.rows_of(self._engine, self._catalog, name)
        return None if rows is None else standing.standing_of(rows)

    def settle(self, name: TableName) -> TableRecord | None:
        """See `settle`."""
        return settle(self._engine, self._catalog, self._pointers, name)

    def record(self, name: TableName) -> TableRecord:
        """Return the table bound to a name, whatever the state of its metadata.

        Raises:
            NoSuchTable: there is none; a load says what is wrong with a name that is not bound.
        """
        record = self.settle(name)
        return self.load(name).record if record is None else record

    def load(self, name: TableName, *, again: bool = True, known: Standing | None = None) -> LoadedTable:
        """Load a table, sealed or unsealed.

        Args:
            name: the table.
            again: whether sealed metadata is read again that this process read and verified before. Where it
                was changed or deleted since, it is only noticed then.
            known: what the rows of the table said when this request read them.

        Raises:
            NoSuchTable: there is none of that name, or it is not governed by this catalog.
            MetadataTampered: the metadata is not what was sealed, or belongs to another table.
            MetadataUnsealed: the metadata is unsealed and the namespace forbids that.
            LocationNotAllowed: the pointer leads out of the allowed locations.
            MetadataMissing: the metadata was deleted.
            StorageUnavailable: the storage does not answer, or the warehouse or bucket is gone.
        """
        for _ in range(_ATTEMPTS):
            pointer, record, governed, seal = self._found(name, known or self.standing(name))
            try:
                return self._loaded(name, pointer, record, governed, seal, again=again)
            except MetadataMissing:
                # Later commits can have deleted it (`catalog.commits.metadata_log`).
                if self._pointers.load(name) == pointer:
                    raise
                known = None
        raise _too_fast(name)

    def load_dropped(self, record: TableRecord) -> LoadedTable | None:
        """Load a table as it was when it was dropped; metadata that was verified before is not read again.

        Returns:
            None if it had no sealed metadata.

        Raises:
            MetadataMissing: the metadata was deleted.
            MetadataTampered: it is not what was sealed, or belongs to another table.
            StorageUnavailable: the storage does not answer.
        """
        with read(self._engine) as connection:
            seal = seals.current(connection, record.id)
            governed = table_state.current_governed(connection, record.id)
        if seal is None or governed is None:
            return None
        pointer = seal.metadata_location
        return self._loaded(record.name, pointer, record, governed, seal, again=False)

    def _loaded(
        self,
        name: TableName,
        pointer: str,
        record: TableRecord,
        governed: Governed,
        seal: Seal | None,
        *,
        again: bool,
    ) -> LoadedTable:
        """Load a table in the state in which it was found."""
        if seal is None:
            self._check_unsealed(record, governed, pointer)
        if seal is None or again:
            metadata = self._metadata(name, pointer, seal)
        else:
            key = (pointer, seal.digest)
            metadata = self._verified.get(key, lambda: self._metadata(name, pointer, seal))
        _check_uuid(metadata, record, pointer)
        if seal is not None:
            record = self._relocated(record, metadata)
        return LoadedTable(record, governed, metadata, pointer, seal)

    def _metadata(self, name: TableName, pointer: str, seal: Seal | None) -> TableMetadata:
        """Read metadata, and compare it with its seal if it has one."""
        try:
            data = self._read(Location.parse(pointer))
        except ObjectMissing as gone:
            # Iceberg's compatibility kit looks for this text.
            raise MetadataMissing(
                f"Failed to open input stream for file: {pointer}",
                table=str(name),
                rule=gone.rule,
                hint="The table's metadata.json was deleted. Restore the file from a copy.",
            ) from gone
        digest = None
        if seal is not None:
            digest = seals.check_digest(
                data, seal.digest, what="table metadata", path=pointer, table=str(name)
            ).sha256
        return parse_metadata(
            data, path=pointer, table=str(name), max_bytes=self._max_metadata_bytes, sha256=digest
        )

    def forbids_unsealed(self, name: TableName) -> bool:
        """Return whether the namespace of a name forbids unsealed metadata."""
        properties = self._pointers.namespace_properties(name.namespace) or {}
        return properties.get(UNSEALED_PROPERTY, self.unsealed_default) != "allow"

    def admits_standard_clients(self, name: TableName, spec: EncryptionSpec) -> bool:
        """Return whether standard clients can load a table of this name and encryption: its own property,
        else its namespace's, else the catalog's setting. Those of plaintext tables always can.
        """
        if not spec.encrypts:
            return True
        properties = self._pointers.namespace_properties(name.namespace) or {}
        default = properties.get(governed_names.STANDARD_CLIENTS, self._standard_clients)
        return (spec.standard_clients or default) == StandardClients.LOAD

    def exposes(self, source: TableName, target: TableName, spec: EncryptionSpec) -> bool:
        """Return whether a table would have less protection under another name: unsealed metadata or standard
        clients would be permitted only there.
        """
        unsealed = self.forbids_unsealed(source) and not self.forbids_unsealed(target)
        admits = self.admits_standard_clients(target, spec) and not self.admits_standard_clients(source, spec)
        return unsealed or admits

    def load_sealed(self, name: TableName) -> LoadedTable:
        """Load a table for an operation that needs sealed metadata.

        Raises:
            MetadataUnsealed: the metadata did not come through the catalog.
        """
        table = self.load(name)
        if table.seal is None:
            raise MetadataUnsealed(
                "The table's metadata was not committed through the catalog, so this operation "
                "is not possible.",
                table=str(name),
                path=table.metadata_location,
                rule="unsealed",
                hint=_UNSEALED_HINT,
            )
        return table

    def _read(self, location: Location) -> bytes:
        with stored_before(self._storage, location):
            return self._storage.read(location, limit=self._max_metadata_bytes)

    def _found(
        self, name: TableName, known: Standing | None
    ) -> tuple[str, TableRecord, Governed, Seal | None]:
        """Return the location of the pointer, and its state.

        Without the rows of a sealed table, pointer and seal are read one after the other. Where no current
        seal is found, a commit may have landed in between, or a rename; only a pointer that has not moved
        meanwhile stands on unsealed metadata.
        """
        if known is not None:
            return known.seal.metadata_location, known.record, known.governed, known.seal
        pointer = self._pointers.load(name)
        for _ in range(_ATTEMPTS):
            if pointer is None:
                raise _missing(name, self.settle(name))
            problem = None
            try:
                record, governed, seal = self._vouched(name, pointer)
            except (NoSuchTable, MetadataTampered) as refusal:
                problem, seal = refusal, None
            again = pointer if seal is not None else self._pointers.load(name)
            if again == pointer:
                if problem is not None:
                    raise problem
                return pointer, record, governed, seal
            pointer = again
        raise _too_fast(name)

    def _vouched(self, name: TableName, pointer: str) -> tuple[TableRecord, Governed, Seal | None]:
        with read(self._engine) as connection:
            record = table_state.bound(connection, self._catalog, name)
            seal = seals.find(connection, pointer)
            governed = table_state.current_governed(connection, record.id) if record is not None else None
        if seal is not None and seal.state is SealState.PREPARED:
            return self._finish(name, seal)
        if record is None or governed is None:
            raise _ungoverned(name)
        if seal is not None and seal.table_id != record.id:
            raise MetadataTampered(
                "The pointer refers to the metadata of another table.", table=str(name), rule="binding"
            )
        is_current = seal is not None and seal.state is SealState.CURRENT
        return record, governed, seal if is_current else None

    def _finish(self, name: TableName, seal: Seal) -> tuple[TableRecord, Governed, Seal | None]:
        """Promote the seal that an interrupted process did not promote; the pointer already equals its
        location.
        """
        with write(self._engine) as connection:
            promoted = finish(connection, self._catalog, name, seal)
            record = table_state.bound(connection, self._catalog, name)
            governed = table_state.current_governed(connection, record.id) if record is not None else None
        if record is None or governed is None:
            raise _ungoverned(name)
        if record.id != seal.table_id:
            raise MetadataTampered(
                "The pointer refers to the metadata of another table.", table=str(name), rule="binding"
            )
        return record, governed, seal if promoted else None

    def _relocated(self, record: TableRecord, metadata: TableMetadata) -> TableRecord:
        """Update the location that sealed metadata names; overlaps count from there now."""
        location = Location.parse(metadata.location)
        if location == record.location:
            return record
        with write(self._engine) as connection:
            table_state.set_location(connection, record.id, location)
        return replace(record, location=location, default_location=False)

    def _check_unsealed(self, record: TableRecord, governed: Governed, pointer: str) -> None:
        if self.forbids_unsealed(record.name):
            raise MetadataUnsealed(
                "The table's metadata was not committed through the catalog, and its namespace "
                "forbids such metadata.",
                table=str(record.name),
                rule="unsealed",
                hint="Run `lakewarden table restore` to go back. To accept the metadata, set "
                "lakewarden.unsealed=allow on the namespace (needs the unprotect permission), "
                "examine the metadata, and run `lakewarden table reseal`.",
            )
        decision = governed.allowed.decide(pointer)
        if not decision.allowed:
            raise LocationNotAllowed(
                "The pointer refers to a location outside of the table's allowed locations: "
                f"{decision.explanation}",
                table=str(record.name),
                rule=decision.reasons[0].rule,
                hint="Have an administrator find out who wrote to the pointer store.",
            )


def finish(
    connection: Connection, catalog: str, name: TableName, seal: Seal, *, governs: bool = True
) -> bool:
    """Promote the seal at the pointer, and bind a table that was being created.

    `governs` is whether the seal may bring a new governed version, and with it other keys in force.
    """
    seals.lock_table(connection, seal.table_id)
    record = table_state.table_by_id(connection, seal.table_id)
    if record is None or name != record.name:
        return False
    if not seals.promote(connection, seal):
        return False
    governed = table_state.current_governed(connection, record.id) if governs else None
    if governed is not None:
        key_records.retire_before(connection, record.id, governed.epochs.current.peks)
    if record.state is TableState.PREPARED:
        table_state.bind(connection, catalog, record)
    return True


def settle(engine: Engine, catalog: str, pointers: PointerStore, name: TableName) -> TableRecord | None:
    """Return the table bound to a name, after finishing what an interrupted process began.

    A creation, registration or commit whose pointer was made is promoted. A pointer that is gone was removed
    behind the catalog's back, and the name stays bound: drops and renames change both in one transaction.
    """
    pointer = pointers.load(name)
    with read(engine) as connection:
        record = table_state.bound(connection, catalog, name)
        seal = seals.find(connection, pointer) if pointer is not None else None
    if seal is None or (record is not None and seal.state is not SealState.PREPARED):
        return record
    with write(engine) as connection:
        finish(connection, catalog, name, seal)
        return table_state.bound(connection, catalog, name)


def bury(connection: Connection, record: TableRecord) -> TableRecord:
    """Make a table with an intended drop a tombstone; a purged table loses its keys with its name.

    Returns:
        the table as it is now.
    """
    seals.lock_table(connection, record.id)
    now = table_state.bury(connection, record)
    if now.state is TableState.DROPPED and now.purging:
        key_records.destroy_all(connection, record.id)
    return now


@contextmanager
def left_to_the_next_load(what: str) -> Iterator[None]:
    """For the last step of an operation that has taken effect: if it fails, `settle` does it at the next
    load.
    """
    try:
        yield
    except (StateUnavailable, CommitStateUnknown) as problem:
        logger.warning("%s took effect; the next load finishes it: %s", what, type(problem).__name__)


def _check_uuid(metadata: TableMetadata, record: TableRecord, pointer: str) -> None:
    if metadata.table_uuid != record.table_uuid:
        raise MetadataTampered(
            "The metadata has the UUID of another table.",
            table=str(record.name),
            path=pointer,
            rule="table-uuid",
            hint="Restore the pointer with `lakewarden table restore`.",
        )


def _missing(name: TableName, record: TableRecord | None) -> NoSuchTable:
    if record is None:
        return no_table(name)
    return NoSuchTable(
        f"The table {name} is governed, but its metadata pointer does not exist.",
        table=str(name),
        rule="pointer",
        hint="It was removed from the pointer store. Run `lakewarden table restore` to put it back.",
    )


def _too_fast(name: TableName) -> StateUnavailable:
    return StateUnavailable(
        "The table changes faster than it can be loaded.", table=str(name), hint="Try again."
    )


def _ungoverned(name: TableName) -> NoSuchTable:
    return NoSuchTable(
        f"The pointer store contains a table {name}, but this catalog does not govern it.",
        table=str(name),
        rule="binding",
        hint="An administrator can adopt it with `lakewarden table adopt`.",
    )
