"""Removes old audit records so that the remaining ones can still be verified.

- Pruning removes the beginning of each chain: the records before the first one that stays. Records in the
  middle are never removed.
- First, a new first checkpoint is made: it names the end of each chain, and the last removed record with its
  hash. The remaining records have to follow that record. Earlier checkpoints are removed in the same
  transaction.
- Then the records are removed in batches, so that other writers wait only briefly. An interrupted pruning
  leaves a log that can be verified, and the next pruning completes it.
- If a chain's writer has ended and all its records are removed, only its last hash in that checkpoint
  remains.
- Permission, the record of the pruning, and verification of the log are up to the caller: a log with problems
  must not get a new first checkpoint.
- The archive (`catalog.audit.archive`) removes what it has stored in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, Engine, case, delete, func, or_, select, update
from sqlalchemy.exc import IntegrityError

from catalog.audit.checkpoints import MAX_HEADS, Archived, Content, Head, Signer, put
from catalog.audit.store import size_column
from catalog.audit.verdict import Pruned
from catalog.base.errors import CommitConflict
from catalog.db.engine import read, write
from catalog.db.schema import lw_audit, lw_audit_chain, lw_audit_checkpoint
from policy.errors import MetadataTampered

_BATCH: Final = 5_000
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class _Range:
    """Adjacent records of one chain that are removed together."""

    writer: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class NewSegments:
    """A change of the archive: its segments before, and after."""

    before: Archived | None
    after: Archived


def prune(engine: Engine, before_ms: int, signer: Signer | None, writer: str, now_ms: int) -> int:
    """Remove records from before a time.

    Args:
        engine: the catalog's database, upgraded, with a verified audit log.
        before_ms: records from this time on stay, in milliseconds since 1970 UTC.
        signer: signs the checkpoint.
        writer: the writer id of the checkpoint.
        now_ms: the time, in milliseconds since 1970 UTC.

    Returns:
        the number of removed records.

    Raises:
        StateUnavailable, CommitStateUnknown: the database does not answer.
        sqlalchemy.exc.IntegrityError: other processes made checkpoints first in every attempt.
    """
    return remove(engine, due(engine, before_ms), before_ms, signer, writer, now_ms)


def remove(
    engine: Engine,
    pruned: Mapping[str, Head],
    before_ms: int,
    signer: Signer | None,
    writer: str,
    now_ms: int,
    *,
    archived: NewSegments | None = None,
) -> int:
    """Remove the beginnings of chains, after a new first checkpoint; see `prune`.

    Args:
        engine: the catalog's database.
        pruned: by writer, the last record to remove.
        before_ms: records from this time on stay.
        signer: signs the checkpoint.
        writer: the writer id of the checkpoint.
        now_ms: the time, in milliseconds since 1970 UTC.
        archived: the change of the archive that the checkpoint records; None for none.

    Raises:
        CommitConflict: another process changed the archive first; nothing was removed.
        StateUnavailable, CommitStateUnknown, sqlalchemy.exc.IntegrityError: as `prune`.
    """
    for left in reversed(range(_ATTEMPTS)):
        try:
            with write(engine) as connection:
                _begin_anew(connection, pruned, before_ms, signer, writer, now_ms, archived)
            break
        except IntegrityError:
            if not left:
                raise
    gone = sum(_remove(engine, batch) for batch in _batches(engine, pruned))
    _forget(engine, pruned)
    return gone


def due(engine: Engine, before_ms: int) -> dict[str, Head]:
    """Return, by writer, the last record that is or was removed if records from a time on stay.

    Raises:
        StateUnavailable: the database does not answer.
    """
    found: dict[str, Head] = {}
    with read(engine) as connection:
        before = removed_before(connection).heads
        column = lw_audit_chain.c
        for chain in connection.execute(select(column.writer, column.sequence, column.hash)).all():
            base = before.get(chain.writer, Head(0, ""))
            end = Head(chain.sequence, chain.hash)
            last = _last(connection, chain.writer, base, end, before_ms)
            if last.sequence:
                found[chain.writer] = last
    return found


def _last(connection: Connection, writer: str, base: Head, end: Head, before_ms: int) -> Head:
    column = lw_audit.c
    stays = connection.execute(
        select(column.sequence, column.previous_hash)
        .where(column.writer == writer, column.sequence > base.sequence, column.at_ms >= before_ms)
        .order_by(column.sequence)
        .limit(1)
    ).first()
    if stays is None:
        return end
    return base if stays.sequence == base.sequence + 1 else Head(stays.sequence - 1, stays.previous_hash)


def removed_before(connection: Connection) -> Pruned:
    """Return what the checkpoints say of records that are no longer in the database.

    Raises:
        MetadataTampered: a checkpoint was edited.
    """
    number = lw_audit_checkpoint.c.number
    texts = connection.execute(select(lw_audit_checkpoint.c.content).order_by(number)).scalars()
    found = Pruned()
    for text in texts:
        try:
            found.add(Content.parse(text))
        except ValueError as error:
            raise MetadataTampered(
                "A checkpoint of the audit log was edited.",
                rule="checkpoint",
                hint="Keep a copy of the database, and run `lakewarden audit verify`.",
            ) from error
    return found


def _begin_anew(
    connection: Connection,
    pruned: Mapping[str, Head],
    before_ms: int,
    signer: Signer | None,
    writer: str,
    now_ms: int,
    archived: NewSegments | None,
) -> None:
    """Write checkpoints that name all chains and the archive, and remove the earlier ones."""
    before = removed_before(connection)
    if archived is not None and archived.before != before.archived:
        raise _overtaken()
    # Another process can have removed more since `due` looked.
    pruned = _furthest(before.heads, pruned)
    column = lw_audit_chain.c
    chains = connection.execute(select(lw_audit_chain).order_by(column.writer)).all()
    first: Head | None = None
    for at in range(0, max(1, len(chains)), MAX_HEADS):
        part = chains[at : at + MAX_HEADS]
        content = Content(
            heads={each.writer: Head(each.sequence, each.hash, each.at_ms) for each in part},
            pruned={each.writer: pruned[each.writer] for each in part if each.writer in pruned},
            before_ms=max(before_ms, before.before_ms),
            start=first is None,
            archived=(before.archived if archived is None else archived.after) if first is None else None,
        )
        made = put(connection, content, signer, writer, now_ms)
        first = first or made
    assert first is not None
    connection.execute(delete(lw_audit_checkpoint).where(lw_audit_checkpoint.c.number < first.sequence))


def _furthest(one: Mapping[str, Head], other: Mapping[str, Head]) -> dict[str, Head]:
    later = {
        writer: head for writer, head in other.items() if head.sequence >= one.get(writer, head).sequence
    }
    return {**one, **later}


def _overtaken() -> CommitConflict:
    return CommitConflict(
        "Another process changed the archive of the audit log at the same time.",
        rule="audit-archive",
        hint="Nothing was removed. Run the command again.",
    )


def _batches(engine: Engine, pruned: Mapping[str, Head]) -> Iterator[list[_Range]]:
    """Yield the records to remove, in batches that block other writers only briefly."""
    batch: list[_Range] = []
    size = 0
    for each in _ranges(engine, pruned):
        batch.append(each)
        size += each.last - each.first + 1
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _ranges(engine: Engine, pruned: Mapping[str, Head]) -> Iterator[_Range]:
    for writer, last in sorted(pruned.items()):
        with read(engine) as connection:
            query = select(func.min(lw_audit.c.sequence)).where(lw_audit.c.writer == writer)
            first = connection.execute(query).scalar()
        if first is not None:
            for at in range(first, last.sequence + 1, _BATCH):
                yield _Range(writer, at, min(at + _BATCH - 1, last.sequence))


def _remove(engine: Engine, batch: list[_Range]) -> int:
    gone = 0
    with write(engine) as connection:
        for each in batch:
            here = (lw_audit.c.writer == each.writer, lw_audit.c.sequence.between(each.first, each.last))
            kept = or_(lw_audit.c.allowed, lw_audit.c.begun)
            refusals = func.sum(case((kept, 0), else_=size_column()))
            others = func.sum(case((kept, size_column()), else_=0))
            freed = connection.execute(select(refusals, others).where(*here)).one()
            gone += connection.execute(delete(lw_audit).where(*here)).rowcount
            connection.execute(
                update(lw_audit_chain)
                .where(lw_audit_chain.c.writer == each.writer)
                .values(
                    refusal_bytes=lw_audit_chain.c.refusal_bytes - int(freed[0] or 0),
                    other_bytes=lw_audit_chain.c.other_bytes - int(freed[1] or 0),
                )
            )
    return gone


def _forget(engine: Engine, pruned: Mapping[str, Head]) -> None:
    """Remove ended chains of which no record is left."""
    with write(engine) as connection:
        column = lw_audit_chain.c
        for chain in connection.execute(select(lw_audit_chain).where(column.closed)).all():
            if pruned.get(chain.writer, Head(0, "")).sequence == chain.sequence:
                connection.execute(delete(lw_audit_chain).where(column.writer == chain.writer))
