"""Registers, adopts, reseals and restores tables and metadata that did not come through the catalog.

- Metadata is sealed only after it was checked as a whole. Its location, write paths and overlaps are
  authorized as if a commit had set them.
- A dropped table is registered again with its identity (`undrop`).
"""

from __future__ import annotations

from dataclasses import replace

from pyiceberg.table.metadata import TableMetadata

from catalog.authorization import table_access as access_rules
from catalog.authorization.authorizer import Caller
from catalog.base import crash_points
from catalog.base.errors import CommitConflict, NoSuchTable
from catalog.base.identifiers import TableName
from catalog.base.progress import Tell, silent
from catalog.context import ServiceContext
from catalog.db.engine import read, write
from catalog.iceberg.metadata import last_sequence_number, parse_metadata
from catalog.reading import loading
from catalog.reading.loading import LoadedTable
from catalog.rules.encryption_policy import Verdict
from catalog.state import claims, seals, table_state
from catalog.state.pointers import Move
from catalog.state.seals import Digest, Seal, SealRequest, SealState
from catalog.state.table_state import Governed, TableRecord, TableState
from catalog.storage.errors import ObjectMissing
from catalog.tables.undrop import Undrop
from policy.encryption.epochs import Epoch, Epochs
from policy.encryption.specification import EncryptionSpec, Mechanism
from policy.errors import MetadataTampered, MetadataUnsealed, RequestInvalid
from policy.location.allow_list import AllowList
from policy.location.location import Location
from policy.privileges import tables as table_rules
from policy.privileges.operations import required, storage_requests
from policy.privileges.requests import AccessRequest


class Registration:
    """Seals tables of other catalogs, and metadata that was written without the catalog.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._max_metadata_bytes = context.settings.limits.metadata_bytes
        self._undrop = Undrop(context)

    def register(
        self, caller: Caller, name: TableName, metadata_location: str, tell: Tell = silent
    ) -> LoadedTable:
        """Register a table from its metadata.json.

        Args:
            caller: the caller.
            name: the name.
            metadata_location: location of the metadata.json.
            tell: is told how many snapshots are checked.

        Raises:
            NotAuthorized: CREATE on the name, RWStorage on location and metadata, and ALTER on each table
                that overlaps are needed; and ALTER on the old table, where the UUID is a dropped one's.
            MetadataTampered: the UUID is bound to a table that exists, or the metadata is not what was
            sealed.
            TableExists: the name is taken.
            InvalidInput, LocationNotAllowed, EncryptionPolicyViolation: the metadata breaks a rule.
        """
        with self._context.authorizer.recorded(caller, "table.register", str(name)):
            return self._register(caller, "table.register", name, Location.parse(metadata_location), tell)

    def adopt(self, caller: Caller, name: TableName, tell: Tell = silent) -> LoadedTable:
        """Govern a table whose pointer another catalog created in the same pointer store.

        Args:
            caller: the caller.
            name: the table.
            tell: is told how many snapshots are checked.

        Raises:
            as `register`; NoSuchTable if the pointer store does not know it.
        """
        with self._context.authorizer.recorded(caller, "table.adopt", str(name)):
            self._context.require(caller, "table.adopt", name)
            pointer = self._context.pointers.load(name)
            if pointer is None:
                raise NoSuchTable(
                    f"The pointer store has no table {name}, so there is nothing to adopt.", table=str(name)
                )
            return self._register(caller, "table.adopt", name, Location.parse(pointer), tell)

    def reseal(self, caller: Caller, name: TableName, tell: Tell = silent) -> LoadedTable:
        """Check metadata that was written without the catalog as a whole, and seal it.

        Args:
            caller: the caller.
            name: the table.
            tell: is told how many snapshots are checked.

        Raises:
            NotAuthorized: ALTER and UPDATE on the table are needed, since schema and snapshots may be others,
                and what a commit would need to set the location and the write paths that the metadata names;
                and `unprotect`, where the metadata forgets what a column under an encryption rule was called.
            EncryptionPolicyViolation: as a commit that would have made the same of the table.
            RequestInvalid: the metadata is sealed already.
            MetadataUnsealed: the table is or was encrypted; only metadata that came through the catalog
            counts. LocationNotAllowed, MetadataTampered, …: the metadata breaks a rule.
        """
        on = self._context.on(caller, name)
        self._context.authorizer.require(caller, "table.reseal", str(name), required("table.alter", on))
        with self._context.authorizer.recorded(caller, "table.reseal", str(name)):
            table = self._context.loader.load(name)
            if table.seal is not None:
                raise RequestInvalid(
                    f"The current metadata of {name} is already sealed.", table=str(name), rule="seal"
                )
            if table.governed.ever_encrypted:
                raise MetadataUnsealed(
                    "The table is or was encrypted, so metadata that was not committed through the "
                    "catalog cannot be sealed.",
                    table=str(name),
                    rule="unsealed-encrypted",
                    hint="Restore the sealed metadata with `lakewarden table restore`.",
                )
            verdict = self._verdict_on_unsealed(table)
            on = caller.on(name, table.record.owner)
            first = required("table.reseal", on)
            if verdict.downgrades:
                first += required("table.unprotect", on)
            self._authorize_taking(
                caller, "table.reseal", table.record, table.metadata, first, _own_location(table.record)
            )
            verdict.enforce(str(name))
            files = self._context.inspector.whole(table, tell)
            return replace(table, seal=self._seal_in_place(caller, table, files))

    def restore(self, caller: Caller, name: TableName) -> LoadedTable:
        """Set the pointer to the metadata that was sealed last.

        Raises:
            NotAuthorized: ALTER on the table is needed.
            MetadataTampered: the sealed metadata itself was changed.
        """
        self._context.require(caller, "table.restore", name)
        with self._context.authorizer.recorded(caller, "table.restore", str(name)):
            record = self._context.loader.record(name)
            with read(self._context.engine) as connection:
                seal = seals.current(connection, record.id)
            if seal is None:
                raise MetadataUnsealed(
                    f"The table {name} has no sealed metadata to restore.", table=str(name), rule="seal"
                )
            pointer = self._context.pointers.load(name)
            if pointer is None:
                self._context.pointers.create(name, seal.metadata_location)
            elif pointer != seal.metadata_location:
                self._context.pointers.swap([Move(name, pointer, seal.metadata_location)])
            crash_points.point("restore:pointer-moved")
            return self._context.loader.load_sealed(name)

    def _register(
        self, caller: Caller, action: str, name: TableName, location: Location, tell: Tell
    ) -> LoadedTable:
        first = [
            *required(action, caller.on(name)),
            *storage_requests(caller.on(name, caller.principal.name), [location]),
        ]
        self._context.authorizer.require(caller, action, str(name), first)
        data = self._context.storage.read(location, limit=self._max_metadata_bytes)
        metadata = parse_metadata(
            data,
            path=location.original,
            table=str(name),
            max_bytes=self._max_metadata_bytes,
        )
        self._context.loader.settle(name)
        with read(self._context.engine) as connection:
            known = table_state.table_by_uuid(connection, metadata.table_uuid)
        if known is not None and known.state is not TableState.PREPARED:
            found = LoadedTable(known, _plain(known), metadata, location.original, None)
            return self._undrop.revive(caller, name, found, data, first)
        record = TableRecord(
            id=known.id if known is not None else table_state.new_table_id(),
            table_uuid=metadata.table_uuid,
            name=name,
            owner=caller.principal.name,
            location=Location.parse(metadata.location),
            default_location=False,
            state=TableState.PREPARED,
        )
        overlaps = self._authorize_taking(caller, "table.register", record, metadata, first, None)
        table = LoadedTable(record, _plain(record), metadata, location.original, None)
        self._context.standard_clients.require(caller, "table.register", table)
        self._context.encryption.of_new(name, metadata, table.governed.spec).enforce(str(name))
        if known is not None:
            return self._resume(record, known, location, data)
        files = self._context.inspector.whole(table, tell)
        return self._seal_new(caller, table, Digest.of(data), files, overlaps)

    def _authorize_taking(
        self,
        caller: Caller,
        action: str,
        record: TableRecord,
        metadata: TableMetadata,
        first: list[AccessRequest],
        exempt: Location | None,
    ) -> frozenset[str]:
        """Authorize the locations in the metadata as if a commit had set them.

        Returns:
            ids of the tables that the location is permitted to overlap.
        """
        table = str(record.name)
        location = Location.parse(metadata.location)
        table_rules.check_ordinary_properties(metadata.properties, table)
        table_rules.check_table_location(location, table)
        paths = [location, *table_rules.write_paths(metadata.properties)]
        others = self._context.overlapping(record, paths)
        requests = [*first, *storage_requests(caller.on(record.name, record.owner), paths, exempt)]
        hidden = access_rules.overlap_requests(caller, others)
        self._context.authorizer.require(caller, action, table, requests, hidden=hidden)
        return frozenset(other.id for other in others)

    def _seal_new(
        self,
        caller: Caller,
        table: LoadedTable,
        digest: Digest,
        files: tuple[seals.SealedFile, ...],
        overlaps: frozenset[str],
    ) -> LoadedTable:
        record = table.record
        with write(self._context.engine) as connection:
            table_state.require_unbound(connection, self._context.catalog, record.name)
            claims.require_unclaimed(
                connection, self._context.catalog, record, overlaps, self._context.now_ms()
            )
            table_state.add_table(connection, self._context.catalog, record, self._context.now_ms())
            table_state.add_governed(
                connection, record.id, table.governed, caller.principal.name, self._context.now_ms()
            )
            seal = seals.prepare(connection, self._request(caller, table, digest, None, files))
        crash_points.point("register:prepared")
        self._reveal(record.name, table.metadata_location, seal)
        return replace(table, seal=seal)

    def _resume(
        self, record: TableRecord, known: TableRecord, location: Location, data: bytes
    ) -> LoadedTable:
        """Complete an interrupted registration for the same user and name."""
        with read(self._context.engine) as connection:
            seal = seals.find(connection, location.original)
        mine = (known.name, known.owner) == (record.name, record.owner)
        if not mine or seal is None or seal.table_id != known.id or seal.state is not SealState.PREPARED:
            raise CommitConflict(
                "Another request is creating a table with this UUID.",
                table=str(record.name),
                hint="If that request was interrupted, repeat it as the same user with the same name.",
            )
        name = str(record.name)
        seals.check_digest(data, seal.digest, what="table metadata", path=location.original, table=name)
        self._reveal(record.name, location.original, seal)
        return self._context.loader.load_sealed(record.name)

    def _reveal(self, name: TableName, location: str, seal: Seal) -> None:
        # It can exist already: an adopted table, or a repeated call.
        if self._context.pointers.load(name) != location:
            self._context.pointers.create(name, location)
        crash_points.point("register:pointer-made")
        with loading.left_to_the_next_load("a registration"), write(self._context.engine) as connection:
            loading.finish(connection, self._context.catalog, name, seal)
        crash_points.point("register:bound")

    def _verdict_on_unsealed(self, table: LoadedTable) -> Verdict:
        """Check the metadata by the encryption rules: as a change of what was sealed, or as a new table."""
        spec = table.governed.spec
        try:
            sealed = self._sealed_last(table.record)
        except (MetadataTampered, ObjectMissing):
            sealed = None
        if sealed is None:
            return self._context.encryption.of_new(table.record.name, table.metadata, spec)
        return self._context.encryption.of_change(replace(table, metadata=sealed), table.metadata, spec)

    def _sealed_last(self, record: TableRecord) -> TableMetadata | None:
        """Return the metadata that was sealed last, or None."""
        with read(self._context.engine) as connection:
            seal = seals.current(connection, record.id)
        if seal is None:
            return None
        path, name = seal.metadata_location, str(record.name)
        data = self._context.storage.read(Location.parse(path), limit=self._max_metadata_bytes)
        seals.check_digest(data, seal.digest, what="table metadata", path=path, table=name)
        return parse_metadata(data, path=path, table=name, max_bytes=self._max_metadata_bytes)

    def _seal_in_place(self, caller: Caller, table: LoadedTable, files: tuple[seals.SealedFile, ...]) -> Seal:
        """Seal the metadata that the pointer names, as the successor of the current one."""
        location = Location.parse(table.metadata_location)
        data = self._context.storage.read(location, limit=self._max_metadata_bytes)
        path, limit = location.original, self._max_metadata_bytes
        if parse_metadata(data, path=path, table=table.name, max_bytes=limit) != table.metadata:
            raise MetadataTampered("The metadata.json changed while it was being checked.", table=table.name)
        digest = Digest.of(data)
        with write(self._context.engine) as connection:
            known = seals.find(connection, table.metadata_location)
            if known is not None and known.state is SealState.SUPERSEDED:
                seals.check_digest(
                    data, known.digest, what="table metadata", path=location.original, table=table.name
                )
                seals.reinstate(connection, known)
                return known
            if known is not None:
                seals.discard(connection, known)
            before = seals.current(connection, table.record.id)
            base = before.metadata_location if before else None
            seal = seals.prepare(connection, self._request(caller, table, digest, base, files))
            seals.promote(connection, seal)
        return seal

    def _request(
        self,
        caller: Caller,
        table: LoadedTable,
        digest: Digest,
        base: str | None,
        files: tuple[seals.SealedFile, ...],
    ) -> SealRequest:
        return SealRequest(
            table_id=table.record.id,
            metadata_location=table.metadata_location,
            base_location=base,
            digest=digest,
            governed_version=table.governed.version,
            last_sequence_number=last_sequence_number(table.metadata),
            author=caller.principal.name,
            at_ms=self._context.now_ms(),
            files=files,
        )


def _own_location(record: TableRecord) -> Location | None:
    """Return the location that needs no authorization: the one that the catalog chose."""
    return record.location if record.default_location else None


def _plain(record: TableRecord) -> Governed:
    """Return the governed version of a registered table: its location, and no encryption."""
    spec = EncryptionSpec(Mechanism.PLAINTEXT)
    return Governed(1, AllowList.of([record.location]), spec, Epochs.of([Epoch(0, spec)]))
