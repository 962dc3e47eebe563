"""Processes that are killed at a named point, and a look at what they leave behind.

A child is forked by a server that has imported everything and runs no threads, opens the catalog for itself,
and kills itself with SIGKILL when it reaches the point: no `finally`, no flush, no rollback of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, Select, select

from catalog.audit.verify import verify
from catalog.base import crash_points
from catalog.base.errors import NoSuchTable
from catalog.base.identifiers import TableName
from catalog.db.engine import read
from catalog.db.schema import iceberg_tables, lw_governed, lw_seal
from catalog.kms.local import LocalKms
from catalog.kms.root_key import KeyFile
from catalog.reading.loading import LoadedTable
from catalog.service.services import Services
from catalog.state.table_state import bound_tables
from tests.support.lake import Lake, lake_settings

KILLED = -signal.SIGKILL
PATIENCE_S = 60.0

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["pytest", "tests.support.crash", "tests.support.tables", "psycopg"])

#: What a child does; it is found by name, so it stands at the top of a module.
Act = Callable[[Lake, Any], None]


@contextmanager
def existing_lake(root: Path, overrides: dict[str, Any]) -> Iterator[Lake]:
    """A catalog that another process made, opened by this one."""
    settings = lake_settings(root, **overrides)
    options = settings.kms.options
    assert options.key_file is not None
    kms = LocalKms(options.keystore, KeyFile(options.key_file))
    lake = Lake(root, settings, Services.open(settings, kms), kms)
    try:
        yield lake
    finally:
        lake.services.close()


def die_at(lake: Lake, overrides: dict[str, Any], act: Act, subject: Any, at: str, times: int = 1) -> None:
    """Let a process of its own act on the lake, and be killed when it reaches a point for the n-th time."""
    child = start(lake, overrides, _armed, (act, subject, at, times))
    child.join(PATIENCE_S)
    assert child.exitcode == KILLED, f"the child ended with {child.exitcode} and never came to {at}"


def start(lake: Lake, overrides: dict[str, Any], act: Act, subject: Any) -> Any:
    """A process of its own that acts on the lake."""
    child = _processes.Process(target=_main, args=(lake.root, overrides, act, subject), daemon=True)
    child.start()
    return child


def points_of(lake: Lake, act: Act, subject: Any) -> list[str]:
    """The points that an act passes, in this process, each once and in order."""
    passed: dict[str, None] = {}
    with crash_points.hooked(lambda name: passed.setdefault(name)):
        act(lake, subject)
    return list(passed)


def _main(root: Path, overrides: dict[str, Any], act: Act, subject: Any) -> None:
    with existing_lake(root, overrides) as lake:
        act(lake, subject)


def _armed(lake: Lake, order: tuple[Act, Any, str, int]) -> None:
    act, subject, at, times = order
    left = times

    def hook(name: str) -> None:
        nonlocal left
        left -= name == at
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    with crash_points.hooked(hook):
        act(lake, subject)


@dataclass(frozen=True)
class Seen:
    """All that a table is: two of them are equal if nothing about it changed."""

    metadata_location: str
    snapshots: tuple[int, ...]
    governed_version: int
    properties: tuple[tuple[str, str], ...]
    epochs: object
    peks: frozenset[str]


def seen(lake: Lake, name: TableName) -> Seen | None:
    """A table as it can be loaded, sealed; None if there is none."""
    try:
        table = lake.services.loader.load_sealed(name)
    except NoSuchTable:
        return None
    return Seen(
        table.metadata_location,
        tuple(sorted(snapshot.snapshot_id for snapshot in table.metadata.snapshots)),
        table.governed.version,
        tuple(sorted(table.governed.to_properties().items())),
        table.governed.epochs,
        frozenset(_usable_peks(lake, table)),
    )


def _usable_peks(lake: Lake, table: LoadedTable) -> list[str]:
    """The keys that its epoch in force names: each is recorded, and opens."""
    peks = lake.services.keyring.writing_peks(table.record, table.governed)
    assert {pek.ref for pek in peks.values()} == set(table.governed.epochs.current.peks)
    return [str(pek.ref.pek_id) for pek in peks.values()]


def assert_sound(lake: Lake) -> None:
    """One truth a table.

    The pointer of every active table stands on its only current seal, which names its only current governed
    version; nothing is prepared that can never win; the audit trail holds together.
    """
    engine = lake.services.engine
    with read(engine) as connection:
        active = bound_tables(connection, lake.settings.catalog.name)
        pointers = {(row[0], row[1]): row[2] for row in connection.execute(select(*_POINTER))}
        current = _by_table(connection, select(*_SEAL).where(lw_seal.c.state == "current"))
        prepared = _by_table(connection, select(*_SEAL).where(lw_seal.c.state == "prepared"))
        governed = _by_table(connection, select(*_GOVERNED).where(lw_governed.c.state == "current"))
    assert all(len(rows) == 1 for rows in (*current.values(), *governed.values()))
    for record in active:
        (seal,) = current[record.id]
        assert pointers[record.name.database, record.name.name] == seal.metadata_location
        assert governed[record.id][0].version == seal.governed_version
        assert all(rival.base_location == seal.metadata_location for rival in prepared.get(record.id, []))
    assert verify(engine) == []


_POINTER = (
    iceberg_tables.c.table_namespace,
    iceberg_tables.c.table_name,
    iceberg_tables.c.metadata_location,
)
_SEAL = (
    lw_seal.c.table_id,
    lw_seal.c.metadata_location,
    lw_seal.c.base_location,
    lw_seal.c.governed_version,
)
_GOVERNED = (lw_governed.c.table_id, lw_governed.c.version)


def _by_table(connection: Connection, statement: Select[Any]) -> dict[str, list[Row[Any]]]:
    found: dict[str, list[Row[Any]]] = {}
    for row in connection.execute(statement):
        found.setdefault(row.table_id, []).append(row)
    return found
