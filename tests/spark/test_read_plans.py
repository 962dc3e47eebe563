"""The engine judges each plan itself: what the catalog would never say in one is refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from catalog.base.log_fields import FIELDS
from catalog.http import plan_stream
from catalog.http.plan_stream import stream, stream_of
from tests.support.plan_streams import ROWS_OF_PLANS, planned_files
from tests.support.reads import as_agreed, data_files, publish, refused, with_ids
from tests.support.spark import SparkLake

ROWS = with_ids(pa.table({"id": pa.array(range(10), pa.int64()), "name": [f"n{i}" for i in range(10)]}))
SELECT = "SELECT id, name FROM {}"

Change = Callable[[list[dict[str, Any]], dict[str, Any]], None]
"""Changes a plan in place: its rows, and what its schema's metadata says."""


@pytest.fixture(scope="module")
def tables(spark_lake: SparkLake) -> dict[str, str]:
    """An encrypted table of two files, a plaintext one, and a foreign one."""
    namespace = spark_lake.namespace()
    made = {name: f"{namespace}.{name}" for name in ("encrypted", "plain", "foreign")}
    for name, table in made.items():
        mechanism = "envelope" if name == "encrypted" else "plaintext"
        spark_lake.rows(
            f"CREATE TABLE {table} (id BIGINT, name STRING) USING iceberg "
            f"TBLPROPERTIES ('encryption.mechanism'='{mechanism}')"
        )
        for _ in range(2):
            publish(spark_lake, table, ROWS, as_agreed if name == "encrypted" else None)
    return made


def test_requests_of_a_query_name_it_in_the_log(
    spark_lake: SparkLake, tables: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    numbers = []
    for _ in range(3):
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="lakewarden.http"):
            assert len(spark_lake.rows(SELECT.format(tables["plain"]))) == 20
        requests = [vars(each).get(FIELDS, {}) for each in caplog.records]
        (plan,) = [each for each in requests if str(each.get("route")).endswith("/plan")]
        application, _, number = str(plan["query"]).partition("/")
        assert application == spark_lake.spark.sparkContext.applicationId
        numbers.append(int(number))
    assert numbers == sorted(set(numbers)), "a thread that asks for plans serves one query after the other"


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch) -> Callable[[Change], None]:
    """Makes the service tell other plans than the catalog made."""

    def patch(change: Change) -> None:
        def told(plan: Any) -> Iterator[bytes]:
            real = planned_files(b"".join(stream(plan)))
            said = {key.decode(): json.loads(value) for key, value in real.schema.metadata.items()}
            rows = real.to_pylist()
            change(rows, said)
            yield from stream_of(
                pa.Table.from_pylist(rows, ROWS_OF_PLANS),
                {key: json.dumps(value) for key, value in said.items()},
            )

        monkeypatch.setattr(plan_stream, "stream", told)

    return patch


def first(**values: Any) -> Change:
    """The first row says something else."""
    return lambda rows, said: rows[0].update(values)


def header(**values: Any) -> Change:
    """The header says something else; underscores stand for dashes."""
    return lambda rows, said: said["lakewarden.plan"].update(
        {name.replace("_", "-"): value for name, value in values.items()}
    )


def swap_keys(rows: list[dict[str, Any]], said: dict[str, Any]) -> None:
    rows[0]["keys"], rows[1]["keys"] = rows[1]["keys"], rows[0]["keys"]


def rename_key(rows: list[dict[str, Any]], said: dict[str, Any]) -> None:
    rows[0]["keys"][0]["key_name"] = "another"


def add_column_key(rows: list[dict[str, Any]], said: dict[str, Any]) -> None:
    rows[0]["keys"].append({**rows[0]["keys"][0], "field_ids": [1]})


def forget_transport_key(rows: list[dict[str, Any]], said: dict[str, Any]) -> None:
    del said["lakewarden.transport-key"]


def swap_names(rows: list[dict[str, Any]], said: dict[str, Any]) -> None:
    fields = said["lakewarden.plan"]["schema"]["fields"]
    fields[0]["name"], fields[1]["name"] = fields[1]["name"], fields[0]["name"]


def drop_column(rows: list[dict[str, Any]], said: dict[str, Any]) -> None:
    del said["lakewarden.plan"]["schema"]["fields"][1]


@pytest.mark.nightly
def test_a_plan_told_as_it_is_gives_the_rows(spark_lake, tables, tell):
    tell(lambda rows, said: None)
    for table in (tables["encrypted"], tables["plain"]):
        assert len(spark_lake.rows(SELECT.format(table))) == 20


@pytest.mark.nightly
def test_a_file_of_another_table_is_not_opened(spark_lake, tables, tell):
    foreign = f"file://{data_files(spark_lake, tables['foreign'])[0]}"
    for path in (
        foreign,
        foreign.replace("/foreign-", "/plain-/../foreign-"),
        "/etc/passwd",
        "//etc/passwd",
        "file:///etc/passwd",
    ):
        tell(first(file_path=path))
        refused(spark_lake, SELECT.format(tables["plain"]), "LOCATION_NOT_ALLOWED", "allowed-paths")


@pytest.mark.nightly
def test_paths_are_checked_against_the_list_in_the_plan(spark_lake, tables, tell):
    for allowed in ([], ["file:///elsewhere"], ["s3://bucket"]):
        tell(header(allowed_paths=allowed))
        refused(spark_lake, SELECT.format(tables["plain"]), "LOCATION_NOT_ALLOWED", "allowed-paths")


@pytest.mark.nightly
def test_a_foreign_path_refuses_a_query_that_would_not_open_it(spark_lake, tables, tell):
    foreign = f"file://{data_files(spark_lake, tables['foreign'])[0]}"
    tell(lambda rows, said: rows[-1].update(file_path=foreign))
    statement = f"{SELECT.format(tables['plain'])} LIMIT 1"
    refused(spark_lake, statement, "LOCATION_NOT_ALLOWED", "allowed-paths")


@pytest.mark.nightly
def test_a_task_checks_a_path_once_more(spark_lake):
    """The driver has checked the plan, so that no plan of the catalog shows it."""
    java = spark_lake.spark.sparkContext._jvm
    read = java.org.apache.spark.sql.lakewarden.read
    entries = java.org.apache.spark.api.python.PythonUtils.toSeq(["file:///a"])
    gate = read.FileGate("lake.db.t", None, read.AllowedPaths.of(entries), java.scala.Option.empty(), None)

    def location(path: str) -> str:
        of_deletes_and_changes = None, None, 0, 0, None, None, True
        file = read.PlannedFile(
            "", path, None, 1, 1, None, None, False, None, None, None, None, 0, "{}", *of_deletes_and_changes
        )
        return str(gate.location(file))

    assert location("file:///a/b")
    with pytest.raises(Exception, match="LocationNotAllowed"):
        location("file:///b/b")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("change", "kind", "rule"),
    [
        (first(algorithm="AES_GCM_CTR_V1"), "DECRYPTION_REFUSED", "algorithm"),
        (first(footer="plaintext"), "DECRYPTION_REFUSED", "footer"),
        (first(footer="elsewhere"), "NOT_SUPPORTED_YET", "footer"),
        (first(footer=None), "DECRYPTION_REFUSED", "data-key"),
        (first(algorithm=None, footer=None, keys=None), "DATA_FILE_DAMAGED", "encrypted-file"),
        (first(keys=None), "DECRYPTION_REFUSED", "data-key"),
        (first(algorithm=None, keys=None), "DATA_FILE_DAMAGED", "data-key"),
        (first(algorithm=None), "DATA_FILE_DAMAGED", "data-key"),
        (swap_keys, "DECRYPTION_REFUSED", "data-key"),
        (rename_key, "DECRYPTION_REFUSED", "data-key"),
        (add_column_key, "DECRYPTION_REFUSED", "data-key"),
        (forget_transport_key, "DECRYPTION_REFUSED", "data-key"),
        (first(file_size_in_bytes=100), "DECRYPTION_REFUSED", "file-size"),
        (header(table_uuid="00000000-0000-0000-0000-000000000000"), "TABLE_CHANGED", "table-changed"),
        (header(principal="bob"), "TABLE_CHANGED", "table-changed"),
        (swap_names, "TABLE_CHANGED", "table-changed"),
        (drop_column, "TABLE_CHANGED", "table-changed"),
        (first(content=3), "NOT_SUPPORTED_YET", "deletes"),
        (first(content=1), "CATALOG_UNAVAILABLE", "catalog"),
        (first(deletes=[1]), "CATALOG_UNAVAILABLE", "catalog"),
        (first(file_format="avro"), "NOT_SUPPORTED_YET", "file-format"),
        (first(file_format="orc"), "DECRYPTION_REFUSED", "algorithm"),
    ],
)
def test_a_plan_that_does_not_agree_is_refused(spark_lake, tables, tell, change, kind, rule):
    tell(change)
    refused(spark_lake, SELECT.format(tables["encrypted"]), kind, rule)


@pytest.mark.nightly
@pytest.mark.parametrize("size", [-1, 0, 2**47, 2**63 - 1])
def test_a_size_that_is_claimed_costs_the_driver_nothing(spark_lake, tables, tell, size):
    def claim(rows: list[dict[str, Any]], said: dict[str, Any]) -> None:
        for row in rows:
            row.update(file_size_in_bytes=size, record_count=2**63 - 1)

    tell(claim)
    refused(spark_lake, SELECT.format(tables["plain"]), "DATA_FILE_DAMAGED", "file-size")


@pytest.mark.nightly
def test_a_plan_without_files_has_no_rows(spark_lake, tables, tell):
    tell(lambda rows, said: rows.clear())
    assert spark_lake.rows(SELECT.format(tables["encrypted"])) == []
    assert spark_lake.rows(f"SELECT count(*) FROM {tables['encrypted']}") == [(0,)]


@pytest.mark.nightly
@pytest.mark.parametrize("keep", [0, 100, -100])
def test_a_plan_that_breaks_off_is_refused(spark_lake, tables, monkeypatch, keep):
    def told(plan: Any) -> Iterator[bytes]:
        yield b"".join(stream(plan))[:keep]

    monkeypatch.setattr(plan_stream, "stream", told)
    refused(spark_lake, SELECT.format(tables["encrypted"]), "CATALOG_UNAVAILABLE", "")


@pytest.mark.nightly
def test_rows_that_come_after_the_table_was_loaded_are_not_mixed_in(spark_lake, namespace):
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id BIGINT, name STRING) USING iceberg")
    empty = spark_lake.session().table(table)
    publish(spark_lake, table, ROWS)
    loaded = spark_lake.session().table(table)
    counts = {loaded.count(), empty.count()}
    assert counts <= {0, 10}
    both = loaded.alias("x").join(spark_lake.session().table(table).alias("y"), "id")
    publish(spark_lake, table, ROWS)
    assert both.count() in (10, 40)


@pytest.mark.nightly
def test_rows_that_another_session_wrote_before_the_run_are_read(spark_lake, namespace):
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id BIGINT) USING iceberg")
    made_before = spark_lake.new_session().table(table)
    spark_lake.new_session().sql(f"INSERT INTO {table} VALUES (1)")
    assert made_before.collect() == [(1,)]
