"""Commit checks: opens manifest list and manifests, checks every path and entry, opens no data file.

A commit is judged as a difference from its parent, so parents of several sizes are measured, and commits that
add files, that delete one, and that write all manifests again. Figures are CPU time. Each run has a commit of
its own, which is checked twice: with its manifests still to be decoded, and decoded. Of the parent,
the catalog has what it keeps between commits.

Budget of the checks, decoding included: 50 ms plus 10 µs an entry of the commit's new manifests. Whether the
added files exist is asked of the storage, and has no part in it: those figures stand apart.
"""

from __future__ import annotations

import copy
import gc
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import SetPropertiesUpdate, update_table_metadata

from bench.report import Figure, at_most, figure
from bench.samples import data_files, make_table, root_of
from catalog.base.identifiers import table_name
from catalog.commits.committer import TableChange
from tests.support.lake import ALICE, Lake, open_lake

PARENTS = (1_000, 20_000)
MANIFESTS = 10
ADDED = (1, 1_000, 20_000)
LOOKED_AT = 1_000
TOGETHER = 10
MERGING = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}

FIRST, AGAIN = "with decoding", "decoded before"


@dataclass(frozen=True)
class Commit:
    """One kind of commit.

    Attributes:
        entries: how many entries its new manifests have.
        check: writes one, and checks it; CPU time in milliseconds, `FIRST` and `AGAIN`.
    """

    entries: int
    check: Callable[[], Mapping[str, float]]

    @property
    def budget_ms(self) -> float:
        """What the checks should take at most."""
        return 50 + self.entries * 0.01


def measure(root: Path, runs: int) -> list[Figure]:
    """Measure the checks of commits to a small table and to a large one."""
    with open_lake(root_of(root, "commit")) as lake:
        checked = [each for name, commit in commits(lake).items() for each in _figures(name, commit, runs)]
        return [*checked, _looking(lake, runs), *_together(lake, runs)]


@contextmanager
def contender(root: Path) -> Iterator[Mapping[str, Callable[[], Mapping[str, float]]]]:
    """The checks by name; each call checks one commit (see `bench.before`)."""
    with open_lake(root) as lake:
        yield {name: commit.check for name, commit in commits(lake).items()}


def commits(lake: Lake) -> dict[str, Commit]:
    """Every kind of commit by its name, to tables that are made here."""
    lake.catalog().create_namespace("db")
    return {name: commit for files in PARENTS for name, commit in _of_parent(lake, files)}


def _of_parent(lake: Lake, files: int) -> Iterator[tuple[str, Commit]]:
    name = f"of_{files}"
    table = make_table(lake.catalog(), f"db.{name}", files, files // MANIFESTS)
    for what, entries, stage in _kinds(table, files):
        yield f"{files:,} files: {what}", Commit(entries, lambda stage=stage: _cpu_ms(lake, name, stage))


def _kinds(table: Table, files: int) -> Iterator[tuple[str, int, Callable[[], TableMetadata]]]:
    """What is committed, how many entries its new manifests have, and how it is written."""
    for size in ADDED:
        yield f"add {size:,}", size, lambda size=size: _adding(table, size)
    yield "delete one", files // MANIFESTS, lambda: _deleting(table)
    yield "merge all manifests", files + 1, lambda: _adding(table, 1, **MERGING)


def _adding(table: Table, size: int, **properties: str) -> TableMetadata:
    transaction = table.transaction()
    if properties:
        transaction.set_properties(properties)
    update = transaction.update_snapshot()
    with update.merge_append() if properties else update.fast_append() as producer:
        for file in data_files(table, 10_000_000 + size, size):
            file.spec_id = 0
            producer.append_data_file(file)
    return update_table_metadata(table.metadata, transaction._updates)


def _deleting(table: Table) -> TableMetadata:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    transaction = table.transaction()
    with transaction.update_snapshot().overwrite() as producer:
        manifest = snapshot.manifests(table.io)[0]
        producer.delete_data_file(manifest.fetch_manifest_entry(table.io)[0].data_file)
    return update_table_metadata(table.metadata, transaction._updates)


class _NotLookedAt:
    """In place of `AddedFiles`: the files of these commits are never written."""

    def check(self, added: object, table: str) -> None:
        """Accept them."""


def _cpu_ms(lake: Lake, name: str, stage: Callable[[], TableMetadata]) -> Mapping[str, float]:
    loaded = lake.services.loader.load_sealed(table_name(["db"], name))
    inspector = copy.copy(lake.services.inspector)
    vars(inspector)["_added_files"] = _NotLookedAt()
    staged = stage()
    return {what: _timed(lambda: inspector.commit(loaded, staged)) for what in (FIRST, AGAIN)}


def _timed(run: Callable[[], object]) -> float:
    gc.collect()  # of what was measured before
    start = time.process_time()
    run()
    return (time.process_time() - start) * 1000


def _figures(name: str, commit: Commit, runs: int) -> Iterator[Figure]:
    """One commit before does not count."""
    taken = [commit.check() for _ in range(runs + 1)][1:]
    for what, named in ((FIRST, name), (AGAIN, f"  {AGAIN}")):
        yield at_most(commit.budget_ms, figure(named, [each[what] for each in taken], "ms"))


def _looking(lake: Lake, runs: int) -> Figure:
    """Asking the storage, here a local directory, for the files of a table."""
    table = make_table(lake.catalog(), "db.looked_at", LOOKED_AT, LOOKED_AT)
    files = table.inspect.files()
    added = pa.table({name: files[name] for name in ("file_path", "file_size_in_bytes")})
    taken = [_timed(lambda: lake.services.added_files.check([added], "db.looked_at")) for _ in range(runs)]
    return figure(f"looking at {LOOKED_AT:,} added files", taken, "ms")


def _together(lake: Lake, runs: int) -> Iterator[Figure]:
    """A property of each of several tables: one transaction, and one commit after the other."""
    names = [table_name(["db"], f"together_{number}") for number in range(TOGETHER)]
    for each in names:
        make_table(lake.catalog(), str(each), 1, 1)
    numbers, caller, committer = itertools.count(), lake.caller(ALICE), lake.services.committer

    def changes() -> list[TableChange]:
        update = SetPropertiesUpdate(updates={"number": str(next(numbers))})
        return [TableChange(each, (), (update,)) for each in names]

    def apart() -> None:
        for each in changes():
            committer.commit(caller, each.name, each.requirements, each.updates)

    ways = {
        f"a transaction of {TOGETHER} tables": lambda: committer.commit_together(caller, changes()),
        f"  {TOGETHER} commits instead": apart,
    }
    for named, commit in ways.items():
        yield figure(named, [_timed(commit) for _ in range(runs + 1)][1:], "ms")
