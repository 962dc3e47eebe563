"""Verifies the audit log: chains, checkpoints, and copies elsewhere.

- Stored hashes are not trusted: each is computed again.
- Each chain has to be complete from its first record, or from the last pruned one, to its end.
- Each checkpoint has to follow the one before it. Each record that it names has to exist with that hash,
  unless a later checkpoint says that it was pruned.
- With public keys: each checkpoint from the first signed one on has to be signed with one of them, and the
  last one has to be signed.
- Evidence is a copy outside of the database: lines of checkpoints or records in files. Each record and
  checkpoint in it has to exist too, or to be in the archive with that hash. Without evidence, an older copy
  of the whole database cannot be distinguished from the newest state.
- Only their own chain protects records after the last checkpoint.
- While the catalog runs, the state at the beginning is verified, and records that are added meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from sqlalchemy import Engine, select, tuple_

from catalog.audit.archive import Archive
from catalog.audit.archived_records import examine_archive
from catalog.audit.checkpoints import Content, Head, checkpoint_hash, is_signed
from catalog.audit.reading import all_rows
from catalog.audit.records import GENESIS, Row, canonical
from catalog.audit.verdict import (
    AuditProblem,
    Evidence,
    Known,
    Moved,
    Pruned,
    Verdict,
    examine_record,
    number_of_records,
)
from catalog.base.progress import Tell, counted, silent
from catalog.db.engine import read as read_transaction
from catalog.db.schema import lw_audit, lw_audit_chain, lw_audit_checkpoint

_CHUNK: Final = 200
_CHECKPOINTS: Final = 100

#: The maximum length of a line in an evidence file, in characters.
_LONGEST_LINE: Final = 1024 * 1024


def verify(engine: Engine) -> list[AuditProblem]:
    """Verify every chain and checkpoint; an empty list means that there is no problem.

    Raises:
        StateUnavailable: the database does not answer.
    """
    return examine(engine).problems


def examine(
    engine: Engine,
    *,
    public_keys: frozenset[str] = frozenset(),
    evidence: Iterable[str] = (),
    archive: Archive | None = None,
    tell: Tell = silent,
) -> Verdict:
    """Verify the audit log.

    Args:
        engine: the catalog's database.
        public_keys: trusted keys for checkpoints, in hexadecimal digits; without any, signatures are not
            verified.
        evidence: lines of copies elsewhere.
        archive: where old records are; None if none is configured, which is a problem if the log has one.
        tell: is told how many checkpoints, records, and segments of the archive are verified; it can raise
            an error to end the verification.

    Raises:
        StateUnavailable: the database does not answer.
        StorageUnavailable: the storage of the archive does not answer.
    """
    verdict = Verdict()
    chains = _ends(engine)
    pruned = _examine_checkpoints(engine, verdict, public_keys, chains, tell)
    moved = Moved()
    _examine_evidence(engine, verdict, public_keys, evidence, chains, pruned, moved)
    _examine_chains(engine, verdict, chains, pruned, tell)
    if pruned.archived is not None and archive is None:
        what = "The log has an archive, but `audit.archive` is not set: its segments are not verified."
        verdict.add("", pruned.archived.last, "archive", what)
    elif pruned.archived is not None and archive is not None:
        examine_archive(archive, pruned.archived, verdict, public_keys, pruned.heads, moved, tell)
    return verdict


def examine_checkpoints(engine: Engine, public_keys: frozenset[str]) -> Verdict:
    """Verify the checkpoints, and that each record that they name is present or was pruned; see `examine`."""
    verdict = Verdict()
    _examine_checkpoints(engine, verdict, public_keys, _ends(engine))
    return verdict


def parse_evidence(line: str) -> Evidence | None:
    """Parse a line of a checkpoint or record; None if it is neither."""
    try:
        found = json.loads(line) if len(line) <= _LONGEST_LINE else None
        if isinstance(found, dict) and "content" in found:
            return _checkpoint_evidence(found)
        if isinstance(found, dict):
            return Evidence((Known(_text(found, "writer"), _record_head(found)),))
    except (ValueError, RecursionError):
        return None
    return None


def _examine_checkpoints(
    engine: Engine,
    verdict: Verdict,
    public_keys: frozenset[str],
    chains: Mapping[str, Head],
    tell: Tell = silent,
) -> Pruned:
    pruned = Pruned()
    named: list[Known] = []
    number, previous, signed = 0, GENESIS, True
    for row in counted(_checkpoints(engine), tell, "Verifying checkpoints"):
        found, content = int(str(row["number"])), _content(row)
        first = verdict.checkpoints == 0
        verdict.checkpoints += 1
        verdict.checkpointed_ms = int(str(row["at_ms"]))
        if checkpoint_hash(row) != row["hash"] or content is None:
            verdict.add("", found, "checkpoint", "The hash of the checkpoint does not match its content.")
        elif not (first and content.start) and (found, row["previous_hash"]) != (number + 1, previous):
            verdict.add("", found, "checkpoint", "The checkpoint does not follow the previous one.")
        elif content.lost is not None:
            what = (
                f"Checkpoint {content.lost.sequence} with hash {content.lost.hash} was lost before this one."
            )
            verdict.add("", found, "checkpoint", what)
        signed = _examine_signature(row, verdict, public_keys)
        number, previous = found, str(row["hash"])
        if content is not None:
            pruned.add(content)
            named += [Known(writer, head) for writer, head in content.heads.items()]
            if len(named) >= _CHUNK:
                # A later checkpoint can say that they were pruned; but then they are gone with this one.
                _require_known(engine, verdict, named, chains, pruned, "A checkpoint")
                named = []
    _require_known(engine, verdict, named, chains, pruned, "A checkpoint")
    verdict.archived = None if pruned.archived is None else pruned.archived.last
    if public_keys and not verdict.checkpoints:
        verdict.add("", 0, "checkpoint", "There is no checkpoint.")
    elif not signed:
        verdict.add("", number, "checkpoint", "The last checkpoint is not signed with a known key.")
    return pruned


def _examine_signature(row: Row, verdict: Verdict, public_keys: frozenset[str]) -> bool:
    """Return whether the signature is valid, if keys are known."""
    number = int(str(row["number"]))
    if row["signature"] is not None and verdict.signed_from is None:
        verdict.signed_from = number
    if not public_keys:
        return True
    if row["public_key"] in public_keys and is_signed(row):
        return True
    if verdict.signed_from is not None:
        verdict.add("", number, "checkpoint", "The checkpoint is not signed with a known key.")
    return verdict.signed_from is not None


def _examine_evidence(
    engine: Engine,
    verdict: Verdict,
    public_keys: frozenset[str],
    lines: Iterable[str],
    chains: Mapping[str, Head],
    pruned: Pruned,
    moved: Moved,
) -> None:
    rest = iter(lines)
    while chunk := list(islice(rest, _CHUNK)):
        found = [evidence for evidence in map(parse_evidence, chunk) if evidence is not None]
        verdict.evidence += len(found)
        verdict.unreadable += len(chunk) - len(found)
        records = [known for evidence in found for known in evidence.records]
        for known in _require_known(engine, verdict, records, chains, pruned, "A copy elsewhere"):
            moved.add(known)
        checkpoints = [evidence.checkpoint for evidence in found if evidence.checkpoint is not None]
        _require_checkpoints(engine, verdict, public_keys, checkpoints)


def _require_checkpoints(
    engine: Engine, verdict: Verdict, public_keys: frozenset[str], copies: Sequence[Row]
) -> None:
    """Check that each checkpoint in a copy is in the database, or is older than the first one there."""
    numbers = [int(str(row["number"])) for row in copies]
    column = lw_audit_checkpoint.c
    with read_transaction(engine) as connection:
        first = connection.execute(select(column.number).order_by(column.number).limit(1)).scalar()
        query = select(column.number, column.hash).where(column.number.in_(numbers))
        there = {row.number: row.hash for row in connection.execute(query)}
    for copy, number in zip(copies, numbers, strict=True):
        if checkpoint_hash(copy) != copy["hash"] or (
            public_keys and not (copy["public_key"] in public_keys and is_signed(copy))
        ):
            verdict.add("", number, "checkpoint", "The copy was edited, or is not signed with a known key.")
        elif number not in there and (first is None or number > first):
            verdict.add(
                "",
                number,
                "rollback",
                "A copy of this checkpoint exists, but the checkpoint is not in the database.",
            )
        elif number in there and there[number] != copy["hash"]:
            verdict.add("", number, "rollback", "A copy has a different checkpoint with this number.")


def _require_known(
    engine: Engine,
    verdict: Verdict,
    named: Sequence[Known],
    chains: Mapping[str, Head],
    pruned: Pruned,
    who: str,
) -> list[Known]:
    """Check that each known record is present with its hash, or was pruned; return the latter ones."""
    gone: list[Known] = []
    for at in range(0, len(named), _CHUNK):
        chunk = named[at : at + _CHUNK]
        there = _hashes(engine, [(known.writer, known.head.sequence) for known in chunk])
        for known in chunk:
            found = there.get((known.writer, known.head.sequence))
            if found == known.head.hash:
                continue
            if found is None and pruned.covers(known, chains):
                gone.append(known)
                continue
            what = "is missing" if found is None else "has a different hash"
            detail = f"{who} names this record with the hash {known.head.hash}; it {what}."
            verdict.add(known.writer, known.head.sequence, "truncated", detail)
    return gone


def _examine_chains(
    engine: Engine, verdict: Verdict, chains: Mapping[str, Head], pruned: Pruned, tell: Tell
) -> None:
    """Verify each chain from its first record, or the last pruned one, to its end."""
    last: dict[str, int] = {}
    writer = ""
    base = before = Head(0, GENESIS)
    wanted = number_of_records(pruned.heads, chains)
    for row in counted(all_rows(engine), tell, "Verifying records", wanted):
        if row["writer"] != writer:
            writer = str(row["writer"])
            base = before = pruned.heads.get(writer, Head(0, GENESIS))
        # Records that are being pruned are left out, however many are still present.
        if int(str(row["sequence"])) > base.sequence:
            verdict.records += 1
            examine_record(row, before, verdict)
            before = Head(int(str(row["sequence"])), str(row["hash"]))
            last[writer] = before.sequence
    verdict.chains = len(last)
    noted = [Known(each, end) for each, end in chains.items()]
    _require_known(engine, verdict, noted, chains, pruned, "The end of the chain")
    for each in sorted(last.keys() - _ends(engine).keys()):
        verdict.add(each, last[each], "missing", "The end of this chain was not recorded.")


def _ends(engine: Engine) -> dict[str, Head]:
    column = lw_audit_chain.c
    with read_transaction(engine) as connection:
        found = connection.execute(select(column.writer, column.sequence, column.hash, column.at_ms))
        return {row.writer: Head(row.sequence, row.hash, row.at_ms) for row in found}


def _checkpoints(engine: Engine) -> Iterator[Row]:
    column = lw_audit_checkpoint.c
    last = -1
    while True:
        query = select(lw_audit_checkpoint).where(column.number > last).order_by(column.number)
        with read_transaction(engine) as connection:
            page = connection.execute(query.limit(_CHECKPOINTS)).mappings().all()
        if not page:
            return
        yield from (dict(row) for row in page)
        last = page[-1]["number"]


def _hashes(engine: Engine, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], str]:
    column = lw_audit.c
    query = select(column.writer, column.sequence, column.hash).where(
        tuple_(column.writer, column.sequence).in_(keys)
    )
    with read_transaction(engine) as connection:
        return {(row.writer, row.sequence): row.hash for row in connection.execute(query)}


def _content(row: Row) -> Content | None:
    try:
        return Content.parse(str(row["content"]))
    except ValueError:
        return None


def _checkpoint_evidence(found: dict[str, object]) -> Evidence:
    content = Content.parse(canonical(found["content"]))
    row: Row = {
        "number": _number(found, "number"),
        "at_ms": _number(found, "at_ms"),
        "writer": _text(found, "writer"),
        "content": content.text(),
        "previous_hash": _text(found, "previous_hash"),
        "hash": _text(found, "hash"),
        "public_key": found.get("public_key"),
        "signature": found.get("signature"),
    }
    return Evidence(tuple(Known(writer, head) for writer, head in content.heads.items()), row)


def _record_head(found: dict[str, object]) -> Head:
    return Head(_number(found, "sequence"), _text(found, "hash"), _number(found, "at_ms"))


def _number(found: dict[str, object], name: str) -> int:
    value = found.get(name)
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"{name} is not a number")
    return value


def _text(found: dict[str, object], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is not a text")
    return value
