"""Checks where the columns of a Parquet file's row groups lie, as its footer says.

Source: Apache Parquet, ``parquet.thrift`` (RowGroup, ColumnChunk, ColumnMetaData).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from catalog.client import thrift
from catalog.client.footers import COLUMNS, METADATA, ROW_GROUPS
from catalog.client.thrift import Struct
from spark_ext.pipelines.audit.file_ends import Problem
from spark_ext.pipelines.audit.parquet_schemas import Column
from spark_ext.pipelines.audit.rules import DAMAGED_FILE, WRONG_STATISTICS

# Of RowGroup, ColumnChunk, ColumnMetaData.
_GROUP_ROWS: Final = 3
_FILE_PATH: Final = 1
_KIND, _PATH, _CODEC, _VALUES, _SIZE, _PAGES, _DICTIONARY = 1, 3, 4, 5, 7, 9, 11
_LAST_CODEC: Final = 7
_MAGIC: Final = 4


def check_chunks(metadata: Struct, columns: Sequence[Column], start: int) -> Iterator[Problem]:
    """Check that each column of each row group is in the file, and none is where another is.

    Args:
        metadata: Parquet's FileMetaData.
        columns: its columns.
        start: where the footer begins in the file.
    """
    ranges: list[tuple[int, int]] = []
    for group in metadata.structs(ROW_GROUPS):
        chunks = group.structs(COLUMNS)
        if len(chunks) != len(columns):
            yield Problem(DAMAGED_FILE, "A row group has missing or extra columns.")
            continue
        rows = group.get(_GROUP_ROWS, thrift.I64) or 0
        for column, chunk in zip(columns, chunks, strict=True):
            yield from _check_chunk(column, chunk, rows, start, ranges)
    for (_, ended), (begun, _) in pairwise(sorted(ranges)):
        if begun < ended:
            yield Problem(DAMAGED_FILE, "Two columns of row groups lie at one place of the file.")
            return


def _check_chunk(
    column: Column, chunk: Struct, rows: int, start: int, ranges: list[tuple[int, int]]
) -> Iterator[Problem]:
    name = column.leaf.name
    if _FILE_PATH in chunk.fields:
        yield Problem(DAMAGED_FILE, "The column lies in another file.", name)
    said = chunk.get(METADATA, thrift.STRUCT)
    if said is None:
        # Of a column with a key, the encrypted metadata alone can say it.
        return
    path = said.get(_PATH, thrift.LIST)
    if (said.get(_KIND, thrift.I32), () if path is None else tuple(path.elements)) != (
        column.leaf.kind,
        column.leaf.path,
    ):
        yield Problem(DAMAGED_FILE, "The column holds the metadata of another column.", name)
    values = said.get(_VALUES, thrift.I64) or 0
    if values != rows and not (column.repeated and values > rows):
        yield Problem(
            WRONG_STATISTICS, f"The column has {values} values in a row group of {rows} rows.", name
        )
    if not 0 <= (said.get(_CODEC, thrift.I32) or 0) <= _LAST_CODEC:
        yield Problem(DAMAGED_FILE, "The column has an unknown compression codec.", name)
    yield from _check_range(said, name, start, ranges)


def _check_range(said: Struct, name: str, start: int, ranges: list[tuple[int, int]]) -> Iterator[Problem]:
    pages = said.get(_PAGES, thrift.I64) or 0
    dictionary = said.get(_DICTIONARY, thrift.I64) or 0
    begun = dictionary if 0 < dictionary < pages else pages
    ended = begun + (said.get(_SIZE, thrift.I64) or 0)
    if begun < _MAGIC or ended > start or ended <= pages:
        if (said.get(_VALUES, thrift.I64) or 0) > 0:
            yield Problem(DAMAGED_FILE, "The pages of the column are outside of the file.", name)
        return
    ranges.append((begun, ended))
