"""What Spark writes, a client without Spark reads alike, and the other way round."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lakewarden
from tests.spark.test_columns_with_keys import COLUMNS as KEYED_COLUMNS
from tests.spark.test_columns_with_keys import KEYS, ROWS
from tests.spark.test_write_types import COLUMNS, EXPECTED, NULLS, ROW
from tests.support.lake import ALICE
from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table, master_keys
from tests.support.tables import ENCRYPTED

pytestmark = pytest.mark.core

MODES = {"plaintext": {}, "encrypted": ENCRYPTED}
WHOLE = MODES | {
    "ctr": {"encryption.algorithm": "AES_GCM_CTR_V1"},
    "signed": {"encryption.footer": "plaintext", "encryption.data-key-length": "24"},
}
#: Beside the column keys of the tests of columns with keys.
KEYED = {
    "gcm": {},
    "ctr-128": {"encryption.algorithm": "AES_GCM_CTR_V1", "encryption.data-key-length": "16"},
    "signed": {"encryption.footer": "plaintext"},
}
ONE_NULL = {name: 5 if name == "whole" else None for name in EXPECTED}


@pytest.fixture
def alice(spark_lake: SparkLake) -> lakewarden.Connection:
    """Alice's own process."""
    return lakewarden.connect(spark_lake.service.url, spark_lake.service.token(ALICE))


def client_table(alice: lakewarden.Connection, name: str) -> Any:
    """A table by Spark's name for it."""
    return alice.table(name.split(".", 1)[1])


def told(rows: list[Any]) -> list[str]:
    """Rows of Spark's in an order of their own."""
    return sorted(map(str, rows))


def by_id(spark_lake: SparkLake, wanted: str) -> list[dict[str, Any]]:
    """Rows of Spark's, which need not sort them."""
    rows = [row.asDict(recursive=True) for row in spark_lake.rows(f"SELECT * FROM {wanted}")]
    return sorted(rows, key=lambda row: int(row["id"]))


@pytest.mark.parametrize(
    "mode", [pytest.param(each, marks=() if each == "encrypted" else pytest.mark.nightly) for each in WHOLE]
)
def test_every_type_is_the_same_to_spark_and_the_client(
    spark_lake: SparkLake, alice: lakewarden.Connection, mode: str
) -> None:
    name = f"{spark_lake.namespace()}.t"
    session = spark_lake.new_session()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    create_table(spark_lake, name, COLUMNS, WHOLE[mode])
    session.sql(f"INSERT INTO {name} VALUES ({ROW}), ({NULLS})").collect()
    before = told(session.sql(f"SELECT * FROM {name}").collect())
    client = client_table(alice, name)
    read = client.scan().to_arrow()
    assert read.sort_by("whole").to_pylist() == [EXPECTED, ONE_NULL]
    client.append(read)
    assert told(session.sql(f"SELECT * FROM {name}").collect()) == sorted(2 * before)
    wanted = "big > 5 AND day < date'1600-01-01'"
    assert len(session.sql(f"SELECT whole FROM {name} WHERE {wanted}").collect()) == 2


@pytest.mark.nightly
@pytest.mark.parametrize(
    "mode", [pytest.param(each, marks=() if each == "gcm" else pytest.mark.nightly) for each in KEYED]
)
def test_columns_with_keys(spark_lake: SparkLake, alice: lakewarden.Connection, mode: str) -> None:
    master_keys(spark_lake, "pii", "hr")
    name = f"{spark_lake.namespace()}.t"
    create_table(spark_lake, name, KEYED_COLUMNS, KEYS | KEYED[mode])
    spark_lake.rows(f"INSERT INTO {name} {ROWS}")
    table = client_table(alice, name)
    spark = by_id(spark_lake, name)
    read = table.scan().to_arrow().sort_by("id")
    assert read.to_pylist(maps_as_pydicts="strict") == spark
    one = table.scan("ssn = 'needle-ssn4'", ["id", "person.name"]).to_arrow().to_pylist()
    assert one == [{"id": 4, "person": {"name": "clear-name"}}]
    assert table.scan("id = 4", ["person.street"]).to_arrow().to_pylist() == [
        {"person": {"street": "needle-street"}}
    ]
    table.append(read.set_column(0, "id", pa.array(range(100, 110))))
    appended = by_id(spark_lake, f"{name} WHERE id >= 100")
    assert [row | {"id": row["id"] - 100} for row in appended] == spark
    assert spark_lake.rows(f"SELECT count(ssn), max(person.street) FROM {name}")[0] == (20, "needle-street")


@pytest.mark.nightly
@pytest.mark.parametrize("keys", [ENCRYPTED, KEYS], ids=["whole", "keyed"])
def test_files_for_stock_readers(
    spark_lake: SparkLake, alice: lakewarden.Connection, keys: dict[str, str]
) -> None:
    master_keys(spark_lake, "pii", "hr")
    name = f"{spark_lake.namespace()}.t"
    create_table(spark_lake, name, KEYED_COLUMNS, keys | {"encryption.stock-readers": "true"})
    spark_lake.rows(f"INSERT INTO {name} {ROWS}")
    table = client_table(alice, name)
    spark = by_id(spark_lake, name)
    read = table.scan().to_arrow().sort_by("id")
    assert read.to_pylist(maps_as_pydicts="strict") == spark
    table.append(read.set_column(0, "id", pa.array(range(100, 110))))
    appended = by_id(spark_lake, f"{name} WHERE id >= 100")
    assert [row | {"id": row["id"] - 100} for row in appended] == spark


@pytest.mark.nightly
@pytest.mark.parametrize("properties", [{}, ENCRYPTED, {"encryption.columns": "pii:a,s;hr:b"}])
def test_columns_that_were_renamed_swapped_widened_and_added_again(
    spark_lake: SparkLake, alice: lakewarden.Connection, properties: dict[str, str]
) -> None:
    name = f"{spark_lake.namespace()}.t"
    columns = "id INT, a STRING, b STRING, c INT, s STRUCT<x: INT, y: FLOAT>"
    master_keys(spark_lake, "pii", "hr")
    create_table(spark_lake, name, columns, properties)
    spark_lake.rows(f"INSERT INTO {name} VALUES (1, 'a1', 'b1', 10, named_struct('x', 1, 'y', 1.5F))")
    spark_lake.rows(f"INSERT INTO {name} VALUES (2, null, 'b2', 20, null)")
    for change in (
        "RENAME COLUMN a TO t",
        "RENAME COLUMN b TO a",
        "RENAME COLUMN t TO b",
        "DROP COLUMN c",
        "ADD COLUMN c BIGINT",
        "RENAME COLUMN s.x TO z",
        "ADD COLUMN s.x INT",
        "ALTER COLUMN id TYPE BIGINT",
        "ALTER COLUMN s.y TYPE DOUBLE",
    ):
        spark_lake.rows(f"ALTER TABLE {name} {change}")
    spark_lake.rows(f"INSERT INTO {name} SELECT 3, 'b3', 'a3', named_struct('z', 3, 'y', 3.5D, 'x', 30), 30")
    table = client_table(alice, name)
    for selected, wanted in (("*", None), ("c, s", ["c", "s"]), ("b", ["b"])):
        spark = [row.asDict(recursive=True) for row in spark_lake.rows(f"SELECT {selected} FROM {name}")]
        read = table.scan(columns=wanted).to_arrow()
        assert told(read.to_pylist()) == told(spark)
    assert ids(table.scan("a = 'b1'", ["id"]).to_arrow()) == [1]
    assert ids(table.scan("c is null", ["id"]).to_arrow()) == [1, 2]
    # The files of the past have none of the wanted fields, and still say where the struct is null.
    newest = table.scan(columns=["id", "s.x"]).to_arrow().sort_by("id").to_pylist()
    assert newest == [{"id": 1, "s": {"x": None}}, {"id": 2, "s": None}, {"id": 3, "s": {"x": 30}}]


def ids(rows: pa.Table) -> list[int]:
    return sorted(rows["id"].to_pylist())


@pytest.mark.nightly
@pytest.mark.parametrize("mode", [pytest.param("plaintext", marks=pytest.mark.nightly), "encrypted"])
def test_partitions_written_here_are_those_of_spark(
    spark_lake: SparkLake, alice: lakewarden.Connection, mode: str
) -> None:
    name = f"{spark_lake.namespace()}.t"
    columns = "id BIGINT, part STRING, day DATE, at TIMESTAMP"
    by = "part, bucket(4, id), months(day), hours(at)" if mode == "plaintext" else None
    create_table(spark_lake, name, columns, MODES[mode], by)
    spark_lake.rows(f"""INSERT INTO {name} SELECT id, if(id % 5 = 0, null, concat('p', id % 3)),
        date_add(date'2024-01-30', CAST(id AS INT)), timestamp_seconds(id * 1800) FROM range(20)""")
    client = client_table(alice, name)
    files = partitions(spark_lake, name)
    client.append(client.scan().to_arrow())
    assert partitions(spark_lake, name) == files
    assert spark_lake.rows(f"SELECT count(*) FROM {name} WHERE part = 'p1' AND id = 7")[0][0] == 2


def partitions(spark_lake: SparkLake, name: str) -> set[str]:
    """The partitions of the files of a table."""
    stock = spark_lake.service.lake.catalog().load_table(name.split(".", 1)[1])
    return {str(each.file.partition) for each in stock.scan().plan_files()}
