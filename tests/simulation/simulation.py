"""Schedules: what a few clients do, interleaved as a seed says, and whether one order explains the answers.

To replay a failure: ``python -m tests.simulation SEED``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from catalog.base.errors import NoSuchTable
from catalog.base.identifiers import TableName
from catalog.reading.loading import LoadedTable
from catalog.tables.alter import SetProperty
from catalog.tables.drafts import NewTable
from catalog.writes.new_files import FileCommit
from policy.errors import CommitStateUnknown, LakewardenError
from tests.simulation.scheduler import Scheduler
from tests.simulation.world import World
from tests.soak.checker import Finding, check
from tests.soak.history import Kind, Operation, Outcome, State
from tests.support.crash import assert_sound
from tests.support.lake import ALICE, Lake
from tests.support.tables import ENCRYPTED, SCHEMA, Engine, fresh

ELEMENT, NOTE = "soak.element", "soak.note"
CLIENTS, ACTS = 3, 3
#: The part of the boundaries at which a fault happens, in half of the schedules.
FAULTS = 0.02


@dataclass
class Client:
    """One client: what it does is drawn by its own numbers, so that no choice of the scheduler changes it."""

    lake: Lake
    scheduler: Scheduler
    history: list[Operation]
    rng: random.Random
    table: TableName
    other: TableName

    def run(self) -> None:
        """Do a few things, one after the other."""
        acts = (
            self.append,
            self.append,
            self.append,
            self.alter,
            self.load,
            self.create,
            self.drop,
            self.look,
        )
        for _ in range(ACTS):
            self.rng.choice(acts)()

    def append(self) -> None:
        """Append an element by a write in two steps."""
        element = self._value()

        def act() -> LoadedTable:
            engine = Engine.begin(self.lake, self.table)
            return self._commit(engine, element)

        self._do(Kind.APPEND, self.table, act, element)

    def alter(self) -> None:
        """Set the register of the table."""
        note, services = self._value(), self.lake.services
        changes = [SetProperty(NOTE, note)]
        self._do(
            Kind.ALTER,
            self.table,
            lambda: services.alterer.alter(self.lake.caller(ALICE), self.table, changes),
            note,
        )

    def load(self) -> None:
        """Load the table."""
        self._load(self.table)

    def look(self) -> None:
        """Load the table that comes and goes."""
        self._load(self.other)

    def create(self) -> None:
        """Create the table that comes and goes."""
        properties = ENCRYPTED if self.rng.random() < 0.3 else {}
        new = NewTable(self.other, SCHEMA, properties=dict(properties))
        services = self.lake.services
        self._do(Kind.CREATE, self.other, lambda: services.creator.create(self.lake.caller(ALICE), new))

    def drop(self) -> None:
        """Drop it."""
        services = self.lake.services
        self._do(Kind.DROP, self.other, lambda: services.lifecycle.drop(self.lake.caller(ALICE), self.other))

    def _load(self, name: TableName) -> None:
        def act() -> LoadedTable | None:
            try:
                return self.lake.services.access.load(self.lake.caller(ALICE), name)
            except NoSuchTable:
                return None

        self._do(Kind.READ, name, act)

    def _commit(self, engine: Engine, element: str) -> LoadedTable:
        files = FileCommit("append", (engine.file(),), summary={ELEMENT: element})
        found: LoadedTable = engine.commit(files)
        return found

    def _value(self) -> str:
        return str(UUID(int=self.rng.getrandbits(128)))

    def _do(
        self, kind: Kind, name: TableName, act: Callable[[], LoadedTable | None], value: str | None = None
    ) -> None:
        start, state = self.scheduler.steps, None
        try:
            state = _state(act())
            outcome = Outcome.OK
        except CommitStateUnknown:
            outcome = Outcome.UNKNOWN
        except LakewardenError:
            outcome = Outcome.REFUSED
        self.scheduler.boundary(f"{kind} is {outcome}")
        end = self.scheduler.steps
        self.history.append(Operation(kind, str(name), start, end, outcome, value, state))


def simulate(world: World, seed: int) -> list[Finding]:
    """Run one schedule; return what no order explains."""
    rng = random.Random(seed)
    history: list[Operation] = []
    table, other, encrypted = fresh(stem="sim"), fresh(stem="other"), rng.random() < 0.5
    world.scheduler = Scheduler(seed)
    world.days += 1
    lake = world.lakes[0]
    new = NewTable(table, SCHEMA, properties=dict(ENCRYPTED) if encrypted else {})
    made = lake.services.creator.create(lake.caller(ALICE), new)
    history.append(Operation(Kind.CREATE, str(table), -2, -1, Outcome.OK, None, _state(made)))
    scheduler = world.scheduler = Scheduler(seed, FAULTS if rng.random() < 0.5 else 0.0)
    clients = [
        Client(
            world.lakes[number % len(world.lakes)],
            scheduler,
            history,
            random.Random(f"{seed}-{number}"),
            table,
            other,
        )
        for number in range(CLIENTS)
    ]
    scheduler.run([(f"c{number}", each.run) for number, each in enumerate(clients)])
    return [*_last_reads(world, scheduler, history, (table, other)), *check(history)]


def _last_reads(
    world: World, scheduler: Scheduler, history: list[Operation], names: tuple[TableName, ...]
) -> list[Finding]:
    """What the tables are in the end, in each instance; and whether they can be read."""
    findings = []
    for step, lake in enumerate(world.lakes, scheduler.steps + 10):
        for name in names:
            try:
                state = _state(lake.services.access.load(lake.caller(ALICE), name))
            except NoSuchTable:
                state = None
            except LakewardenError as error:
                findings.append(Finding("table-cannot-be-read", str(name), type(error).__name__))
                continue
            history.append(Operation(Kind.READ, str(name), step, step + 0.5, Outcome.OK, None, state))
    return findings


def sound(world: World) -> None:
    """Assert that the database holds together after all schedules."""
    assert_sound(world.lakes[0])


def _state(loaded: LoadedTable | None) -> State | None:
    if loaded is None:
        return None
    snapshots = sorted(loaded.metadata.snapshots, key=lambda each: each.sequence_number or 0)
    elements = tuple(each.summary[ELEMENT] for each in snapshots if each.summary)
    name = loaded.metadata_location.rpartition("/")[2]
    return State(
        str(loaded.record.table_uuid),
        elements,
        int(name.partition("-")[0]),
        loaded.metadata_location,
        loaded.metadata.properties.get(NOTE),
    )
