"""Footers of Parquet files, written anew by somebody who has the footer's key."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from catalog.client import files, footers, thrift
from catalog.client.plan import PlannedFile
from catalog.client.scan import Scan
from catalog.client.thrift import Struct, Value

Edit = Callable[[Struct], None]
_NAME, _FIELD_ID = 4, 9


def forged(scan: Scan, edit: Edit) -> None:
    """Edits the footer of a table's one file, with the footer's key."""
    plan = scan._plan()
    (file,) = plan.files
    keys = plan.keys(file, plan.location(file))
    assert keys is not None
    path = local(file)
    data = path.read_bytes()
    footer = footers.read(lambda start, length: data[start : start + length], len(data), keys)
    edit(footer.metadata)
    unique = footer.aad.removeprefix(keys.aad_prefix)
    path.write_bytes(data[: footer.start] + footers.sealed(footer.metadata, unique, keys))


def read(scan: Scan, column: str, records: int = 2, *, vouched: bool = False) -> list[Any]:
    """The values of a column, as if the table knew the present size of its file, and so many rows.

    Args:
        scan: of the table.
        column: its name.
        records: so many rows.
        vouched: whether the footer is held against its digest; else the file is as if it had been written
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
