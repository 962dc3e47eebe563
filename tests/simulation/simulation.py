"""Schedules: what a few clients do, interleaved as a seed says, and whether one order explains the answers.

To replay a failure: ``python -m tests.simulation SEED``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
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
from tests.simulation.world import KINDS, World
from tests.soak.checker import Finding, check
from tests.soak.history import Kind, Operation, Outcome, State
from tests.support.crash import assert_sound
from tests.support.lake import ALICE, Lake
from tests.support.tables import ENCRYPTED, SCHEMA, Engine, fresh

ELEMENT, NOTE = "soak.element", "soak.note"
CLIENTS, ACTS = 3, 3
#: Schedules in which each instance does everything once.
_WARM = 6
#: The part of the places for a fault at which one happens: of all kinds, or of one kind.
EACH_FAULT, ONE_FAULT = 0.02, 0.1


@dataclass
class Client:
    """One client: what it does is drawn by its own numbers, so that no choice of the scheduler changes it.

    Attributes:
        names_alone: whether it only creates, drops and loads the table that comes and goes.
    """

    lake: Lake
    scheduler: Scheduler
    history: list[Operation]
    rng: random.Random
    table: TableName
    other: TableName
    names_alone: bool

    def run(self) -> None:
        """Do a few things, one after the other."""
        names = (self.create, self.drop, self.look)
        acts = (
            names
            if self.names_alone
            else (self.append, self.append, self.append, self.alter, self.load, *names)
        )
        for _ in range(ACTS):
            self.rng.choice(acts)()

    def append(self) -> None:
        """Append an element by a write in two steps."""
        element = self._value()

        def act() -> LoadedTable | None:
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

    def _commit(self, engine: Engine, element: str) -> LoadedTable | None:
        """Commit a write; after an unknown outcome once more, since it is committed once.

        Returns:
            the table as of the commit; None if it was repeated.
        """
        files = FileCommit("append", (engine.file(),), summary={ELEMENT: element})
        try:
            found: LoadedTable = engine.commit(files)
        except CommitStateUnknown as unknown:
            try:
                engine.commit(files)
            except LakewardenError:
                raise unknown from None  # A refusal says nothing of the first attempt.
            return None
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


def warm_up(world: World) -> None:
    """Let both instances read what a process reads once (policies, settings), before what counts."""
    for seed in range(_WARM):
        simulate(world, seed, {})


def simulate(world: World, seed: int, faults: Mapping[str, float] | None = None) -> list[Finding]:
    """Run one schedule; return what no order explains.

    Args:
        world: the catalog.
        seed: of all choices.
        faults: as `Scheduler` takes them; None for those that the seed chooses.
    """
    rng = random.Random(seed)
    history: list[Operation] = []
    table, other, encrypted = fresh(stem="sim"), fresh(stem="other"), rng.random() < 0.5
    names_alone = rng.random() < 0.3
    world.scheduler = Scheduler(seed)
    world.days += 1
    lake = world.lakes[0]
    new = NewTable(table, SCHEMA, properties=dict(ENCRYPTED) if encrypted else {})
    made = lake.services.creator.create(lake.caller(ALICE), new)
    history.append(Operation(Kind.CREATE, str(table), -2, -1, Outcome.OK, None, _state(made)))
    scheduler = world.scheduler = Scheduler(seed, _faults(rng) if faults is None else faults)
    clients = [
        Client(
            world.lakes[number % len(world.lakes)],
            scheduler,
            history,
            random.Random(f"{seed}-{number}"),
            table,
            other,
            names_alone,
        )
        for number in range(CLIENTS)
    ]
    scheduler.run([(f"c{number}", each.run) for number, each in enumerate(clients)])
    world.disk.lose_power()
    return [*_last_reads(world, scheduler, history, (table, other)), *check(history)]


def _faults(rng: random.Random) -> Mapping[str, float]:
    """Draw the kinds of faults of a schedule: none, all, or one that happens often."""
    everything = dict.fromkeys(KINDS, EACH_FAULT)
    return rng.choice([{}, {}, everything, *({kind: ONE_FAULT} for kind in KINDS)])


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
