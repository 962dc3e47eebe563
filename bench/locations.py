"""Decides a million paths of a plan against ten entries. Budget: one second of one core."""

from __future__ import annotations

import random
import time

import pyarrow as pa

from bench.report import Figure, at_most, figure
from policy.location.allow_list import AllowList

PATHS = 1_000_000
BUDGET = 1.0
ENTRIES = (
    *(f"s3://lake-{number}/warehouse/db/table-{number}" for number in range(4)),
    "gs://acme-lake/warehouse/t1",
    "oss://acme-lake/warehouse/t1",
    "abfss://data@acme.dfs.core.windows.net/warehouse/t1",
    "wasbs://data@acme.blob.core.windows.net/warehouse/t1",
    "hdfs://nn1.example.com:8020/warehouse/t1",
    "file:///warehouse/t1",
)
KINDS = {
    "ordinary names": "ts_day=2024-01-{day:02d}/{file}",
    "encoded partition values": "name=a%20b%2F{day}%25/{file}",
    "Unicode and spaces": "name=東京 {day}/{file}",
    "dot segments": "../t2/day={day}/{file}",
}


def measure(runs: int) -> list[Figure]:
    """Decide a column of each kind."""
    allowed = AllowList.of(ENTRIES)
    found = []
    cores = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        for kind, pattern in KINDS.items():
            column = _column(pattern)
            taken = [_seconds(allowed, column) for _ in range(runs)]
            found.append(at_most(BUDGET, figure(f"{PATHS:,} paths, ten entries: {kind}", taken, "s")))
    finally:
        pa.set_cpu_count(cores)
    return found


def _seconds(allowed: AllowList, column: pa.Array) -> float:
    """Time of this process, which other work on the machine does not lengthen."""
    start = time.process_time()
    allowed.decide_many(column)
    return time.process_time() - start


def _column(pattern: str) -> pa.Array:
    """Paths below all entries in turn, with the names that Iceberg's writers give to files."""
    chance = random.Random(4)
    return pa.array(
        f"{ENTRIES[number % len(ENTRIES)]}/data/"
        + pattern.format(
            day=number % 28 + 1, file=f"00000-{number}-{chance.getrandbits(128):032x}-00001.parquet"
        )
        for number in range(PATHS)
    )
