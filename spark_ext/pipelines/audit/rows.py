"""The rows that the tasks of an audit hand on to each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

SCHEMA: Final = "kind string, table string, path string, size bigint, mark bigint, text string"
_ARROW: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("table", pa.string()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("mark", pa.int64()),
        ("text", pa.string()),
    ]
)
_AT_ONCE: Final = 10_000


class Kind(StrEnum):
    """What a row is.

    - TABLE: `text` has the facts of a table.
    - SLICE: `text` has manifests of a table, to be opened. `size` is how many entries they have.
    - PLACE: `text` has a location, to be listed.
    - NAMED: the table names the file at `path`, of `size`. `mark` is 1 if it has to be there.
    - LISTED: storage has the file at `path`, of `size`. `mark` is 1 if it is garbage unless it is named.
    - PART: `text` has a part of the result.
    """

    TABLE = "table"
    SLICE = "slice"
    PLACE = "place"
    NAMED = "named"
    LISTED = "listed"
    PART = "part"


def texts(kind: Kind, table: str, contents: Iterable[str], size: int | None = None) -> pa.RecordBatch:
    """Return rows that have a text, and possibly a size."""
    values = list(contents)
    count = len(values)
    empty: list[Any] = [None] * count
    return _batch([kind] * count, [table] * count, empty, [size] * count, empty, values)


def files(
    kind: Kind, table: str, paths: list[str], sizes: list[int], marks: list[int]
) -> Iterator[pa.RecordBatch]:
    """Return rows of files."""
    for start in range(0, len(paths), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        count = len(paths[part])
        yield _batch([kind] * count, [table] * count, paths[part], sizes[part], marks[part], [None] * count)


def together(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return all rows."""
    return pa.Table.from_batches(batches, _ARROW)


def of_kind(rows: pa.Table, kind: Kind) -> pa.Table:
    """Return the rows of one kind."""
    return rows.filter(pa.compute.equal(rows["kind"], kind.value))


def _batch(*columns: list[Any]) -> pa.RecordBatch:
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
