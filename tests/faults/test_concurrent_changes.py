"""Statements of many threads at once: each snapshot is what a model of their isolation levels says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from catalog.writes.new_files import Isolation
from tests.faults.conftest import Shared
from tests.support.crash import PATIENCE_S
from tests.support.row_changes import Ledger
from tests.support.row_statements import Rows, Statement, by_threads

pytestmark = pytest.mark.nightly

STATEMENTS = 8
KINDS = ("insert", "update", "update", "delete", "overwrite", "partitions", "truncate", "compact")


def a_statement(chance: random.Random, part: str) -> Statement:
    kind = chance.choice(KINDS)
    adds = kind in ("insert", "overwrite", "partitions")
    rows = tuple((chance.randrange(10), part, 0) for _ in range(chance.randrange(1, 3))) if adds else ()
    levels = [None, Isolation.SNAPSHOT]
    if kind in ("overwrite", "partitions", "truncate"):
        levels.append(Isolation.NONE)
    return Statement(
        kind,  # type: ignore[arg-type]
        part,
        below=chance.choice([None, 5]) if kind in ("update", "delete") else None,
        rows=rows,
        merge_on_read=chance.random() < 0.5,
        level=chance.choice(levels) if kind not in ("insert", "compact") else None,
    )


def test_statements_of_threads_are_isolated(shared: Shared) -> None:
    rows = Rows(Ledger.of(shared.lake))
    told: Counter[bool] = Counter()

    def worker(seed: int) -> Callable[[], None]:
        def run() -> None:
            chance = random.Random(seed)
            for _ in range(STATEMENTS):
                told[rows.finish(rows.begin(a_statement(chance, chance.choice("ab"))))] += 1

        return run

    by_threads({f"worker {number}": worker(number) for number in range(4)}, PATIENCE_S)
    assert rows.check_history() == told[True] > 0


def test_statements_on_other_partitions_and_branches_never_fail_each_other(shared: Shared) -> None:
    """Each thread has a partition, or a branch, of its own: every statement is committed."""
    rows = Rows(Ledger.of(shared.lake))
    assert rows.finish(rows.begin(Statement("insert", "z", rows=((1, "z", 0),))))

    def worker(part: str, branch: str) -> Callable[[], None]:
        def run() -> None:
            own = {"merge_on_read": part in "ac", "branch": branch}
            for number in range(2):
                changed = [
                    Statement(
                        "insert", part, rows=((number, part, 0), (number + 10, part, 0)), branch=branch
                    ),
                    Statement("update", part, **own),  # type: ignore[arg-type]
                    Statement("delete", part, below=1, **own),  # type: ignore[arg-type]
                    Statement(
                        "overwrite", part, rows=((7, part, 7),), level=Isolation.SERIALIZABLE, branch=branch
                    ),
                ]
                for each in changed:
                    assert rows.finish(rows.begin(each)), each

        return run

    places = [("a", "main"), ("b", "main"), ("a", "one")]
    by_threads({f"{part} on {branch}": worker(part, branch) for part, branch in places}, PATIENCE_S)
    rows.check_history()
