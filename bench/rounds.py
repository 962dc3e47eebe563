"""Measures contenders in rounds. Each round starts with a different contender.

So a machine that becomes slower does so for all; a ratio is the median of those of the rounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from bench.report import Figure

#: Seconds by contender, one a round.
Taken = Mapping[str, Sequence[float]]


def in_rounds(
    actions: Mapping[str, Callable[[], object]],
    times: int,
    after: Callable[[str], None] = lambda name: None,
    warm_up: int = 2,
) -> Taken:
    """How long each action takes, in rounds of all of them, after some that do not count."""
    (taken,) = in_rounds_by([time.perf_counter], actions, times, after, warm_up)
    return taken


def in_rounds_by(
    clocks: Sequence[Callable[[], float]],
    actions: Mapping[str, Callable[[], object]],
    times: int,
    after: Callable[[str], None] = lambda name: None,
    warm_up: int = 2,
) -> list[Taken]:
    """The same by several clocks."""
    taken: list[dict[str, list[float]]] = [{name: [] for name in actions} for _ in clocks]
    names = list(actions)
    for number in range(-warm_up, times):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            starts = [clock() for clock in clocks]
            actions[name]()
            took = [clock() - start for clock, start in zip(clocks, starts, strict=True)]
            after(name)
            if number >= 0:
                for each, seconds in zip(taken, took, strict=True):
                    each[name].append(seconds)
    return [*taken]


def ratios_of(taken: Taken, name: str, base: str) -> list[float]:
    """How many times as long one took as another, round by round."""
    return [ours / theirs for ours, theirs in zip(taken[name], taken[base], strict=True)]


def mean_of(name: str, given: Sequence[float]) -> Figure:
    """The geometric mean, between the smallest and the largest ratio."""
    return Figure(name, statistics.geometric_mean(given), "times", min(given), max(given), len(given))
