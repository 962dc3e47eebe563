"""A filter's columns are read first, and the others as far as rows match: the rows are those that match."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import And, EqualTo
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

import lakewarden
from catalog.client import settings as write_settings
from policy.errors import DecryptionRefused
from tests.support.lake import ALICE
from tests.support.service import Service
from tests.support.tables import ENCRYPTED

Make = Callable[..., str]

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "text", StringType()),
    NestedField(3, "##", LongType()),
    NestedField(
        4, "inner", StructType(NestedField(5, "low", LongType()), NestedField(6, "high", LongType()))
    ),
)
MODES = {"clear": {}, "whole": ENCRYPTED, "keyed": {"encryption.columns": "pii:text,inner"}}
#: More than are decoded at once, in two row groups.
COUNT, GROUP = 200_000, 150_000
_NUMBERS = np.arange(COUNT)
ROWS = pa.table(
    {
        "id": _NUMBERS,
        "text": [f"text {number}" for number in _NUMBERS],
        "##": _NUMBERS % 7,
        "inner": pa.StructArray.from_arrays(
            [pa.array(_NUMBERS // 2), pa.array(-_NUMBERS)], names=["low", "high"]
        ),
    }
)
#: Pages are as long as their rows.
BARE = {"write.parquet.compression-codec": "uncompressed"}
ID, SEVENTH = pc.field("id"), pc.field("##")
FILTERS: dict[str, tuple[Any, pc.Expression]] = {
    "the first rows": ("id < 10", ID < 10),
    "one row in the middle": ("id = 100000", ID == 100_000),
    "the last row of a row group": ("id = 149999", ID == 149_999),
    "the last rows": ("id >= 199990", ID >= 199_990),
    "over the end of a row group": ("id > 149990 and id < 150010", (ID > 149_990) & (ID < 150_010)),
    "scattered rows": (EqualTo("##", 3), SEVENTH == 3),
    "none": (And(EqualTo("##", 3), EqualTo("id", 4)), (SEVENTH == 3) & (ID == 4)),
    "all": ("id >= 0", ID >= 0),
    "a nested column": ("inner.low = 50000", pc.field("inner", "low") == 50_000),
}


@pytest.fixture(params=MODES, scope="module")
def table(request: pytest.FixtureRequest, served: Service) -> lakewarden.Table:
    """Two row groups."""
    name = f"db.sifted_{request.param}"
    served.lake.catalog().create_table(name, SCHEMA, properties=MODES[request.param] | BARE)
    made = lakewarden.connect(served.url, served.token(ALICE)).table(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_settings, "ROW_GROUP_ROWS", GROUP)
        made.append(ROWS)
    return made


@pytest.mark.nightly
@pytest.mark.rows_by_day(6)
@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("columns", [None, ["inner.high", "text"]])
def test_rows_are_those_that_match(table: lakewarden.Table, name: str, columns: list[str] | None) -> None:
    wanted, like = FILTERS[name]
    found = table.scan(wanted, columns).to_arrow()
    names = ROWS.column_names if columns is None else [each.partition(".")[0] for each in columns]
    expected = ROWS.filter(like).select(names)
    if columns is not None and "inner.high" in columns:
        high = expected["inner"].combine_chunks().field("high")
        expected = expected.set_column(0, "inner", pa.StructArray.from_arrays([high], names=["high"]))
    assert found.equals(expected.cast(found.schema))


def test_deleted_rows_are_left_out_by_their_places(table: lakewarden.Table) -> None:
    scan = table.scan("id > 149990 and id < 150010", ["text"])
    plan = scan._plan()
    (file,) = plan.files
    path = Path(file.path.removeprefix("file://")).with_name("deletes.parquet")
    fields = [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
    gone = [0, 149_992, 149_999, 150_000, 150_009]
    pq.write_table(pa.table([[file.path] * len(gone), gone], schema=pa.schema(fields)), path)
    plain = replace(file, algorithm=None, footer=None, keys=(), footer_digest=None)
    deletes = replace(
        plain, path=f"file://{path}", location=f"file://{path}", size=path.stat().st_size, records=len(gone)
    )
    found = pa.Table.from_batches(
        scan._by(replace(plan, files=(replace(file, deletes=(deletes,)),)), scan.columns).at_once()
    )
    assert found["text"].to_pylist() == [
        f"text {number}" for number in range(149_991, 150_010) if number not in gone
    ]


@pytest.mark.nightly
def test_what_lies_behind_the_last_row_that_matches_is_not_read(
    make: Make, alice: lakewarden.Connection
) -> None:
    schema = Schema(*SCHEMA.fields[:2])
    table = alice.table(make(schema, properties=ENCRYPTED | BARE))
    table.append(ROWS.select(["id", "text"]))
    (file,) = table.scan()._plan().files
    path = Path(file.path.removeprefix("file://"))
    damaged = bytearray(path.read_bytes())
    # The texts lie behind the numbers, and take more room.
    damaged[len(damaged) * 9 // 10] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(DecryptionRefused):
        table.scan("id >= 0", ["text"]).to_arrow()
    first = table.scan("id < 10", ["text"]).to_arrow()
    assert first["text"].to_pylist() == [f"text {number}" for number in range(10)]
