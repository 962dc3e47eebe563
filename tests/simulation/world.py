"""A catalog in this process whose storage, KMS, clock and transactions are boundaries of a scheduler.

Nothing of the product is changed: storage and KMS are wrapped, SQLAlchemy reports transactions, crash points
have hooks, and waits become boundaries. Two instances of the services share the database, as replicas do.

Kinds of faults (`KINDS`): a part does not answer; the answer to a COMMIT is lost, whether it took effect or
not; the storage returns other bytes; the power fails after a transaction.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, exc

from catalog.base import crash_points
from catalog.commits import conflicts
from catalog.commits.turns import Turns
from catalog.crypto.secret import SecretBytes
from catalog.db.readers import readers_of
from catalog.envelope import peks
from catalog.kms.calls import CountedKms
from catalog.kms.interface import CreatedKey, KeyContext, KmsClient
from catalog.service import context
from catalog.service.services import Services
from catalog.storage.base import Storage
from policy.errors import KmsUnavailable, StateUnavailable, StorageUnavailable
from policy.location.location import Location
from tests.simulation.disk import Disk
from tests.simulation.scheduler import Scheduler
from tests.support.lake import Lake, open_lake

KINDS = OUTAGE, LOST_ANSWER, DAMAGE, POWER = "outage", "lost answer", "damage", "power"
_BEGINNING = datetime(2030, 1, 1, tzinfo=UTC)
#: Accesses that can fail by themselves; what reads fails as a whole.
_STORED = ("size", "exists", "delete", "open_input", "open_output")
#: What is changed in damaged bytes: the beginning of a value that a client appended or set.
_VALUE = re.compile(rb'("soak\.\w+": ?")([0-9a-f]{8})')


@dataclass
class World:
    """What is simulated; the scheduler is another one for each schedule.

    Attributes:
        lakes: one for each instance of the services.
        scheduler: of the present schedule.
        days: since the beginning, for the clock.
        disk: the files that a power failure would take.
    """

    lakes: tuple[Lake, ...] = ()
    scheduler: Scheduler = Scheduler(0)  # noqa: RUF009 - replaced before it is used
    days: int = 0
    disk: Disk = field(default_factory=lambda: Disk(os.fsync))

    def now(self) -> datetime:
        """The time: a millisecond for each boundary, a day for each schedule."""
        return _BEGINNING + timedelta(days=self.days, milliseconds=self.scheduler.steps)

    def boundary(self, name: str) -> None:
        """Hand the baton back, in a schedule."""
        self.scheduler.boundary(name)

    def fail(self, error: type[Exception], what: str) -> None:
        """Raise an error if the seed says so."""
        if self.scheduler.fails(OUTAGE):
            raise error(f"The {what} does not answer.", rule="simulated")


class SimulatedStorage:
    """A storage whose accesses are boundaries, and fail if the seed says so."""

    def __init__(self, inner: Storage, world: World) -> None:
        self._inner = inner
        self._world = world

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in _STORED:
            return method

        def call(*given: Any, **named: Any) -> Any:
            self._world.boundary(f"storage {name}")
            self._world.fail(StorageUnavailable, "storage")
            return method(*given, **named)

        return call

    def read(self, location: Location, *, limit: int) -> bytes:
        """Return a file, or other bytes."""
        self._world.boundary("storage read")
        self._world.fail(StorageUnavailable, "storage")
        data = self._inner.read(location, limit=limit)
        return _damaged(data) if self._world.scheduler.fails(DAMAGE) else data

    def create(self, location: Location, data: bytes) -> None:
        """Create a file."""
        self._world.boundary("storage create")
        self._world.fail(StorageUnavailable, "storage")
        self._world.disk.create(self._inner.create, location, data)


class SimulatedKms(KmsClient):
    """A KMS whose calls are boundaries, and fail if the seed says so."""

    identifier = "local"

    def __init__(self, inner: KmsClient, world: World) -> None:
        self._inner = inner
        self._world = world

    def create_key(self, master_key_id: str, length: int, context: KeyContext) -> CreatedKey:
        self._called("create")
        return self._inner.create_key(master_key_id, length, context)

    def get_key(self, wrapped: bytes, context: KeyContext) -> SecretBytes:
        self._called("unwrap")
        return self._inner.get_key(wrapped, context)

    def rewrap_keys(self, items: Sequence[tuple[bytes, KeyContext]]) -> list[bytes]:
        self._called("rewrap")
        return self._inner.rewrap_keys(items)

    def _called(self, operation: str) -> None:
        self._world.boundary(f"kms {operation}")
        self._world.fail(KmsUnavailable, "KMS")


@contextmanager
def simulated(root: Path) -> Iterator[World]:
    """Open a catalog on SQLite with two instances of the services."""
    world = World()
    with ExitStack() as stack:
        lake = stack.enter_context(open_lake(root))
        lake.catalog().create_namespace("db")
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        opened: Callable[..., Storage] = context.open_storage
        patch.setattr(context, "open_storage", lambda settings: SimulatedStorage(opened(settings), world))
        # A remote KMS is called in a thread of its own, which no scheduler can hold.
        patch.setattr(context, "guarded", lambda kms, _calls, name=None: CountedKms(kms, name))
        patch.setattr(os, "fsync", world.disk.flush)
        patch.setattr(conflicts, "_pause", lambda _attempt: world.boundary("pause after a conflict"))
        patch.setattr(peks, "_published", _published(world, peks._published))
        patch.setattr(Turns, "_wait", lambda _turns, _key, turn: _turn(world, turn))
        kms = SimulatedKms(lake.kms, world)
        services = [
            stack.enter_context(Services.open(lake.settings, kms, now=world.now, seconds=lambda: 0.0))
            for _ in range(2)
        ]
        for each in services:
            _report_transactions(each.engine, world)
        stack.enter_context(crash_points.hooked(lambda name: world.boundary(f"point {name}")))
        world.lakes = tuple(Lake(root, lake.settings, each, lake.kms) for each in services)
        yield world


def _published(world: World, inner: Callable[..., Any]) -> Callable[..., Any]:
    """A wait for another caller's unwrap that lets that caller go on."""

    def published(flight: Future[Any], wait_s: float) -> Any:
        while not flight.done():
            world.boundary("wait for a key")
        return inner(flight, wait_s)

    return published


def _turn(world: World, turn: threading.Event) -> None:
    """A wait for another commit's turn that lets that commit go on."""
    while not turn.is_set():
        world.boundary("wait for a turn")


def _damaged(data: bytes) -> bytes:
    """Return the bytes with another value of a client, if they have one."""
    return _VALUE.sub(lambda found: found[1] + found[2][::-1], data)


def _report_transactions(engine: Engine, world: World) -> None:
    """Make begin and end of each transaction a boundary, and each COMMIT a fault if the seed says so."""

    def before_write(*_: object) -> None:
        world.boundary("write")
        world.fail(StateUnavailable, "database")
        world.scheduler.enter()

    def before_read(*_: object) -> None:
        world.boundary("read")
        world.fail(StateUnavailable, "database")

    def after_write(_: object, __: object) -> None:
        world.scheduler.leave()
        if world.scheduler.fails(POWER):
            world.disk.lose_power()
        world.boundary("written")

    def at_commit(connection: Connection) -> None:
        world.scheduler.leave()
        lost = world.scheduler.fails(LOST_ANSWER)
        takes_effect = lost and world.scheduler.rng.random() < 0.5
        world.scheduler.enter()
        if takes_effect:
            connection.connection.commit()
        if lost:
            # As an answer to COMMIT that is lost: what became of it is not known.
            raise exc.OperationalError("COMMIT", None, sqlite3.OperationalError("lost"))

    # A connection is taken before the transaction begins, and SQLite's lock is taken.
    event.listen(engine, "checkout", before_write)
    event.listen(engine, "commit", at_commit)
    event.listen(engine, "checkin", after_write)
    event.listen(readers_of(engine), "checkout", before_read)
