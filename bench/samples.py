"""Tables with many data files that have a size and no content: planning and commit checks open none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType, TimestampType

from catalog.service.pyiceberg_catalog import GuardedCatalog
from policy.location.location import Location

#: Ten columns, as a fact table may have.
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "customer", LongType(), required=False),
    NestedField(3, "at", TimestampType(), required=False),
    NestedField(4, "country", StringType(), required=False),
    NestedField(5, "product", StringType(), required=False),
    NestedField(6, "amount", DoubleType(), required=False),
    NestedField(7, "quantity", IntegerType(), required=False),
    NestedField(8, "discount", DoubleType(), required=False),
    NestedField(9, "status", StringType(), required=False),
    NestedField(10, "note", StringType(), required=False),
)
ROWS_A_FILE = 50_000


def data_files(table: Table, first: int, count: int) -> Iterator[DataFile]:
    """Data files with sizes, counts and bounds for every column."""
    ids = list(range(1, 11))
    for number in range(first, first + count):
        low = number * ROWS_A_FILE
        lower, upper = bounds_at(low), bounds_at(low + ROWS_A_FILE - 1)
        yield DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{table.location()}/data/part-{number:07d}-{uuid4()}.parquet",
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=ROWS_A_FILE,
            file_size_in_bytes=8_000_000 + number,
            column_sizes=dict.fromkeys(ids, 800_000),
            value_counts=dict.fromkeys(ids, ROWS_A_FILE),
            null_value_counts=dict.fromkeys(ids, 0),
            nan_value_counts={6: 0, 8: 0},
            lower_bounds=lower,
            upper_bounds=upper,
            split_offsets=[4],
        )


def append(table: Table, first: int, count: int) -> None:
    """Append data files in one commit, which are laid down as a commit requires it."""
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as producer:
        for file in data_files(table, first, count):
            _lay_down(file)
            file.spec_id = 0
            producer.append_data_file(file)


def _lay_down(file: DataFile) -> None:
    """A file of the right size that takes no space, on the local disk."""
    path = Path("/", *Location.parse(file.file_path).segments)
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as stored:
        stored.truncate(file.file_size_in_bytes)


def make_table(catalog: GuardedCatalog, name: str, files: int, a_commit: int) -> Table:
    """A table of so many data files, committed in manifests of `a_commit` each."""
    table = catalog.create_table(name, SCHEMA)
    for first in range(0, files, a_commit):
        append(table, first, min(a_commit, files - first))
    return table


def bounds_at(value: int) -> dict[int, bytes]:
    """Return the bounds of all columns of a file whose first or last row has a number."""
    text = f"value-{value:012d}"
    plain = {
        1: value,
        2: value,
        3: value * 1_000_000,
        4: text,
        5: text,
        6: float(value),
        7: value % 2**31,
        8: 0.5,
        9: text,
        10: text,
    }
    return {field_id: to_bytes(SCHEMA.find_type(field_id), each) for field_id, each in plain.items()}  # type: ignore[arg-type]


def root_of(directory: Path, name: str) -> Path:
    """A directory of its own for one measurement."""
    path = directory / name
    path.mkdir()
    return path
