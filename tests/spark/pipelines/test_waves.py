"""Waves of a migration, and which snapshots it compares."""

from __future__ import annotations

from spark_ext.pipelines.items import Item, Outcome, Status
from spark_ext.pipelines.migrate.waves import Waves

ITEMS = [Item(str(number), f"n.t{number}") for number in range(20)]


def sizes(waves: Waves, most: int = 4) -> list[int]:
    left, found = list(ITEMS), []
    while left:
        taken = waves.take(left, most)
        for item in taken:
            waves.ended(Outcome.of(item), fatal=False)
        found.append(len(taken))
        left = left[len(taken) :]
    return found


def test_the_first_waves_are_small_and_none_is_begun_before_the_last_one_ends() -> None:
    assert sizes(Waves((1, 6), 1)) == [1, 4, 2, 4, 4, 4, 1]
    assert sizes(Waves((), 1), most=20) == [20]


def test_too_many_failures_of_one_wave_end_the_run() -> None:
    failed = Outcome.of(ITEMS[0], Status.FAILED, "x")
    waves = Waves((2, 2), 2)
    waves.take(ITEMS, 4)
    waves.ended(failed, fatal=False)
    waves.ended(Outcome.of(ITEMS[1], Status.LEFT, "busy"), fatal=False)
    assert waves.stopped is None
    assert len(waves.take(ITEMS[2:], 4)) == 2
    waves.ended(failed, fatal=False)
    assert waves.stopped is None, "Failures of the wave before do not count."
    waves.ended(failed, fatal=False)
    assert waves.stopped == "Not begun: 2 tables of wave 2 failed, so the run stopped there."


def test_a_fatal_failure_ends_the_run_alone() -> None:
    waves = Waves((5,), 3)
    waves.take(ITEMS, 4)
    waves.ended(Outcome.of(ITEMS[0], Status.FAILED, "x"), fatal=True)
    assert waves.stopped is not None


def test_a_wave_of_which_all_tables_fail_is_the_last_one() -> None:
    waves = Waves((1, 10), 3)
    waves.take(ITEMS, 4)
    waves.ended(Outcome.of(ITEMS[0], Status.FAILED, "x"), fatal=False)
    assert waves.stopped is not None
