"""Publishes new metadata as the table's current metadata, in steps that a crash can separate.

    write metadata.json → prepare (seal, files, governed version, keys) → move the pointer → promote

A crash before the pointer moves leaves nothing visible. After a later crash, the next load of the table
completes the commit (`catalog.reading.loading`). If commits race, only the pointer decides which one wins.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from pyiceberg.table.metadata import TableMetadata
from sqlalchemy import Connection

from catalog.audit.outcomes import note
from catalog.base import crash_points
from catalog.base.errors import CommitConflict, TableExists
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.db.engine import read, write
from catalog.envelope.peks import PekRecord, PekState
from catalog.iceberg.metadata import last_sequence_number, new_metadata_location, stored_metadata
from catalog.reading import loading
from catalog.reading.loading import LoadedTable
from catalog.state import claims, seals, table_state
from catalog.state import pek_records as key_records
from catalog.state.seals import Digest, Seal, SealedFile, SealRequest
from catalog.state.table_state import Governed, TableRecord, TableState
from policy.encryption.epochs import PekRef
from policy.errors import CommitStateUnknown, LakewardenError, StateUnavailable
from policy.location.location import Location

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Publication:
    """New metadata of a table, checked and authorized, ready to publish.

    Attributes:
        record: the table; it is not in the database yet if `base` is None.
        base: the table as it was loaded, or None if it is being created.
        metadata: the new metadata.
        governed: the governed version that applies from then on.
        governs: whether `governed` is a new version.
        staged: whether `governed` is recorded already, since the write began.
        files: manifest lists and manifests to seal.
        peks: new keys to record with it.
        relies: versions of keys that the commit uses; each has to be active when the commit is prepared.
        author: name of the principal.
        overlaps: ids of the tables whose locations the user is authorized to overlap.
    """

    record: TableRecord
    base: LoadedTable | None
    metadata: TableMetadata
    governed: Governed
    governs: bool
    files: tuple[SealedFile, ...]
    peks: tuple[PekRecord, ...]
    author: str
    relies: frozenset[PekRef] = frozenset()
    overlaps: frozenset[str] = frozenset()
    staged: bool = False

    @property
    def location(self) -> Location:
        """Return the table's location after the commit."""
        return Location.parse(self.metadata.location)

    @property
    def claims_location(self) -> bool:
        """Return whether the table is new or moves to another location."""
        return self.base is None or self.location != self.record.location


class Publisher:
    """Publishes new metadata.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._max_metadata_bytes = context.settings.limits.metadata_bytes

    def publish(self, publication: Publication) -> LoadedTable:
        """Write, seal and publish new metadata.

        Raises:
            CommitConflict: another commit came first; nothing was changed.
            TableExists: the name of a new table was taken meanwhile; nothing was changed.
            CommitStateUnknown: the pointer store did not say whether it moved the pointer.
            StateUnavailable, StorageUnavailable: nothing was changed.
        """
        previous = publication.base.metadata_location if publication.base else None
        location = new_metadata_location(publication.metadata, previous)
        data = stored_metadata(
            publication.metadata,
            location.original,
            table=str(publication.record.name),
            max_bytes=self._max_metadata_bytes,
        )
        crash_points.point("checked")
        self._context.storage.create(location, data)
        crash_points.point("metadata-written")
        seal = self._prepared(publication, location, Digest.of(data))
        crash_points.point("prepared")
        self._move(publication, seal, location)
        crash_points.point("pointer-moved")
        self._promote(publication, seal)
        crash_points.point("promoted")
        note("snapshot", publication.metadata.current_snapshot_id)
        return LoadedTable(
            publication.record, publication.governed, publication.metadata, location.original, seal
        )

    def _prepared(self, publication: Publication, location: Location, digest: Digest) -> Seal:
        try:
            return self._prepare(publication, location, digest)
        except CommitStateUnknown as unknown:
            # The preparation can be recorded or not. The pointer has not moved, so nothing was committed.
            raise StateUnavailable(
                "The database did not record the commit. Nothing was committed.",
                table=str(publication.record.name),
                hint="Try again.",
            ) from unknown
        except LakewardenError:
            self._discard(location)
            raise

    def _prepare(self, publication: Publication, location: Location, digest: Digest) -> Seal:
        with write(self._context.engine) as connection:
            _check_base(connection, publication)
            if publication.claims_location:
                moved = replace(publication.record, location=publication.location)
                claims.require_unclaimed(
                    connection, self._context.catalog, moved, publication.overlaps, self._context.now_ms()
                )
                if publication.base is not None:
                    table_state.set_location(connection, publication.record.id, publication.location)
            if publication.base is None:
                self._prepare_table(connection, publication.record)
            if publication.governs:
                # The governed version can change the allowed list; see `claims.is_shared`.
                claims.lock_locations(connection)
                self._prepare_governed(connection, publication)
            key_records.add(connection, publication.peks, self._context.now_ms())
            key_records.require(connection, publication.relies, PekState.ACTIVE)
            return seals.prepare(connection, self._request(publication, location, digest))

    def _prepare_table(self, connection: Connection, record: TableRecord) -> None:
        """Record the identity of a new table, unless a staged or interrupted creation recorded it."""
        known = table_state.table_by_id(connection, record.id)
        if known is None:
            table_state.add_table(connection, self._context.catalog, record, self._context.now_ms())
        elif known.state is not TableState.PREPARED:
            raise _given_up(record)

    def _prepare_governed(self, connection: Connection, publication: Publication) -> None:
        """Record a new governed version, unless a staged write recorded it."""
        if publication.staged:
            version = publication.governed.version
            table_state.require_prepared(connection, publication.record.id, version)
            return
        table_state.add_governed(
            connection,
            publication.record.id,
            publication.governed,
            publication.author,
            self._context.now_ms(),
        )

    def _request(self, publication: Publication, location: Location, digest: Digest) -> SealRequest:
        return SealRequest(
            table_id=publication.record.id,
            metadata_location=location.original,
            base_location=publication.base.metadata_location if publication.base else None,
            digest=digest,
            governed_version=publication.governed.version,
            last_sequence_number=last_sequence_number(publication.metadata),
            author=publication.author,
            at_ms=self._context.now_ms(),
            files=publication.files,
        )

    def _move(self, publication: Publication, seal: Seal, location: Location) -> None:
        try:
            moved = self._try_move(publication, location.original)
        except CommitStateUnknown as problem:
            moved = self._where_it_stands(publication, location.original, problem)
        except LakewardenError:
            self._lost(publication, seal, location)
            raise
        if not moved:
            self._lost(publication, seal, location)
            raise CommitConflict(
                "Another commit changed the table first.",
                table=str(publication.record.name),
                hint="Load the table and commit again.",
            )

    def _try_move(self, publication: Publication, location: str) -> bool:
        if publication.base is not None:
            return self._context.pointers.swap(
                publication.record.name, publication.base.metadata_location, location
            )
        self._context.pointers.create(publication.record.name, location)
        return True

    def _where_it_stands(self, publication: Publication, location: str, problem: LakewardenError) -> bool:
        """Determine whether a pointer move took place although its answer was lost."""
        before = publication.base.metadata_location if publication.base else None
        try:
            stands = self._context.pointers.settled(publication.record.name)
        except (StateUnavailable, CommitStateUnknown) as again:
            raise _unknown(publication.record.name) from again
        if stands == location:
            return True
        # A creation without an answer can still take effect later: there is no pointer yet to wait for.
        if stands == before and before is not None:
            raise StateUnavailable(
                "The pointer store did not move the metadata pointer. Nothing was committed.",
                table=str(publication.record.name),
                hint="Try again.",
            ) from problem
        raise _unknown(publication.record.name) from problem

    def _promote(self, publication: Publication, seal: Seal) -> None:
        """Complete a commit after the pointer moved. If that fails, the next load completes it."""
        name = publication.record.name
        try:
            with write(self._context.engine) as connection:
                promoted = loading.finish(
                    connection, self._context.catalog, name, seal, governs=publication.governs
                )
                if promoted and publication.base is not None and publication.claims_location:
                    table_state.set_location(connection, publication.record.id, publication.location)
        except (StateUnavailable, CommitStateUnknown, TableExists) as problem:
            logger.warning("a published commit is completed by the next load: %s", type(problem).__name__)
            return
        if not promoted:
            if publication.base is None:
                self._withdraw(publication.record, seal)
            # Another process moved the pointer back during the commit.
            raise _unknown(name)

    def _withdraw(self, record: TableRecord, seal: Seal) -> None:
        """Delete the pointer of a new table whose creation was given up during the commit."""
        with read(self._context.engine) as connection:
            known = table_state.table_by_id(connection, record.id)
        if known is None or known.state is not TableState.PURGED:
            return
        if self._context.pointers.delete(record.name, seal.metadata_location):
            self._discard(Location.parse(seal.metadata_location))
            raise _given_up(record)

    def _lost(self, publication: Publication, seal: Seal, location: Location) -> None:
        """Clean up after a commit that lost the race."""
        try:
            with write(self._context.engine) as connection:
                seals.abandon(connection, seal)
                if publication.base is not None and publication.claims_location:
                    record = publication.record
                    table_state.set_location(
                        connection, record.id, record.location, default=record.default_location
                    )
        except (StateUnavailable, CommitStateUnknown):
            # The seal stays prepared. Its base never becomes current again, so it is equivalent to abandoned.
            logger.warning("a lost commit could not be marked as abandoned")
            return
        self._discard(location)

    def _discard(self, location: Location) -> None:
        try:
            self._context.storage.delete(location)
        except LakewardenError as problem:
            logger.warning("a metadata file that nobody refers to is left behind: %s", type(problem).__name__)


def _check_base(connection: Connection, publication: Publication) -> None:
    """Lock the table's commits, and check that the commit's base is still current.

    A pointer that another process moved back must not make an older seal the base of a commit.
    """
    seals.lock_table(connection, publication.record.id)
    before = seals.current(connection, publication.record.id)
    expected = publication.base.metadata_location if publication.base else None
    now = table_state.table_by_id(connection, publication.record.id)
    # Garbage collection can have removed files of the commit after they were checked.
    is_cleaned = now is not None and now.cleanups != publication.record.cleanups
    if is_cleaned or (before.metadata_location if before else None) != expected:
        raise CommitConflict(
            "Another commit changed the table first.",
            table=str(publication.record.name),
            hint="Load the table and commit again.",
        )


def _given_up(record: TableRecord) -> CommitConflict:
    return CommitConflict(
        f"The creation of the table {record.name} was abandoned.",
        table=str(record.name),
        hint="Create the table again.",
    )


def _unknown(name: TableName) -> CommitStateUnknown:
    return CommitStateUnknown(
        "The pointer store did not answer, so it is unknown whether the commit took effect.",
        table=str(name),
        rule="commit-state",
        hint="Load the table, check whether it has the change, and commit again only if it does not.",
    )
