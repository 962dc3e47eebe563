"""A short soak: the clients, the faults, the checker and the report work together."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.soak.history import History, Kind, Operation, Outcome, Span, State
from tests.soak.report import Soak, figures_of, picture
from tests.soak.samples import Sample, halves, longest_life, slope

MIB = 1024**2


def sample(at: float, pid: int, rss_mib: float) -> Sample:
    return Sample(at, pid, int(rss_mib * MIB), 30, 12, int(at * 2048), int(at))


def soaked(samples: list[Sample]) -> Soak:
    history = History([Operation(Kind.APPEND, "t", 0.0, 0.5, Outcome.OK, "a", State("u", ("a",)))])
    return Soak({}, history, samples, [], [], "", 1.0)


@pytest.mark.nightly
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_minute_of_faults_loses_nothing(database: str, request: pytest.FixtureRequest) -> None:
    if database == "postgres":
        request.getfixturevalue("postgres")
    command = [sys.executable, "-m", "tests.soak", "--minutes", "1", "--database", database]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_memory_that_grows_is_reported() -> None:
    flat = figures_of(soaked([sample(float(n), 1, 100) for n in range(50)]))
    grown = figures_of(soaked([sample(float(n), 1, 100 + n) for n in range(50)]))
    assert [each.met for each in flat[:3]] == [True, True, True]
    assert [each.met for each in grown[:3]] == [False, True, True]


def test_the_growth_of_the_database_is_that_of_a_request() -> None:
    samples = [sample(float(n), 1, 1) for n in range(50)]
    by_name = {each.name: each.value for each in figures_of(soaked(samples))}
    assert by_name["database of a request"] == pytest.approx(2.0)


def test_only_the_longest_life_counts_without_its_beginning() -> None:
    lives = [sample(float(n), n // 10 if n < 20 else 9, 1) for n in range(120)]
    assert {each.pid for each in longest_life(lives)} == {9}
    assert len(longest_life(lives)) == 80


def test_a_slope_and_halves_of_nothing_are_nothing() -> None:
    assert slope([]) == slope([(1.0, 2.0)]) == 0.0
    assert halves([]) == (0.0, 0.0)
    assert longest_life([]) == []


def test_a_picture_shows_samples_and_faults() -> None:
    drawn = picture([sample(1.0, 1, 1), sample(2.0, 1, 2)], [Span("kill", 1.2, 1.4)])
    assert drawn.count("<polyline") == 5 and "<title>kill</title>" in drawn
