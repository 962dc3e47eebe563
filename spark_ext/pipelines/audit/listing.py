"""Compares the files that tables name with those that storage has.

Names come from all tasks of a table, and so do listings. Spark brings those of one path together. A file that
a listing lacks is asked for once more: it can be a link, lie elsewhere, or have been written since.

A file is garbage by the rules of `catalog.maintenance.garbage`: below the location that the catalog chose for
the table, which no other table shares, old enough, not of an open write, and named by nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from catalog.storage.base import Storage
from catalog.storage.errors import ObjectMissing
from policy.errors import LakewardenError, LocationNotAllowed
from policy.location.location import Location
from spark_ext.pipelines.audit import rules
from spark_ext.pipelines.audit.options import Looking
from spark_ext.pipelines.audit.partial import Partial
from spark_ext.pipelines.audit.rows import Kind, files, of_kind, texts, together
from spark_ext.pipelines.items import Rule

_THREADS: Final = 16
_AT_ONCE: Final = 10_000
_SHOWN: Final = 3


def list_place(looking: Looking, table: str, text: str) -> Iterator[pa.RecordBatch]:
    """List a location of a table; yields its files."""
    place: dict[str, Any] = json.loads(text)
    found, garbage = Partial(table), _Garbage(place)
    try:
        paths, sizes, marks = list[str](), list[int](), list[int]()
        for each in looking.storage.list_prefix(Location.parse(place["place"])):
            paths.append(each.location.canonical)
            sizes.append(each.size)
            marks.append(int(garbage.may_be(each.location, each.modified)))
            if len(paths) == _AT_ONCE:
                yield from files(Kind.LISTED, table, paths, sizes, marks)
                paths, sizes, marks = [], [], []
        yield from files(Kind.LISTED, table, paths, sizes, marks)
    except LakewardenError as error:
        # A listing that ends early would show files as missing; each of those is asked for once more.
        found.failed.append(str(error))
    yield texts(Kind.PART, table, [found.to_json()])


class _Garbage:
    """Which files of a listing are garbage, unless something names them."""

    def __init__(self, place: dict[str, Any]) -> None:
        self._own = None if place["own"] is None or place["shared"] else Location.parse(place["own"])
        self._writes = [Location.parse(each) for each in place["writes"]]
        self._before = datetime.fromtimestamp(place["before"] / 1000, UTC)

    def may_be(self, location: Location, modified: datetime) -> bool:
        """Return whether a file is garbage, unless something names it."""
        if self._own is None or modified > self._before or not self._own.contains(location):
            return False
        return not any(each.contains(location) for each in self._writes)


def compare(looking: Looking, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Compare names and listings of the same paths; yields parts of the result, and those that came along."""
    rows = together(batches)
    yield from of_kind(rows, Kind.PART).to_batches()
    parts_of: dict[str, Partial] = {}
    _judge(looking.storage, _joined(of_kind(rows, Kind.NAMED), of_kind(rows, Kind.LISTED)), parts_of)
    for table, part in parts_of.items():
        yield texts(Kind.PART, table, [part.to_json()])


def _joined(named: pa.Table, listed: pa.Table) -> pa.Table:
    """Join names and files; a file has to be there if one of its names says so."""
    keys = ["table", "path"]
    needed = named.group_by(keys).aggregate([("mark", "max"), ("size", "max"), ("size", "min")])
    there = listed.group_by(keys).aggregate([("mark", "max"), ("size", "max")])
    there = there.rename_columns([*keys, "garbage", "length"])
    return needed.join(there, keys, join_type="full outer")


def _judge(storage: Storage, joined: pa.Table, parts_of: dict[str, Partial]) -> None:
    needed = pc.fill_null(pc.equal(joined["mark_max"], 1), False)
    there = pc.is_valid(joined["length"])
    counted = joined.filter(needed).group_by("table").aggregate([("path", "count")])
    for row in counted.to_pylist():
        _part(parts_of, row["table"]).counts["files"] += row["path_count"]
    same = pc.and_(
        pc.equal(joined["length"], joined["size_max"]), pc.equal(joined["length"], joined["size_min"])
    )
    for row in joined.filter(pc.and_(pc.and_(needed, there), pc.invert(same))).to_pylist():
        stated = row["size_min"] if row["size_min"] != row["length"] else row["size_max"]
        _part(parts_of, row["table"]).add(
            rules.FILE_SIZE, _other_size(row["length"], stated), path=row["path"]
        )
    missing = joined.filter(pc.and_(needed, pc.invert(there))).to_pylist()
    with ThreadPoolExecutor(_THREADS) as pool:
        for row, problem in zip(missing, pool.map(lambda row: _problem(storage, row), missing), strict=True):
            part = _part(parts_of, row["table"])
            if isinstance(problem, str):
                part.failed.append(problem)
            elif problem is not None:
                part.add(*problem, path=row["path"])
    _orphans(joined.filter(pc.and_(pc.is_null(joined["mark_max"]), pc.equal(joined["garbage"], 1))), parts_of)


def _problem(storage: Storage, row: dict[str, Any]) -> tuple[Rule, str] | str | None:
    """Ask for a file that no listing has; a text says why that was not possible."""
    try:
        length = storage.size(Location.parse(row["path"]))
    except ObjectMissing:
        return rules.FILE_MISSING, rules.FILE_MISSING.title
    except LocationNotAllowed as error:
        return rules.FILE_LINK, error.message
    except LakewardenError as error:
        return str(error)
    if length not in (row["size_min"], row["size_max"]) or row["size_min"] != row["size_max"]:
        return rules.FILE_SIZE, _other_size(length, row["size_max"])
    return None


def _orphans(files: pa.Table, parts_of: dict[str, Partial]) -> None:
    grouped = files.group_by("table").aggregate([("path", "count"), ("length", "sum"), ("path", "list")])
    for row in grouped.to_pylist():
        shown = sorted(row["path_list"])[:_SHOWN]
        _part(parts_of, row["table"]).orphan(shown, row["path_count"], row["length_sum"])


def _other_size(length: int, stated: int) -> str:
    return f"The file has {length} bytes, but the table's metadata states {stated}."


def _part(parts_of: dict[str, Partial], table: str) -> Partial:
    return parts_of.setdefault(table, Partial(table))
