"""The index of tests/support names each of its modules; tables of vectors run each of their rows.

Few workers run Spark.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.scheduling import FewSparks
from tests.support.vectors import each_row

_SUPPORT = Path(__file__).parent / "support"


def test_index_of_the_shared_modules_is_whole() -> None:
    named = re.findall(r"^\| `(\w+\.py)` \| .+ \|$", (_SUPPORT / "README.md").read_text(), re.MULTILINE)
    assert named == sorted(path.name for path in _SUPPORT.glob("*.py"))


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


def test_two_workers_run_spark_as_long_as_there_are_other_tests() -> None:
    files = [f"tests/spark/test_{each}.py" for each in range(4)] + [
        f"tests/test_{each}.py" for each in range(6)
    ]
    tests = [f"{file}::test" for file in files]
    workers = [_Worker(number) for number in range(4)]
    option = SimpleNamespace(loadscopereorder=False)
    scheduler = FewSparks(SimpleNamespace(getvalue=lambda _: ["popen"] * 4, option=option))
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, tests)
    scheduler.schedule()
    given = [[files[each] for each in worker.given] for worker in workers]
    assert sorted(given[0] + given[1]) == files[:4]
    assert sorted(given[2] + given[3]) == files[4:8]
    while not scheduler.tests_finished:
        worker = next(each for each in workers if len(each.given) > 1)
        scheduler.mark_test_complete(worker, worker.given.pop(0))
    assert not scheduler.workqueue


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
