"""Files that a table names, and garbage beside them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from catalog.maintenance.garbage import MIN_AGE, Garbage
from policy.errors import RequestInvalid
from tests.support.lake import Lake
from tests.support.tables import name_of, rows

MARGIN_S = 3600


def aged(path: Path, *, seconds: float | None = None) -> Path:
    """A file as it looks when it was last modified so long ago; by default long enough."""
    then = time.time() - (MIN_AGE.total_seconds() + MARGIN_S if seconds is None else seconds)
    os.utime(path, (then, then))
    return path


def directory(table: Table) -> Path:
    return Path(table.location().removeprefix("file://"))


def left_behind(table: Table, name: str = "") -> Path:
    """A Parquet file of a client whose commit was refused, as old as garbage."""
    path = directory(table) / "data" / (name or f"{uuid4()}.parquet")
    path.parent.mkdir(exist_ok=True)
    pq.write_table(rows(1), path)
    return aged(path)


def age_all(table: Table) -> set[Path]:
    return {aged(each) for each in directory(table).rglob("*") if each.is_file()}


def collected(lake: Lake, table: Table, *, remove: bool = True) -> Garbage:
    return lake.services.garbage.collect(lake.caller("alice"), name_of(table), remove=remove)


def paths(garbage: Garbage) -> set[Path]:
    return {Path(each.location.canonical.removeprefix("file://")) for each in garbage.files}


def written(table: Table, name: str) -> Path:
    path = directory(table) / name
    path.write_bytes(b"x")
    return path


SHARING: dict[str, Callable[[str], dict[str, Any]]] = {
    "lies inside": lambda location: {"location": f"{location}/inside"},
    "lies inside and reads elsewhere": lambda location: {
        "location": f"{location}/inside",
        "properties": {"read.allowed.data.paths": f"{location}-elsewhere"},
    },
    "reads a part": lambda location: {"properties": {"read.allowed.data.paths": f"{location}/data"}},
    "reads all": lambda location: {"properties": {"read.allowed.data.paths": location.rpartition("/")[0]}},
}


def check_refused(lake: Lake, table: Table, left: Path) -> None:
    """The removal is refused."""
    with pytest.raises(RequestInvalid) as caught:
        collected(lake, table)
    assert caught.value.rule == "shared-location"
    assert left.exists()


def touched(path: Path) -> Path:
    path.touch()
    return path
