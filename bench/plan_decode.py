"""Time of planning a scan of many files: digest, decoding, allow-list and pruning, beside pyiceberg's plan.

Builds a table of `--files` data files in manifests of 10,000 (ten columns with all statistics), plans it
several times on one core, prints medians and writes them to ``bench/results/plan_decode.json``. Where other
work shares the core, the CPU time says more than the wall time.

    cold    every manifest is read, digested and decoded
    warm    every manifest is read and digested; what was decoded is found by its digest
    large blocks    the same manifests laid out with 64 kB blocks, as Java writes them
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
)

from catalog.manifests import ManifestCache, ManifestListEntry, decode_manifest_list, inherit
from catalog.planning import Pruner
from policy.allowlist import AllowList

KINDS: list[PrimitiveType] = [
    LongType(),
    StringType(),
    TimestampType(),
    DateType(),
    DoubleType(),
    IntegerType(),
    StringType(),
    LongType(),
    LongType(),
    DoubleType(),
]
SCHEMA = Schema(*(NestedField(i, f"c{i}", kind) for i, kind in enumerate(KINDS, 1)))
SPEC = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "region"),
    PartitionField(4, 1001, IdentityTransform(), "day"),
)
A_MANIFEST = 10_000


class Seconds(NamedTuple):
    """Medians of wall time and of CPU time."""

    wall: float
    cpu: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as directory:
        table = build(Path(directory), options.files)
        results = measure(table, options.rounds)
    report(results, options.files)


def build(directory: Path, files: int) -> Table:
    """A table whose manifests pyiceberg writes, with its default codec."""
    catalog = SqlCatalog("bench", uri=f"sqlite:///{directory}/catalog.db", warehouse=f"file://{directory}")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", SCHEMA, partition_spec=SPEC)
    for first in range(0, files, A_MANIFEST):
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for number in range(first, min(first + A_MANIFEST, files)):
                append.append_data_file(data_file(number, table.location()))
    return table


def data_file(number: int, location: str) -> DataFile:
    ids = range(1, len(KINDS) + 1)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{location}/data/region=eu-{number % 7}/00000-{number}-{number * 7919:032x}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(f"eu-{number % 7}", 19000 + number % 300),
        record_count=100_000 + number,
        file_size_in_bytes=30_000_000 + number,
        column_sizes=dict.fromkeys(ids, 1000000 + number),
        value_counts=dict.fromkeys(ids, 100000 + number),
        null_value_counts=dict.fromkeys(ids, 0),
        nan_value_counts={5: 0, 10: 0},
        lower_bounds=bounds(number, 0),
        upper_bounds=bounds(number, 999),
        split_offsets=[4],
        sort_order_id=0,
    )
    file.spec_id = 0
    return file


def bounds(number: int, add: int) -> dict[int, bytes]:
    made = {}
    for field_id, kind in enumerate(KINDS, 1):
        value: Any = number * 1000 + add
        if isinstance(kind, StringType):
            value = f"eu-{number % 7}" if field_id == 2 else f"customer-{value:012}"
        elif isinstance(kind, DateType):
            value = 19000 + number % 300
        elif isinstance(kind, DoubleType):
            value = float(value)
        elif isinstance(kind, IntegerType):
            value = (number + add) % (1 << 30)
        made[field_id] = to_bytes(kind, value)
    return made


def measure(table: Table, rounds: int) -> dict[str, dict[str, Seconds]]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    raw_list = local(snapshot.manifest_list)
    listed = decode_manifest_list(raw_list.read_bytes(), path=str(raw_list), format_version=2)
    entries = len(listed) * A_MANIFEST
    row_filter = And(EqualTo("c2", "eu-3"), GreaterThanOrEqual("c8", entries * 500))
    found: dict[str, dict[str, Seconds]] = {}
    for name, wanted in (("all files", None), ("filtered", row_filter)):
        chosen: dict[str, Any] = {} if wanted is None else {"row_filter": wanted}
        expected, theirs = timed(lambda chosen=chosen: len(list(table.scan(**chosen).plan_files())), rounds)
        ours = measure_ours(table, listed, wanted, rounds)
        assert {kept for kept, _ in ours.values()} == {expected}, (expected, ours)
        found[name] = {"pyiceberg": theirs} | {how: seconds for how, (_, seconds) in ours.items()}
    return found


def measure_ours(
    table: Table, listed: Iterable[ManifestListEntry], wanted: BooleanExpression | None, rounds: int
) -> dict[str, tuple[int, Seconds]]:
    allowed = AllowList.of([table.location()])

    def run(cache: ManifestCache) -> int:
        return plan(table, listed, wanted, cache, allowed)

    warm_cache = ManifestCache(4 << 30)
    run(warm_cache)
    results = {
        "cold": timed(lambda: run(ManifestCache(4 << 30)), rounds),
        "warm": timed(lambda: run(warm_cache), rounds),
    }
    originals = {local(entry.manifest_path): local(entry.manifest_path).read_bytes() for entry in listed}
    for path, data in originals.items():
        path.write_bytes(in_large_blocks(data))
    results["cold, large blocks"] = timed(lambda: run(ManifestCache(4 << 30)), rounds)
    for path, data in originals.items():
        path.write_bytes(data)
    return results


def plan(
    table: Table,
    listed: Iterable[ManifestListEntry],
    wanted: BooleanExpression | None,
    cache: ManifestCache,
    allowed: AllowList,
) -> int:
    """What the catalog does for a plan, but for seals and keys; answers how many files are left."""
    pruner = None if wanted is None else Pruner(table.schema(), table.specs(), wanted)
    kept = 0
    for entry in listed:
        if pruner is not None and not pruner.keeps_manifest(entry):
            continue
        data = local(entry.manifest_path).read_bytes()
        decoded = cache.get(hashlib.sha256(data).hexdigest(), data, path=entry.manifest_path)
        live = pc.not_equal(inherit(decoded, entry)["status"], 2)
        inside = allowed.decide_many(decoded.entries["file_path"])
        assert inside.true_count == len(inside)
        mask = live if pruner is None else pc.and_(live, pruner.keeps(decoded, entry.partition_spec_id))
        kept += pc.sum(mask).as_py() or 0
    return kept


def local(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def in_large_blocks(data: bytes) -> bytes:
    reader = fastavro.reader(io.BytesIO(data))
    records = list(reader)
    metadata = {name: value for name, value in reader.metadata.items() if not name.startswith("avro")}
    schema: Any = reader.writer_schema
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec="deflate", metadata=metadata, sync_interval=64_000)
    return out.getvalue()


def timed(work: Callable[[], int], rounds: int) -> tuple[int, Seconds]:
    """The answer, and the medians of the seconds it took."""
    wall, cpu = [], []
    answer = 0
    for _ in range(rounds):
        started = time.perf_counter(), time.process_time()
        answer = work()
        wall.append(time.perf_counter() - started[0])
        cpu.append(time.process_time() - started[1])
    return answer, Seconds(statistics.median(wall), statistics.median(cpu))


def report(results: dict[str, dict[str, Seconds]], files: int) -> None:
    print(f"{files:,} files, one core, medians")
    print(f"{'scan':<12}{'plan':<22}{'wall s':>9}{'CPU s':>9}{'files/CPU s':>13}")
    for scan, ways in results.items():
        for way, seconds in ways.items():
            print(f"{scan:<12}{way:<22}{seconds.wall:>9.3f}{seconds.cpu:>9.3f}{files / seconds.cpu:>13,.0f}")
    target = Path(__file__).parent / "results" / "plan_decode.json"
    target.parent.mkdir(exist_ok=True)
    known = {"files": files, "machine": platform.machine(), "python": platform.python_version()}
    plain = {s: {w: t._asdict() for w, t in ways.items()} for s, ways in results.items()}
    target.write_text(json.dumps(known | {"seconds": plain}, indent=2) + "\n")


if __name__ == "__main__":
    main()
