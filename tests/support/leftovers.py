"""What writes leave in storage, and whether the catalog knows whose it is."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select, update

from catalog.db.engine import read, write
from catalog.db.schema import lw_write
from tests.support.lake import Lake
from tests.support.service import Service

_PATIENCE_S = 60.0


@dataclass(frozen=True)
class KnownWrite:
    """A write that the catalog has begun.

    Attributes:
        state: how far it got.
        directory: where all of its files go.
    """

    id: str
    state: str
    directory: Path

    def files(self) -> list[Path]:
        """The data files that lie there now; Hadoop puts a hidden file with checksums beside each."""
        return [each for each in self.directory.rglob("[!.]*") if each.is_file()]


def known_writes(lake: Lake) -> dict[str, KnownWrite]:
    """Every write, by id."""
    with read(lake.services.engine) as connection:
        rows = connection.execute(select(lw_write.c.id, lw_write.c.state, lw_write.c.prefix)).all()
    return {row.id: KnownWrite(row.id, row.state, Path(row.prefix.removeprefix("file://"))) for row in rows}


def await_files(lake: Lake, known: Collection[str], count: int) -> KnownWrite:
    """The one write that was not known, as soon as it has written that many files."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        new = [each for each in known_writes(lake).values() if each.id not in known]
        if len(new) == 1 and len(new[0].files()) == count:
            return new[0]
        assert time.monotonic() < deadline, [each.files() for each in new]
        time.sleep(0.02)


def strays(lake: Lake) -> list[Path]:
    """Data files that lie under no write that the catalog knows."""
    directories = [each.directory for each in known_writes(lake).values()]
    found = [each for each in lake.warehouse.rglob("*") if each.is_file() and each.parent.name != "metadata"]
    return [file for file in found if not any(directory in file.parents for directory in directories)]


def clean_up_expired(service: Service) -> int:
    """Expire all open writes and clean up as the administrator; how many were cleaned up."""
    with write(service.lake.services.engine) as connection:
        connection.execute(update(lw_write).where(lw_write.c.state != "committed").values(expires_ms=1))
    with service.client() as client:
        answer = client.post("/admin/v1/sweep")
        assert answer.status_code == 200, answer.text
        return int(answer.json()["swept"])
