"""Measures access reports for sets of policies of each kind: ``python -m bench.access_reports``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import Console

from bench.access_samples import Sample
from bench.report import Figure, figure, show
from policy.access import People, Question, differences, who_can
from policy.known_table import KnownTable
from policy.ranger import PolicySet

_KINDS = {
    "by group": {},
    "half of the tables with an own policy": {"own": True},
    "conditions": {"conditions": True},
    "{USER} and {OWNER}": {"macros": True},
    "tags": {"tags": True},
    "all of these": {"own": True, "conditions": True, "macros": True, "tags": True},
}


def measure(users: int, tables: int, kinds: list[str] | None = None) -> Iterator[Figure]:
    """Compare each set with itself changed, and with no policies."""
    for name, features in _KINDS.items():
        if kinds and name not in kinds:
            continue
        sample = Sample(users=users, tables=tables, **features)
        old = sample.parsed()
        new = sample.changes().parsed(old)
        yield _difference(f"{name}, one policy in fifty changed", sample, old, new)
        yield _difference(f"{name}, all policies new", sample, PolicySet.empty(), new)
        yield _who_can(f"{name}, who can read a table", sample, new)


def _difference(name: str, sample: Sample, old: PolicySet, new: PolicySet) -> Figure:
    known, things, now = sample.people(), sample.things(), datetime.now(UTC)
    start = time.process_time()
    people = People(known, (old, new), frozenset(each.owner for each in things if each.owner))
    found = differences(old, new, people, things, now)
    return figure(f"{name}: {len(found):,} rows", [time.process_time() - start], "s")


def _who_can(name: str, sample: Sample, policies: PolicySet) -> Figure:
    known, now = sample.people(), datetime.now(UTC)
    thing = sample.things()[sample.namespaces]
    start = time.process_time()
    people = People(known, [policies], frozenset({thing.owner or ""}))
    table = KnownTable(columns=tuple(thing.columns()))
    database, table_name = thing.resource.values
    question = Question("read", (database, table_name), None, thing.owner, table, now)
    found = who_can(policies, people, question)
    return figure(f"{name}: {len(found):,} rows", [time.process_time() - start], "s")


def main() -> None:
    """Measure every kind of set, and print a table of CPU seconds."""
    arguments = argparse.ArgumentParser(description="Access reports: CPU seconds")
    arguments.add_argument("--users", type=int, default=10_000)
    arguments.add_argument("--tables", type=int, default=10_000)
    arguments.add_argument("--kind", action="append", choices=list(_KINDS), help="only sets of this kind")
    given = arguments.parse_args()
    title = f"Access reports, {given.users:,} users x {given.tables:,} tables (CPU seconds)"
    show(Console(width=140), title, measure(given.users, given.tables, given.kind))


if __name__ == "__main__":
    main()
