"""Commit checks: manifest list and manifests opened, every path and entry checked; no data file opened.

Budget: 50 ms plus 10 µs a file.
"""

from __future__ import annotations

from pathlib import Path

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import update_table_metadata

from bench.report import Figure, figure, seconds
from bench.samples import data_files, make_table, root_of
from catalog.identifiers import table_name
from tests.support.lake import Lake, open_lake

SIZES = (1, 1_000, 20_000)


def measure(root: Path, runs: int) -> list[Figure]:
    """Time the checks of one commit of each size, on a table of 20,000 files."""
    with open_lake(root_of(root, "commit")) as lake:
        lake.catalog().create_namespace("db")
        table = make_table(lake.catalog(), "db.t", 20_000, 5_000)
        figures = []
        for size in SIZES:
            transaction = table.transaction()
            with transaction.update_snapshot().fast_append() as producer:
                for file in data_files(table, 10_000_000 + size, size):
                    file.spec_id = 0
                    producer.append_data_file(file)
            staged = update_table_metadata(table.metadata, transaction._updates)
            taken = seconds(lambda staged=staged: _check(lake, staged), runs)
            budget = 50 + size * 0.01
            figures.append(
                figure(f"check a commit of {size:,} files", [t * 1000 for t in taken], "ms", f"{budget:g} ms")
            )
    return figures


def _check(lake: Lake, staged: TableMetadata) -> None:
    loaded = lake.warden.loader.load_sealed(table_name(["db"], "t"))
    lake.warden.committer._inspector.commit(loaded, staged)
