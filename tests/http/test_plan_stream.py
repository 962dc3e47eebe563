"""A plan is sent with each directory once and no bytes for nulls, and compressed if it is long."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from catalog.http.plan_stream import BATCH_ROWS, COMPRESSED_FROM, stream_of
from tests.support.plan_streams import ROWS_OF_PLANS, planned_files


def rows(count: int, directories: int = 2) -> pa.Table:
    """The rows of a plan of `count` files."""
    paths = [f"s3://b/t/data/d={i % directories}/part-{i:07d}.parquet" for i in range(count)]
    known = {"content": 0, "file_format": "PARQUET", "record_count": 1, "file_size_in_bytes": 1, "spec_id": 0}
    return pa.Table.from_pylist([known | {"file_path": path} for path in paths], ROWS_OF_PLANS)


def sent(files: pa.Table) -> bytes:
    """The bytes of the stream."""
    return b"".join(stream_of(files, {}))


def as_agreed(files: pa.Table) -> list[object]:
    """Rows in one order of columns."""
    return files.select(ROWS_OF_PLANS.names).to_pylist()


def test_what_is_sent_is_read_again() -> None:
    for count in (0, 1, COMPRESSED_FROM, COMPRESSED_FROM + 1):
        files = rows(count)
        assert as_agreed(planned_files(sent(files))) == as_agreed(files)


@pytest.mark.nightly
def test_each_batch_names_its_own_directories() -> None:
    files = rows(BATCH_ROWS + 2, directories=BATCH_ROWS + 1)
    first, second = pa.ipc.open_stream(sent(files))
    assert [len(each.column("directory").dictionary) for each in (first, second)] == [BATCH_ROWS, 2]
    assert planned_files(sent(files))["file_path"].to_pylist() == files["file_path"].to_pylist()


def test_a_column_of_nulls_has_no_bytes() -> None:
    (batch,) = pa.ipc.open_stream(sent(rows(10)))
    null = {field.name for field in batch.schema if pa.types.is_null(field.type)}
    assert {"location", "deletes", "keys", "digest"} <= null
    assert sum(batch.column(name).nbytes for name in null) == 0


@pytest.mark.nightly
def test_a_column_that_one_batch_lacks_is_sent_if_another_one_has_it() -> None:
    files = rows(BATCH_ROWS + 1)
    location = pa.array([*[None] * BATCH_ROWS, "s3://b/t/x"], pa.string())
    files = files.set_column(files.schema.get_field_index("location"), "location", location)
    assert planned_files(sent(files))["location"].to_pylist() == location.to_pylist()


def test_long_plans_are_compressed_but_for_the_schema() -> None:
    secret = "a-secret" * 100
    short, long = (b"".join(stream_of(rows(COMPRESSED_FROM + i), {"key": secret})) for i in (0, 1))
    assert secret.encode() in short and secret.encode() in long
    assert len(long) < len(short) / 2
    assert pc.all(pc.is_valid(planned_files(long)["file_path"])).as_py()
