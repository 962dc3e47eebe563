"""Publishes new metadata as the table's current metadata, in steps that a crash can separate.

    write metadata.json → prepare (seal, files, governed version, keys) → move the pointer and promote

Each step is one transaction. The pointers are in the catalog's database, so the transaction that moves a
pointer also promotes its seal: readers see both or neither, and a crash leaves nothing to complete. A pointer
that is on a prepared seal for another reason is completed by the next load (`catalog.reading.loading`). If
commits race, only the pointer decides which one wins.

A commit to several tables takes the same steps for all of them: all pointers move, or none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyiceberg.table.metadata import TableMetadata
from sqlalchemy import Connection

from catalog.audit.outcomes import note
from catalog.base import crash_points
from catalog.base.errors import CommitConflict
from catalog.base.identifiers import TableName
from catalog.commits.metadata_log import delete_unlogged
from catalog.context import ServiceContext
from catalog.db.engine import write
from catalog.envelope.peks import PekRecord, PekState
from catalog.iceberg.metadata import (
    last_sequence_number,
    new_metadata_location,
    remember_written,
    stored_metadata,
)
from catalog.reading import loading
from catalog.reading.loading import LoadedTable
from catalog.state import claims, seals, table_state
from catalog.state import pek_records as key_records
from catalog.state.pointers import Move
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


@dataclass(frozen=True, slots=True)
class _New:
    """The metadata.json of a publication."""

    publication: Publication
    location: Location
    data: bytes


@dataclass(frozen=True, slots=True)
class _Sealed:
    """A publication whose metadata.json is stored and sealed."""

    publication: Publication
    location: Location
    seal: Seal

    def loaded(self) -> LoadedTable:
        """Return the table after the commit, and note its snapshot."""
        made = self.publication
        note("snapshot", made.metadata.current_snapshot_id, str(made.record.name))
        return LoadedTable(made.record, made.governed, made.metadata, self.location.original, self.seal)


class Publisher:
    """Publishes new metadata.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._max_metadata_bytes = context.settings.limits.metadata_bytes

    def publish(self, publication: Publication) -> LoadedTable:
        """Write, seal and publish new metadata of one table; errors as in `publish_together`."""
        return self.publish_together([publication])[0]

    def publish_together(
        self, publications: Sequence[Publication], unchanged: Sequence[LoadedTable] = ()
    ) -> list[LoadedTable]:
        """Write, seal and publish new metadata of several tables: all of them or none.

        Args:
            publications: one for each table. A creation stands alone.
            unchanged: tables that must not have changed since they were loaded.

        Raises:
            CommitConflict: another commit to one of the tables came first; nothing was changed.
            TableExists: the name of a new table was taken meanwhile; nothing was changed.
            CommitStateUnknown: the pointer store did not say whether it moved the pointers.
            StateUnavailable, StorageUnavailable: nothing was changed.
        """
        written = self._written([self._new(each) for each in publications])
        sealed = self._prepared(written)
        crash_points.point("prepared")
        self._move(sealed, unchanged)
        crash_points.point("published")
        for each in publications:
            if each.base is not None:
                delete_unlogged(self._context, each.record.id, each.base.metadata, each.metadata)
        return [each.loaded() for each in sealed]

    def _new(self, publication: Publication) -> _New:
        previous = publication.base.metadata_location if publication.base else None
        location = new_metadata_location(publication.metadata, previous)
        data = stored_metadata(
            publication.metadata,
            location.original,
            table=str(publication.record.name),
            max_bytes=self._max_metadata_bytes,
        )
        if publication.base is not None:
            remember_written(
                data,
                location.original,
                publication.metadata,
                publication.base.metadata,
                table=str(publication.record.name),
                max_bytes=self._max_metadata_bytes,
            )
        return _New(publication, location, data)

    def _written(self, new: Sequence[_New]) -> Sequence[_New]:
        crash_points.point("checked")
        for at, each in enumerate(new):
            try:
                self._context.storage.create(each.location, each.data)
            except LakewardenError:
                self._discard(new[:at])
                raise
            crash_points.point("metadata-written")
        return new

    def _prepared(self, written: Sequence[_New]) -> list[_Sealed]:
        try:
            return self._prepare(written)
        except CommitStateUnknown as unknown:
            # The preparation can be recorded or not. No pointer has moved, so nothing was committed.
            raise StateUnavailable(
                "The database did not record the commit. Nothing was committed.",
                table=_names(written),
                hint="Try again.",
            ) from unknown
        except LakewardenError:
            self._discard(written)
            raise

    def _prepare(self, written: Sequence[_New]) -> list[_Sealed]:
        publications = [each.publication for each in written]
        with write(self._context.engine) as connection:
            _lock(connection, publications)
            if any(each.claims_location or each.governs for each in publications):
                # The governed version can change the allowed list; see `claims.is_shared`.
                claims.lock_locations(connection)
            sealed = []
            for each in written:
                with _naming(each.publication):
                    sealed.append(self._prepare_one(connection, each))
            return sealed

    def _prepare_one(self, connection: Connection, written: _New) -> _Sealed:
        publication = written.publication
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
            self._prepare_governed(connection, publication)
        key_records.add(connection, self._context.catalog, publication.peks, self._context.now_ms())
        key_records.require(connection, publication.relies, PekState.ACTIVE)
        seal = seals.prepare(connection, self._request(publication, written))
        return _Sealed(publication, written.location, seal)

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

    def _request(self, publication: Publication, written: _New) -> SealRequest:
        return SealRequest(
            table_id=publication.record.id,
            metadata_location=written.location.original,
            base_location=publication.base.metadata_location if publication.base else None,
            digest=Digest.of(written.data),
            governed_version=publication.governed.version,
            last_sequence_number=last_sequence_number(publication.metadata),
            author=publication.author,
            at_ms=self._context.now_ms(),
            files=publication.files,
        )

    def _move(self, sealed: Sequence[_Sealed], unchanged: Sequence[LoadedTable]) -> None:
        """Move the pointers and promote the seals, in one transaction."""
        try:
            elsewhere = self._try_move(sealed, unchanged)
        except CommitStateUnknown as problem:
            self._where_they_stand(sealed, problem)
            return
        except LakewardenError:
            self._lost(sealed)
            raise
        if elsewhere is not None:
            self._lost(sealed)
            raise _overtaken(elsewhere)

    def _try_move(self, sealed: Sequence[_Sealed], unchanged: Sequence[LoadedTable]) -> TableName | None:
        """Move the pointers; return the first table whose pointer is elsewhere, if there is one."""
        moves = [Move(each.record.name, each.metadata_location, each.metadata_location) for each in unchanged]

        def promote(connection: Connection) -> None:
            self._promote(connection, sealed)

        for each in sealed:
            name, base = each.publication.record.name, each.publication.base
            if base is None:
                self._context.pointers.create(name, each.location.original, promote)
                return None
            moves.append(Move(name, base.metadata_location, each.location.original))
        return self._context.pointers.swap(moves, promote)

    def _where_they_stand(self, sealed: Sequence[_Sealed], problem: LakewardenError) -> None:
        """Determine whether a move took place although its answer was lost. One pointer tells of all.

        Raises:
            StateUnavailable: it did not.
            CommitStateUnknown: it is not known.
        """
        for each in sealed:
            base = each.publication.base
            try:
                stands = self._context.pointers.settled(each.publication.record.name)
            except (StateUnavailable, CommitStateUnknown) as again:
                raise _unknown(_names(sealed)) from again
            if stands == each.location.original:
                return
            # A creation without an answer can still take effect later: there is no pointer yet to wait for.
            if base is not None and stands == base.metadata_location:
                raise StateUnavailable(
                    "The pointer store did not move the metadata pointer. Nothing was committed.",
                    table=_names(sealed),
                    hint="Try again.",
                ) from problem
        raise _unknown(_names(sealed)) from problem

    def _promote(self, connection: Connection, sealed: Sequence[_Sealed]) -> None:
        """Make what was prepared current, in the transaction that moves the pointers.

        Raises:
            CommitConflict: a seal, or the creation of its table, was given up meanwhile; no pointer moves.
        """
        _lock(connection, [each.publication for each in sealed])
        for each in sealed:
            self._promote_one(connection, each)

    def _promote_one(self, connection: Connection, sealed: _Sealed) -> None:
        publication, catalog = sealed.publication, self._context.catalog
        record, governs = publication.record, publication.governs
        if not loading.finish(connection, catalog, record.name, sealed.seal, governs=governs):
            raise _given_up(record) if publication.base is None else _overtaken(record.name)
        if publication.base is not None and publication.claims_location:
            table_state.set_location(connection, record.id, publication.location)

    def _lost(self, sealed: Sequence[_Sealed]) -> None:
        """Clean up after a commit that lost the race."""
        try:
            with write(self._context.engine) as connection:
                _lock(connection, [each.publication for each in sealed])
                for each in sealed:
                    seals.abandon(connection, each.seal)
                    if each.publication.base is not None and each.publication.claims_location:
                        record = each.publication.record
                        table_state.set_location(
                            connection, record.id, record.location, default=record.default_location
                        )
        except (StateUnavailable, CommitStateUnknown):
            # The seals stay prepared. A base never becomes current again, so they are equivalent to
            # abandoned.
            logger.warning("a lost commit could not be marked as abandoned")
            return
        self._discard(sealed)

    def _discard(self, lost: Iterable[_New | _Sealed]) -> None:
        for each in lost:
            self._delete(each.location)

    def _delete(self, location: Location) -> None:
        try:
            self._context.storage.delete(location)
        except LakewardenError as problem:
            logger.warning("a metadata file that nobody refers to is left behind: %s", type(problem).__name__)


def _lock(connection: Connection, publications: Iterable[Publication]) -> None:
    """Lock the commits of all tables, in one order, so that two transactions never deadlock."""
    for table_id in sorted(each.record.id for each in publications):
        seals.lock_table(connection, table_id)


def _check_base(connection: Connection, publication: Publication) -> None:
    """Check that the commit's base is still current; the table is locked.

    A pointer that another process moved back must not make an older seal the base of a commit.
    """
    before = seals.current(connection, publication.record.id)
    expected = publication.base.metadata_location if publication.base else None
    now = table_state.table_by_id(connection, publication.record.id)
    # Garbage collection can have removed files of the commit after they were checked.
    is_cleaned = now is not None and now.cleanups != publication.record.cleanups
    if is_cleaned or (before.metadata_location if before else None) != expected:
        raise _overtaken(publication.record.name)


@contextmanager
def _naming(publication: Publication) -> Iterator[None]:
    """Name the table in errors that do not."""
    try:
        yield
    except LakewardenError as error:
        error.table = error.table or str(publication.record.name)
        raise


def _names(several: Iterable[_New | _Sealed]) -> str:
    return ", ".join(str(each.publication.record.name) for each in several)


def _overtaken(name: TableName) -> CommitConflict:
    return CommitConflict(
        "Another commit changed the table first.",
        table=str(name),
        hint="Load the table and commit again.",
    )


def _given_up(record: TableRecord) -> CommitConflict:
    return CommitConflict(
        f"The creation of the table {record.name} was abandoned.",
        table=str(record.name),
        hint="Create the table again.",
    )


def _unknown(names: str) -> CommitStateUnknown:
    return CommitStateUnknown(
        "The pointer store did not answer, so it is unknown whether the commit took effect.",
        table=names,
        rule="commit-state",
        hint="Load the table, check whether it has the change, and commit again only if it does not.",
    )
