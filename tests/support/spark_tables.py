"""Tables that Spark wrote, as standard clients and the planner see them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table
from pyspark.sql import Row

import lakewarden
from catalog.client.scan import Scan
from tests.support.lake import ALICE
from tests.support.spark import CATALOG, SparkLake

#: As people write it: the statement of the page that ORC's encryption is known by, but for the table's name.
ENCRYPTED_ORC = """\
CREATE TABLE {} (
  ssn STRING,
  email STRING,
  name STRING
)
USING ORC
OPTIONS (
  hadoop.security.key.provider.path "kms://http@localhost:9600/kms",
  orc.key.provider "hadoop",
  orc.encrypt "pii:ssn,email",
  orc.mask "nullify:ssn;sha256:email"
)"""


def stock_table(spark_lake: SparkLake, table: str) -> Table:
    """A table, by Spark's name for it, as the catalog shows it to Alice in its own process."""
    return spark_lake.service.lake.catalog().load_table(table.removeprefix(f"{CATALOG}."))


def data_files(spark_lake: SparkLake, table: str) -> list[dict[str, Any]]:
    """What the manifests of the current snapshot say of each data file."""
    rows: list[dict[str, Any]] = stock_table(spark_lake, table).inspect.files().to_pylist()
    return rows


def local_path(file: Mapping[str, Any]) -> Path:
    """Where a data file lies."""
    return Path(file["file_path"].removeprefix("file://"))


def only_file(spark_lake: SparkLake, table: str) -> Path:
    """Where the one data file of a table lies."""
    (file,) = data_files(spark_lake, table)
    return local_path(file)


def client_scan(spark_lake: SparkLake, table: str) -> Scan:
    """A scan of Alice's without Spark, of a table by Spark's name for it."""
    mine = lakewarden.connect(spark_lake.service.url, spark_lake.service.token(ALICE))
    return mine.table(table.removeprefix(f"{CATALOG}.")).scan()


def master_keys(spark_lake: SparkLake, *names: str) -> None:
    """Make master keys that are not there yet: tests of one process share a keystore."""
    known = {key.id for key in spark_lake.lake.kms.list_master_keys()}
    for name in names:
        if name not in known:
            spark_lake.lake.kms.create_master_key(name)


def planned_files(spark_lake: SparkLake, table: str, **body: Any) -> int:
    """How many files a plan for Alice through the engine has."""
    _, namespace, name = table.split(".")
    with spark_lake.service.client(engine="spark") as client:
        answer = client.post(f"/engine/v1/tables/{namespace}/{name}/plan", json=body)
        assert answer.status_code == 200, answer.text
        return int(pa.ipc.open_stream(answer.content).read_all().num_rows)


def create_table(
    spark_lake: SparkLake,
    table: str,
    columns: str,
    properties: Mapping[str, str] | None = None,
    partitioned_by: str | None = None,
) -> None:
    """CREATE TABLE as Alice."""
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in (properties or {}).items())
    clauses = [f"CREATE TABLE {table} ({columns}) USING iceberg"]
    clauses += [f"PARTITIONED BY ({partitioned_by})"] if partitioned_by else []
    clauses += [f"TBLPROPERTIES ({listed})"] if listed else []
    spark_lake.rows(" ".join(clauses))


def migrating(spark_lake: SparkLake, table: str, files: int = 3) -> list[Row]:
    """Make a table with so many files in plaintext, a row in each, which was encrypted since; its rows."""
    create_table(spark_lake, table, "id INT, name STRING")
    some = f"SELECT CAST(id AS INT), concat('n', id) FROM range(0, {files}, 1, {files})"  # noqa: S608
    spark_lake.rows(f"INSERT INTO {table} {some}")
    spark_lake.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ('encryption.mechanism' = 'envelope')")
    return sorted(spark_lake.spark.table(table).collect())
