"""Transactions on the same tables at once, named in any order: each takes effect on all of its tables or on
none, and none waits for another in a circle."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.table.update import SetPropertiesUpdate

from catalog.base.errors import CommitConflict
from catalog.base.identifiers import TableName
from catalog.commits.committer import TableChange
from catalog.service.services import Services
from tests.faults.conftest import Shared
from tests.support.crash import PATIENCE_S, assert_sound
from tests.support.lake import ALICE, Lake
from tests.support.tables import make, name_of

WRITERS, ROUNDS = 4, 4

Told = dict[str, tuple[TableName, ...]]


def _write(lake: Lake, names: list[TableName], number: int) -> Told:
    """Commit transactions, each marked by a property of its tables; some govern, and so take more locks.

    Returns:
        the tables of the acknowledged ones, by mark.
    """
    rng, told = random.Random(number), Told()
    caller = lake.caller(ALICE)
    with Services.open(lake.settings, lake.kms) as services:
        for turn in range(ROUNDS):
            mark = f"mark-{number}-{turn}"
            chosen = tuple(rng.sample(names, rng.choice((1, 2, 3))))
            properties = {mark: "1"}
            if rng.random() < 0.5:
                root = services.loader.record(chosen[0]).location.canonical
                properties["read.allowed.data.paths"] = f"{root},file:///elsewhere/{mark}"
            first = SetPropertiesUpdate(updates=properties)
            changes = [TableChange(chosen[0], (), (first,))]
            changes += [
                TableChange(each, (), (SetPropertiesUpdate(updates={mark: "1"}),)) for each in chosen[1:]
            ]
            try:
                services.committer.commit_together(caller, changes)
            except CommitConflict:
                continue
            told[mark] = chosen
    return told


def test_all_or_nothing_in_any_order_without_a_deadlock(shared: Shared) -> None:
    """A deadlock would be answered by the database as a failure, and a wait would have no end."""
    lake = shared.lake
    names = [name_of(make(lake)) for _ in range(3)]
    with ThreadPoolExecutor(WRITERS) as pool:
        told = Told()
        for writer in [pool.submit(_write, lake, names, number) for number in range(WRITERS)]:
            told |= writer.result(PATIENCE_S)
    assert told
    wanted = Counter((mark, name) for mark, chosen in told.items() for name in chosen)
    tables = {name: lake.services.loader.load_sealed(name) for name in names}
    found = Counter(
        (mark, name)
        for name, table in tables.items()
        for mark in table.metadata.properties
        if mark.startswith("mark-")
    )
    assert found == wanted
    assert_sound(lake)


def test_two_orders_of_the_same_tables(shared: Shared) -> None:
    """Both reach their locks at the same time, again and again."""
    lake = shared.lake
    names = [name_of(make(lake)) for _ in range(2)]
    barrier, caller = threading.Barrier(2), lake.caller(ALICE)

    def act(order: list[TableName]) -> int:
        done = 0
        for turn in range(6):
            mark = SetPropertiesUpdate(updates={"mark": f"{order[0]}-{turn}"})
            barrier.wait(PATIENCE_S)
            try:
                lake.services.committer.commit_together(
                    caller, [TableChange(each, (), (mark,)) for each in order]
                )
                done += 1
            except CommitConflict:
                pass
        return done

    with ThreadPoolExecutor(2) as pool:
        acts = [pool.submit(act, names), pool.submit(act, names[::-1])]
        done = sum(each.result(PATIENCE_S) for each in acts)
    marks = {lake.services.loader.load_sealed(each).metadata.properties["mark"] for each in names}
    assert done >= 6 and len(marks) == 1
    assert_sound(lake)
