"""Footers of Parquet files, rewritten by a user who has the footer's key."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from catalog.client import files, footers, thrift
from catalog.client.plan import PlannedFile
from catalog.client.scan import Scan
from catalog.client.thrift import Items, Struct, Value

Edit = Callable[[Struct], None]
_CREATED_BY = 6
_NAME, _CONVERTED, _SCALE, _PRECISION, _FIELD_ID, _LOGICAL = 4, 6, 7, 8, 9, 10
_DECIMAL = 5


def forged(scan: Scan, edit: Edit) -> None:
    """Edits the footer of a table's one file, with the footer's key."""
    path, data = _resealed(scan, edit)
    path.write_bytes(data)


def forged_in_size(scan: Scan, edit: Edit) -> bytes:
    """The one file of a table with a footer edited so that the file keeps its size; it is not written."""
    filling = 0
    while True:
        path, data = _resealed(scan, lambda metadata: _filled(metadata, edit, filling))  # noqa: B023
        missing = path.stat().st_size - len(data)
        if missing == 0:
            return data
        filling += missing
        assert filling >= 0


def _resealed(scan: Scan, edit: Edit) -> tuple[Path, bytes]:
    plan = scan._plan()
    (file,) = plan.files
    keys = plan.keys(file, plan.location(file))
    assert keys is not None
    path = local(file)
    data = path.read_bytes()
    footer = footers.read(lambda start, length: data[start : start + length], len(data), keys)
    edit(footer.metadata)
    unique = footer.aad.removeprefix(keys.aad_prefix)
    return path, data[: footer.start] + footers.sealed(footer.metadata, unique, keys)


def _filled(metadata: Struct, edit: Edit, filling: int) -> None:
    """Edits, and makes the name of the program that wrote the file so long."""
    edit(metadata)
    metadata.fields[_CREATED_BY] = Value(thrift.BINARY, b"x" * filling)
    for each in (metadata, *metadata.structs(2)):
        each.fields = dict(sorted(each.fields.items()))


def read(scan: Scan, column: str, records: int = 2, *, vouched: bool = False) -> list[Any]:
    """The values of a column, as if the table knew the present size of its file, and so many rows.

    Args:
        scan: of the table.
        column: its name.
        records: so many rows.
        vouched: whether the footer is checked against its digest; else the file is as if it had been written
            before there were such digests.
    """
    plan = scan._plan()
    (file,) = plan.files
    known = dataclasses.replace(file, size=local(file).stat().st_size, records=records)
    if not vouched:
        known = dataclasses.replace(known, footer_digest=None)
    wanted = [each for each in plan.schema.fields if each.name == column]
    with files.opened(plan, known, scan.storage, wanted) as source:
        return pa.concat_tables(rows for _, rows in source.row_groups(wanted))[column].to_pylist()


def local(file: PlannedFile) -> Path:
    """A file of a plan, on this disk."""
    return Path(file.path.removeprefix("file://"))


def element(metadata: Struct, name: bytes) -> Struct:
    """The part of a schema with a name."""
    return next(each for each in metadata.structs(2) if each.get(_NAME, thrift.BINARY) == name)


def numbered(metadata: Struct, name: bytes, number: int) -> None:
    """Gives a part of a schema a field id."""
    element(metadata, name).fields[_FIELD_ID] = Value(thrift.I32, number)


def structure(fields: dict[int, Value]) -> Value:
    """A structure with these fields."""
    return Value(thrift.STRUCT, Struct(fields))


def listed(kind: int, values: list[object]) -> Value:
    """A list of values of one kind."""
    return Value(thrift.LIST, Items(kind, values))


def typed(metadata: Struct, name: bytes, converted: int, logical: dict[int, Value]) -> None:
    """Gives a column another logical type."""
    said = {_CONVERTED: Value(thrift.I32, converted), _LOGICAL: structure(logical)}
    element(metadata, name).fields |= said


def decimal(metadata: Struct, name: bytes, precision: int, scale: int) -> None:
    """Gives a column another precision and scale."""
    said = {1: Value(thrift.I32, scale), 2: Value(thrift.I32, precision)}
    element(metadata, name).fields |= {_SCALE: said[1], _PRECISION: said[2]}
    typed(metadata, name, _DECIMAL, {_DECIMAL: structure(said)})
