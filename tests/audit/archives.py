"""Logs with an archive, for tests that attack it."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine

from catalog.audit.archive import Archive
from catalog.audit.checkpoints import Checkpointer, Signer
from catalog.audit.trail import AuditRecord, AuditTrail, read
from catalog.audit.verify import examine
from catalog.storage.local import LocalStorage
from policy.decision import Reason
from policy.location.location import Location


def archive_in(directory: Path) -> Archive:
    """Return the archive in a directory."""
    return Archive(LocalStorage(), Location.parse(f"file://{directory}"))


def recorded(engine: Engine, signer: Signer | None, times: range) -> AuditTrail:
    """Record one decision at each time, in a chain of its own."""
    trail = AuditTrail(engine, checkpointer=Checkpointer(engine, signer, lambda: 1, 3600))
    for at_ms in times:
        reason = (Reason("r", "d"),)
        user = "ann" if at_ms % 3 else f"user-{at_ms}"
        trail.append([AuditRecord(user, "spark", "table.load", "db.t", at_ms % 3 != 0, reason, "q", at_ms)])
    return trail


def times_of(engine: Engine) -> list[int]:
    """Return the times of the records in the database."""
    return sorted(found.record.at_ms for found in read(engine, limit=10_000))


def problems_of(engine: Engine, signer: Signer, archive: Archive, *evidence: str) -> list[str]:
    """Verify database and archive; return the problems."""
    keys = frozenset({signer.public_key})
    found = examine(engine, public_keys=keys, evidence=evidence, archive=archive)
    return [f"{each.kind} {each.detail}" for each in found.problems]


def objects_of(archive: Archive, ending: str) -> list[Path]:
    """Return the objects of an archive whose names end so, in their order."""
    return sorted(Path(archive.location.canonical.removeprefix("file://")).glob(f"*.{ending}"))
