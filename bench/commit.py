"""Commit checks: manifest list and manifests opened, every path and entry checked; no data file opened.

A commit is judged as a difference from its parent, so parents of several sizes are measured, and commits that
add files, that delete one, and that write all manifests anew. Figures are CPU time. Each run has a commit of
its own, which is checked twice: with its manifests still to be decoded, and decoded. Of the parent,
the catalog has what it keeps between commits.

Budget of the checks, without decoding: 50 ms plus 10 µs an entry of the commit's new manifests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import update_table_metadata

from bench.report import Figure, at_most, figure
from bench.samples import data_files, make_table, root_of
from catalog.identifiers import table_name
from tests.support.lake import Lake, open_lake

PARENTS = (1_000, 20_000)
MANIFESTS = 10
ADDED = (1, 1_000, 20_000)
MERGING = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}


def measure(root: Path, runs: int) -> list[Figure]:
    """Measure the checks of commits to a small table and to a large one."""
    with open_lake(root_of(root, "commit")) as lake:
        lake.catalog().create_namespace("db")
        return [figure for files in PARENTS for figure in _of_parent(lake, files, runs)]


def _of_parent(lake: Lake, files: int, runs: int) -> Iterator[Figure]:
    name = f"db.of_{files}"
    table = make_table(lake.catalog(), name, files, files // MANIFESTS)
    for what, entries, stage in _commits(table, files):
        first, checks = _cpu_ms(lake, name, stage, runs)
        yield at_most(50 + entries * 0.01, figure(f"{files:,} files: {what}", checks, "ms"))
        yield figure("  with decoding", first, "ms")


def _commits(table: Table, files: int) -> Iterator[tuple[str, int, Callable[[], TableMetadata]]]:
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


def _cpu_ms(
    lake: Lake, name: str, stage: Callable[[], TableMetadata], runs: int
) -> tuple[list[float], list[float]]:
    """CPU time of several commits' checks, with decoding and without; one commit before does not count."""
    loaded = lake.warden.loader.load_sealed(table_name(*_parts(name)))
    first, checks = list[float](), list[float]()
    for _ in range(runs + 1):
        staged = stage()
        for taken in (first, checks):
            start = time.process_time()
            lake.warden.committer._inspector.commit(loaded, staged)
            taken.append((time.process_time() - start) * 1000)
    return first[1:], checks[1:]


def _parts(name: str) -> tuple[list[str], str]:
    namespace, _, table = name.partition(".")
    return [namespace], table
