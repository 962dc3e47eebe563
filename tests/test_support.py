"""The index of tests/support names each of its modules; tables of vectors run each of their rows.

Few workers run Spark, and few rows of a long table of examples run by day.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.rows_by_day import leave_rows_to_nightly
from tests.support.scheduling import FewSparks
from tests.support.vectors import each_row

_SUPPORT = Path(__file__).parent / "support"


def test_index_of_the_shared_modules_is_whole() -> None:
    named = re.findall(r"^\| `(\w+\.py)` \| .+ \|$", (_SUPPORT / "README.md").read_text(), re.MULTILINE)
    assert named == sorted(path.name for path in _SUPPORT.glob("*.py"))


class _Item:
    """A test that was collected, with its marks."""

    def __init__(self, nodeid: str, *marks: pytest.MarkDecorator) -> None:
        self.nodeid = nodeid
        self.marks = {each.name: each.mark for each in marks}

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.marks.get(name)

    def add_marker(self, name: str) -> None:
        self.marks[name] = getattr(pytest.mark, name).mark


@pytest.mark.parametrize(
    ("rows", "by_day"), [(7, [0, 3, 6]), (4, [0, 2, 3]), (3, [0, 1, 2]), (2, [0, 1]), (1, [0])]
)
def test_rows_by_day_are_spread_from_the_first_to_the_last(rows: int, by_day: list[int]) -> None:
    items = [_Item(f"test_x[{each}]", pytest.mark.rows_by_day(3)) for each in range(rows)]
    others = [_Item(f"test_y[{each}]") for each in range(9)]
    nightly = _Item("test_x[all]", pytest.mark.rows_by_day(3), pytest.mark.nightly)
    leave_rows_to_nightly([nightly, *items, *others])
    assert [each.nodeid for each in items if "nightly" not in each.marks] == [f"test_x[{n}]" for n in by_day]
    assert not any("nightly" in each.marks for each in others)


def test_one_row_by_day_would_be_an_end_alone() -> None:
    with pytest.raises(ValueError, match="at least 2, not 1"):
        leave_rows_to_nightly([_Item("test_x[0]", pytest.mark.rows_by_day(1))])


class _Worker:
    """A worker that runs nothing, and keeps what it is given."""

    shutting_down = False

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.given: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def _given(workers: Sequence[_Worker], tests: Sequence[str]) -> list[set[str]]:
    """What each worker is given, until all tests are done."""
    option = SimpleNamespace(loadscopereorder=False)
    scheduler = FewSparks(SimpleNamespace(getvalue=lambda _: ["popen"] * len(workers), option=option))
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, tests)
    scheduler.schedule()
    given: dict[_Worker, set[str]] = {each: set() for each in workers}
    while not scheduler.tests_finished:
        # A worker keeps its last test until it is told that none follows.
        worker = next(each for each in workers if len(each.given) > (not each.shutting_down))
        done = worker.given.pop(0)
        given[worker].add(tests[done])
        scheduler.mark_test_complete(worker, done)
    return [given[each] | {tests[left] for left in each.given} for each in workers]


@pytest.mark.parametrize(("sparks", "others"), [(4, 12), (12, 6), (9, 0)])
def test_two_workers_run_spark_and_all_run_the_other_tests(sparks: int, others: int) -> None:
    with_spark = {f"tests/spark/test_{each}.py::test" for each in range(sparks)}
    tests = [*with_spark, *(f"tests/test_{each}.py::test" for each in range(others))]
    first, second, *rest = _given([_Worker(number) for number in range(4)], tests)
    assert first | second >= with_spark
    assert set().union(first, second, *rest) == set(tests)


def test_one_worker_runs_everything() -> None:
    tests = [
        f"{directory}/test_{each}.py::test" for directory in ("tests/spark", "tests") for each in range(3)
    ]
    assert _given([_Worker(0)], tests) == [set(tests)]


def test_each_row_runs_and_each_failure_is_named() -> None:
    seen = []

    @each_row("number, even", [(1, False), (2, False), (3, False), (4, False)])
    def check(number: int, even: bool) -> None:
        seen.append(number)
        assert (number % 2 == 0) is even

    with pytest.raises(AssertionError) as failed:
        check()
    assert seen == [1, 2, 3, 4]
    (note,) = failed.value.__notes__
    assert note.startswith("2 of 4 rows failed:\n  (2, False): AssertionError") and "\n  (4, False)" in note


def test_own_assertion_is_raised_before_other_errors() -> None:
    @each_row("number", [0, 1])
    def check(number: int) -> None:
        assert 1 / number == 2

    with pytest.raises(AssertionError, match="rows failed"):
        check()


def test_row_that_raises_nothing_is_a_failure() -> None:
    @each_row("text", ["1", "x"])
    def check(text: str) -> None:
        with pytest.raises(ValueError):
            int(text)

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        check()


@each_row("first", [1, 2])
@each_row("second", [3, 4])
def test_rows_leave_fixtures_alone(first: int, second: int, tmp_path: Path) -> None:
    assert first < second and tmp_path.is_dir()


def test_tables_do_not_lose_rows() -> None:
    with pytest.raises(AssertionError, match="2 rows, but there were 3"):
        each_row("number", [1, 2], count=3)
    with pytest.raises(AssertionError):
        each_row("number", [])
    with pytest.raises(AssertionError, match="takes"):
        each_row("number", [1])(lambda other: None)


class TestOfAClass:
    """A class of tests takes rows as well."""

    @each_row("number", [1, 2])
    def test_rows_of_a_method(self, number: int) -> None:
        assert isinstance(self, TestOfAClass) and number
