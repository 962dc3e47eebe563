"""Stores seals: the digests of metadata.json, manifest lists and manifests.

The states of a seal:

- *prepared* before the pointer moves, with everything that comes into force with it
- *current* once the pointer equals its metadata.json; at most one per table
- *superseded* by the next seal: its metadata.json is history, and a pointer to it was rolled back
- *abandoned* when its commit lost

A process can die between the steps. If the pointer equals a prepared seal whose base is the current seal, the
next process that loads the table promotes this seal (`promote`).

A manifest list or manifest is recorded with the seal of the commit that adds it, and counts as sealed once
that seal has been current. Files are immutable: a sealed path can never be sealed again with other bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update

from catalog.db.schema import lw_governed, lw_seal, lw_sealed_file, lw_table
from catalog.iceberg.manifests.sealed_files import Digest as Digest
from catalog.iceberg.manifests.sealed_files import FileKind as FileKind
from catalog.iceberg.manifests.sealed_files import SealedFile as SealedFile
from catalog.iceberg.manifests.sealed_files import check_digest as check_digest
from policy.errors import MetadataTampered

#: The maximum number of parameters in a statement, well below SQLite's and PostgreSQL's limits.
_BATCH: Final = 500


class SealState(StrEnum):
    """The state of a seal."""

    PREPARED = "prepared"
    CURRENT = "current"
    SUPERSEDED = "superseded"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class Seal:
    """The seal of one metadata.json."""

    id: int
    table_id: str
    metadata_location: str
    base_location: str | None
    digest: Digest
    governed_version: int
    last_sequence_number: int
    state: SealState


@dataclass(frozen=True, slots=True)
class SealRequest:
    """A seal to prepare."""

    table_id: str
    metadata_location: str
    base_location: str | None
    digest: Digest
    governed_version: int
    last_sequence_number: int
    author: str
    at_ms: int
    files: tuple[SealedFile, ...]


# Every load and plan runs these statements, so they are built once.
_FIND: Final = select(lw_seal).where(lw_seal.c.metadata_location == bindparam("metadata_location"))
_SEALED_FILES: Final = (
    select(lw_sealed_file)
    .join(lw_seal, lw_seal.c.id == lw_sealed_file.c.seal_id)
    .where(
        lw_sealed_file.c.table_id == bindparam("table_id"),
        lw_sealed_file.c.path.in_(bindparam("paths", expanding=True)),
        lw_seal.c.state.in_([SealState.CURRENT, SealState.SUPERSEDED]),
    )
)


def find(connection: Connection, metadata_location: str) -> Seal | None:
    """Return the seal of a metadata.json, in any state."""
    row = connection.execute(_FIND, {"metadata_location": metadata_location}).first()
    return None if row is None else seal_of(row)


def current(connection: Connection, table_id: str) -> Seal | None:
    """Return the table's current seal."""
    statement = select(lw_seal).where(lw_seal.c.table_id == table_id, lw_seal.c.state == SealState.CURRENT)
    row = connection.execute(statement).first()
    return None if row is None else seal_of(row)


def superseded(connection: Connection, table_id: str, locations: Sequence[str]) -> list[str]:
    """Return those of the metadata.json that were the table's, and were followed by another one."""
    found: list[str] = []
    for start in range(0, len(locations), _BATCH):
        statement = select(lw_seal.c.metadata_location).where(
            lw_seal.c.table_id == table_id,
            lw_seal.c.state == SealState.SUPERSEDED,
            lw_seal.c.metadata_location.in_(locations[start : start + _BATCH]),
        )
        found += connection.execute(statement).scalars()
    return found


def is_being_followed(connection: Connection, seal: Seal) -> bool:
    """Return whether a commit on top of a seal is prepared, so that the pointer can move to it."""
    next_one = (
        lw_seal.c.table_id == seal.table_id,
        lw_seal.c.base_location == seal.metadata_location,
        lw_seal.c.state == SealState.PREPARED,
    )
    return connection.execute(select(lw_seal.c.id).where(*next_one).limit(1)).first() is not None


def prepare(connection: Connection, request: SealRequest) -> Seal:
    """Record a seal and its files in the state prepared.

    Raises:
        MetadataTampered: a file's path is sealed already, with other bytes.
    """
    lock_table(connection, request.table_id)
    values = {
        "table_id": request.table_id,
        "metadata_location": request.metadata_location,
        "base_location": request.base_location,
        "sha256": request.digest.sha256,
        "length": request.digest.length,
        "governed_version": request.governed_version,
        "last_sequence_number": request.last_sequence_number,
        "state": SealState.PREPARED,
        "author": request.author,
        "created_ms": request.at_ms,
    }
    statement = insert(lw_seal).values(**values).returning(lw_seal.c.id)
    seal_id: int = connection.execute(statement).scalar_one()
    _record_files(connection, request, seal_id)
    return Seal(
        seal_id,
        request.table_id,
        request.metadata_location,
        request.base_location,
        request.digest,
        request.governed_version,
        request.last_sequence_number,
        SealState.PREPARED,
    )


def promote(connection: Connection, seal: Seal) -> bool:
    """Make a prepared seal current, with its governed version. The pointer must equal its location.

    A promoted seal can be promoted again. Returns False if the seal was not prepared on the current one.
    """
    lock_table(connection, seal.table_id)
    found = find(connection, seal.metadata_location)
    if found is None or found.state is SealState.ABANDONED:
        return False
    if found.state is not SealState.PREPARED:
        return True
    before = current(connection, seal.table_id)
    if (before.metadata_location if before else None) != seal.base_location:
        return False
    if before is not None:
        _set_state(connection, before.id, SealState.SUPERSEDED)
    _set_state(connection, seal.id, SealState.CURRENT)
    _abandon_rivals(connection, seal)
    _promote_governed(connection, seal)
    return True


def abandon(connection: Connection, seal: Seal) -> None:
    """Abandon a prepared seal; a seal that was promoted meanwhile stays."""
    statement = update(lw_seal).where(lw_seal.c.id == seal.id, lw_seal.c.state == SealState.PREPARED)
    if connection.execute(statement.values(state=SealState.ABANDONED)).rowcount:
        connection.execute(delete(lw_sealed_file).where(lw_sealed_file.c.seal_id == seal.id))


def abandon_creation(connection: Connection, table_id: str) -> None:
    """Abandon the seals of a table that was never created, so that none of them can be published."""
    mine = (lw_seal.c.table_id == table_id, lw_seal.c.state == SealState.PREPARED)
    lost = connection.scalars(select(lw_seal.c.id).where(*mine)).all()
    connection.execute(update(lw_seal).where(lw_seal.c.id.in_(lost)).values(state=SealState.ABANDONED))
    connection.execute(delete(lw_sealed_file).where(lw_sealed_file.c.seal_id.in_(lost)))


def reinstate(connection: Connection, seal: Seal) -> None:
    """Make a superseded seal current again: its table was rolled back on purpose."""
    lock_table(connection, seal.table_id)
    before = current(connection, seal.table_id)
    if before is not None:
        _set_state(connection, before.id, SealState.SUPERSEDED)
    _set_state(connection, seal.id, SealState.CURRENT)


def discard(connection: Connection, seal: Seal) -> None:
    """Remove the seal of a commit that was never published.

    Afterwards its metadata.json can be sealed again.
    """
    if seal.state in (SealState.PREPARED, SealState.ABANDONED):
        connection.execute(delete(lw_sealed_file).where(lw_sealed_file.c.seal_id == seal.id))
        connection.execute(delete(lw_seal).where(lw_seal.c.id == seal.id))


def sealed_files(connection: Connection, table_id: str, paths: Iterable[str]) -> dict[str, SealedFile]:
    """Return those of `paths` that are sealed for the table, by path."""
    found: dict[str, SealedFile] = {}
    for batch in _batches(sorted(set(paths))):
        rows = connection.execute(_SEALED_FILES, {"table_id": table_id, "paths": batch})
        found.update((row.path, sealed_file_of(row)) for row in rows)
    return found


def was_sealed(connection: Connection, table_id: str, path: str) -> bool:
    """Return whether a file is or was metadata of the table: a metadata.json, manifest list or manifest."""
    seal = find(connection, path)
    if seal is not None:
        return seal.table_id == table_id and seal.state in (SealState.CURRENT, SealState.SUPERSEDED)
    return path in sealed_files(connection, table_id, [path])


def manifest_lists(connection: Connection, table_id: str) -> list[SealedFile]:
    """Return the manifest lists of all snapshots that were ever committed to the table, oldest first."""
    statement = (
        select(lw_sealed_file)
        .join(lw_seal, lw_seal.c.id == lw_sealed_file.c.seal_id)
        .where(
            lw_sealed_file.c.table_id == table_id,
            lw_sealed_file.c.kind == FileKind.MANIFEST_LIST,
            lw_seal.c.state.in_([SealState.CURRENT, SealState.SUPERSEDED]),
        )
        .order_by(lw_sealed_file.c.sequence_number, lw_sealed_file.c.path)
    )
    found = {row.path: sealed_file_of(row) for row in connection.execute(statement)}
    return list(found.values())


def holds_snapshot(connection: Connection, table_id: str, snapshot_id: int) -> bool:
    """Return whether a snapshot was ever committed to the table; it can have expired since."""
    statement = (
        select(lw_sealed_file.c.path)
        .join(lw_seal, lw_seal.c.id == lw_sealed_file.c.seal_id)
        .where(
            lw_sealed_file.c.table_id == table_id,
            lw_sealed_file.c.snapshot_id == snapshot_id,
            lw_sealed_file.c.kind == FileKind.MANIFEST_LIST,
            lw_seal.c.state.in_([SealState.CURRENT, SealState.SUPERSEDED]),
        )
    )
    return connection.execute(statement.limit(1)).first() is not None


def was_governed(connection: Connection, table_id: str, version: int) -> bool:
    """Return whether a governed version of a table is or was in force."""
    mine = (lw_seal.c.table_id == table_id, lw_seal.c.governed_version == version)
    published = lw_seal.c.state.in_([SealState.CURRENT, SealState.SUPERSEDED])
    return connection.execute(select(lw_seal.c.id).where(*mine, published).limit(1)).first() is not None


def is_settled(connection: Connection, table_id: str, metadata_location: str) -> bool:
    """Return whether a metadata.json is the current one, and no commit on top of it is in progress.

    A commit that was interrupted before the pointer moved counts as in progress until the next commit is
    published.
    """
    seal = current(connection, table_id)
    if seal is None or seal.metadata_location != metadata_location:
        return False
    mine = (lw_seal.c.table_id == table_id, lw_seal.c.state == SealState.PREPARED)
    on_top = select(lw_seal.c.id).where(*mine, lw_seal.c.base_location == metadata_location)
    return connection.execute(on_top.limit(1)).first() is None


def lock_table(connection: Connection, table_id: str) -> None:
    """Serialize transactions that change a table's state (SQLite has one writer anyway)."""
    connection.execute(select(lw_table.c.id).where(lw_table.c.id == table_id).with_for_update())


def _record_files(connection: Connection, request: SealRequest, seal_id: int) -> None:
    known = sealed_files(connection, request.table_id, [file.path for file in request.files])
    for file in request.files:
        if file.path in known and known[file.path] != file:
            raise MetadataTampered(
                f"The {file.kind.value} is already sealed with different bytes.",
                path=file.path,
                rule="seal",
                hint="Write metadata under a new name.",
            )
    rows = [_file_row(file, request.table_id, seal_id) for file in request.files if file.path not in known]
    if rows:
        connection.execute(insert(lw_sealed_file), rows)


def _abandon_rivals(connection: Connection, seal: Seal) -> None:
    """Abandon commits that were prepared on the same base; they can no longer win."""
    base = lw_seal.c.base_location
    statement = update(lw_seal).where(
        lw_seal.c.table_id == seal.table_id,
        lw_seal.c.state == SealState.PREPARED,
        base.is_(None) if seal.base_location is None else base == seal.base_location,
    )
    connection.execute(statement.values(state=SealState.ABANDONED))


def _promote_governed(connection: Connection, seal: Seal) -> None:
    mine = lw_governed.c.table_id == seal.table_id
    is_new = lw_governed.c.version == seal.governed_version
    was_current = lw_governed.c.state == SealState.CURRENT
    connection.execute(
        update(lw_governed).where(mine, was_current, ~is_new).values(state=SealState.SUPERSEDED)
    )
    connection.execute(update(lw_governed).where(mine, is_new).values(state=SealState.CURRENT))


def _set_state(connection: Connection, seal_id: int, state: SealState) -> None:
    connection.execute(update(lw_seal).where(lw_seal.c.id == seal_id).values(state=state))


def seal_of(row: Row[tuple[object, ...]]) -> Seal:
    """Convert a row of `lw_seal` to a seal."""
    return Seal(
        row.id,
        row.table_id,
        row.metadata_location,
        row.base_location,
        Digest(row.sha256, row.length),
        row.governed_version,
        row.last_sequence_number,
        SealState(row.state),
    )


def sealed_file_of(row: Row[tuple[object, ...]]) -> SealedFile:
    """Convert a row of `lw_sealed_file` to a sealed file."""
    return SealedFile(
        row.path,
        FileKind(row.kind),
        Digest(row.sha256, row.length),
        row.snapshot_id,
        row.sequence_number,
        row.partition_spec_id,
        row.content,
        bool(row.verified),
    )


def _file_row(file: SealedFile, table_id: str, seal_id: int) -> dict[str, object]:
    return {
        "table_id": table_id,
        "path": file.path,
        "seal_id": seal_id,
        "kind": file.kind,
        "sha256": file.digest.sha256,
        "length": file.digest.length,
        "snapshot_id": file.snapshot_id,
        "sequence_number": file.sequence_number,
        "partition_spec_id": file.partition_spec_id,
        "content": file.content,
        "verified": file.verified,
    }


def _batches(paths: Sequence[str]) -> Iterable[Sequence[str]]:
    return (paths[start : start + _BATCH] for start in range(0, len(paths), _BATCH))
