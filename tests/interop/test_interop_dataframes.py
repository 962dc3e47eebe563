"""Polars, Daft and DuckDB read tables of the service through PyIceberg, without code of Lakewarden in them.

DuckDB reads what PyIceberg's scan answers, through Arrow. The others plan by PyIceberg and open the files
themselves.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from tests.support.attacker import OWN_ROWS, SECRET_ROWS, lay_siege, local
from tests.support.delete_files import add_deletes
from tests.support.guarded_store import guarded_store
from tests.support.lake import ALICE, BOB, policy, standard_policies, tables
from tests.support.moto_server import MotoS3
from tests.support.service import Service, open_service

daft = pytest.importorskip("daft", reason="Daft is missing; `make interop` installs it")
duckdb = pytest.importorskip("duckdb", reason="DuckDB is missing; `make interop` installs it")

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "part", StringType()),
    NestedField(3, "price", DecimalType(9, 2)),
    NestedField(4, "share", DoubleType()),
    NestedField(5, "day", DateType()),
    NestedField(6, "at", TimestampType()),
    NestedField(7, "seen", TimestamptzType()),
    NestedField(8, "good", BooleanType()),
    NestedField(9, "point", StructType(NestedField(11, "x", LongType()))),
    NestedField(10, "tags", ListType(12, StringType(), element_required=False)),
)
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
BY_DAY = PartitionSpec(PartitionField(5, 1000, IdentityTransform(), "day"))


def _row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "part": "abc"[number % 3],
        "price": Decimal(number) + Decimal("0.25"),
        "share": None if number % 5 == 0 else number / 4,
        "day": date(2020, 1, 1 + number % 2),
        "at": datetime(2020, 1, 1, number % 24),
        "seen": datetime(2020, 1, 1, number % 24, tzinfo=UTC),
        "good": number % 2 == 0,
        "point": {"x": number * 10},
        "tags": [f"t{number}"] * (number % 3),
    }


ROWS = [_row(number) for number in range(24)]


def _told(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA.as_arrow())


@dataclass(frozen=True)
class Query:
    """A condition in SQL, as each client reads it, and the same for rows in Python."""

    sql: str
    holds: Callable[[dict[str, Any]], bool]


QUERIES = {
    "all": Query("id >= 0", lambda row: True),
    "partition": Query("part = 'b'", lambda row: row["part"] == "b"),
    "partitions": Query("part <> 'b' AND id < 10", lambda row: row["part"] != "b" and row["id"] < 10),
    "values": Query("id IN (3, 7, 99)", lambda row: row["id"] in (3, 7, 99)),
    "or": Query("id < 3 OR part = 'c'", lambda row: row["id"] < 3 or row["part"] == "c"),
    "null": Query("share IS NULL", lambda row: row["share"] is None),
    "not null": Query("share IS NOT NULL AND share > 2.5", lambda row: (row["share"] or 0) > 2.5),
    "none": Query("id > 1000", lambda row: False),
}


def _pyiceberg(table: Table, condition: str) -> list[dict[str, Any]]:
    return table.scan(row_filter=condition).to_arrow().to_pylist()


def _polars(table: Table, condition: str) -> list[dict[str, Any]]:
    # Polars does not take the credentials out of the table, unless its plugin plans.
    storage = {name: value for name, value in table.io.properties.items() if name.startswith("s3.")}
    scan = pl.scan_iceberg(table, storage_options=storage or None)
    return scan.filter(pl.sql_expr(condition)).collect().to_dicts()


def _daft(table: Table, condition: str) -> list[dict[str, Any]]:
    return daft.read_iceberg(table).where(condition).to_arrow().to_pylist()


def _duckdb(table: Table, condition: str) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", table.scan(row_filter=condition).to_arrow_batch_reader())
        return connection.execute(f"SELECT * FROM rows WHERE {condition}").to_arrow_table().to_pylist()


#: Whether Polars plans by PyIceberg or by its plugin `polars_iceberg`.
PLANNER = "POLARS_ICEBERG_PLANNER"
CLIENTS: Mapping[str, Callable[[Table, str], list[dict[str, Any]]]] = {
    "pyiceberg": _pyiceberg,
    "polars": _polars,
    "daft": _daft,
    "duckdb": _duckdb,
}
every_client = pytest.mark.parametrize("read", CLIENTS.values(), ids=CLIENTS)
every_mode = pytest.mark.parametrize("mode", ["client", "server"])


def _plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows in the order of their ids, with times in UTC."""
    for row in rows:
        if row.get("seen") is not None:
            row["seen"] = row["seen"].astimezone(UTC)
    return sorted(rows, key=lambda row: row["id"])


@pytest.fixture(autouse=True)
def _plans_of_pyiceberg(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polars plans by PyIceberg, not by its plugin."""
    monkeypatch.setenv(PLANNER, "pyiceberg")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose plans of more than two files have plan tasks, with a table of several files."""
    with open_service(tmp_path_factory.mktemp("lake"), PLANNING__ANSWER_FILES="2") as running:
        alice = running.iceberg()
        alice.create_namespace("db")
        table = alice.create_table("db.t", SCHEMA, partition_spec=BY_PART)
        table.append(_told(ROWS[:12]))
        table.append(_told(ROWS[12:]))
        yield running


def _load(served: Service, mode: str, name: str = "db.t", user: str = ALICE) -> Table:
    return served.iceberg(user, **{"scan-planning-mode": mode}).load_table(name)


@every_client
@every_mode
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_rows_are_those_of_the_condition(
    served: Service, mode: str, query: Query, read: Callable[[Table, str], list[dict[str, Any]]]
) -> None:
    expected = [row for row in ROWS if query.holds(row)]
    assert _plain(read(_load(served, mode), query.sql)) == expected


@every_client
@every_mode
def test_a_condition_keeps_files_from_being_opened(
    tmp_path: Path, mode: str, read: Callable[[Table, str], list[dict[str, Any]]]
) -> None:
    with open_service(tmp_path) as served:
        served.iceberg().create_namespace("db")
        table = served.iceberg().create_table("db.t", SCHEMA, partition_spec=BY_PART)
        table.append(_told(ROWS))
        for file in table.inspect.files().to_pylist():
            if file["partition"]["part"] == "a":
                local(file["file_path"]).unlink()
        expected = [row for row in ROWS if row["part"] == "b" and row["id"] > 3]
        assert _plain(read(_load(served, mode), "part = 'b' AND id > 3")) == expected
        with pytest.raises(Exception, match=r"(?i)no such file|not found|cannot open|does not exist"):
            read(_load(served, mode), "id >= 0")


@every_client
@every_mode
def test_deleted_rows_are_not_read(
    served: Service, mode: str, read: Callable[[Table, str], list[dict[str, Any]]]
) -> None:
    name = f"db.deleted_{mode}_{read.__name__}"
    table = served.iceberg().create_table(name, OWN_ROWS.schema)
    table.append(OWN_ROWS)
    (path,) = table.inspect.files()["file_path"].to_pylist()
    stored = io.BytesIO()
    pq.write_table(pa.table([[path], pa.array([0], pa.int64())], _POSITIONS), stored)
    add_deletes(
        served.lake,
        served.lake.catalog().load_table(name),
        DataFileContent.POSITION_DELETES,
        applies_to=[path],
        stored=stored.getvalue(),
    )
    assert read(_load(served, mode, name), "id >= 0") == OWN_ROWS.to_pylist()[1:]


_POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)


@every_client
def test_a_path_that_was_planted_in_a_manifest_is_refused_where_the_catalog_plans(
    tmp_path: Path, read: Callable[[Table, str], list[dict[str, Any]]]
) -> None:
    with open_service(tmp_path) as served:
        lay_siege(served.lake).plant()
        assert {row["id"] for row in read(_load(served, "client", "bobs.mine", BOB), "id >= 0")} == SECRET
        with pytest.raises(Exception, match=r"MetadataTampered: .* rule=") as refused:
            read(_load(served, "server", "bobs.mine", BOB), "id >= 0")
        assert not any(name in str(refused.value) for name in SECRET_ROWS["name"].to_pylist())


def test_polars_plans_by_itself_if_it_has_its_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin does not know `scan-planning-mode`: what it opens is up to what storage lets it open."""
    pytest.importorskip("polars_iceberg", reason="the plugin is missing; `make interop` installs it")
    monkeypatch.delenv(PLANNER)
    with open_service(tmp_path) as served:
        lay_siege(served.lake).plant()
        assert {row["id"] for row in _polars(_load(served, "server", "bobs.mine", BOB), "id >= 0")} == SECRET


SECRET = set(SECRET_ROWS["id"].to_pylist())


@pytest.mark.parametrize("mode", ["client", "server"])
def test_daft_reads_partitions_by_date_only_where_it_plans(served: Service, mode: str) -> None:
    """PyIceberg 0.12 leaves partition values of a plan as texts, and Daft fills columns from them."""
    table = served.iceberg().create_table(f"db.by_day_{mode}", SCHEMA, partition_spec=BY_DAY)
    table.append(_told(ROWS))
    loaded = _load(served, mode, f"db.by_day_{mode}")
    for read in (_pyiceberg, _polars, _duckdb):
        assert _plain(read(loaded, "id >= 0")) == ROWS
    if mode == "client":
        assert _plain(_daft(loaded, "id >= 0")) == ROWS
    else:
        with pytest.raises(pa.ArrowTypeError, match="'str'"):
            _daft(loaded, "id >= 0")


MASKED = {
    "users": [BOB],
    "accesses": [{"type": "select", "isAllowed": True}],
    "dataMaskInfo": {"dataMaskType": "MASK_HASH"},
}


@every_client
def test_a_mask_that_comes_into_force_refuses_the_next_plan(
    tmp_path: Path, read: Callable[[Table, str], list[dict[str, Any]]]
) -> None:
    reads = policy("bob-reads", tables("db"), {BOB: ["select"]})
    with open_service(tmp_path, policies=[*standard_policies(), reads]) as served:
        served.iceberg().create_namespace("db")
        served.iceberg().create_table("db.t", OWN_ROWS.schema).append(OWN_ROWS)
        table = _load(served, "server", user=BOB)
        assert len(read(table, "id >= 0")) == 2
        mask = policy(
            "mask",
            {"database": ["db"], "table": ["*"], "column": ["name"]},
            {},
            policyType=1,
            dataMaskPolicyItems=[MASKED],
        )
        served.lake.set_policies([*standard_policies(), reads, mask])
        with pytest.raises(Exception, match=r"bob .*db\.t.*mask"):
            read(table, "id >= 0")
        with pytest.raises(ForbiddenError, match=r"bob .*db\.t.*mask"):
            _load(served, "client", user=BOB)


@pytest.fixture(scope="module")
def in_s3(moto: MotoS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a table in S3, whose clients have the catalog's storage credentials alone."""
    with guarded_store(moto) as store:
        root = tmp_path_factory.mktemp("lake")
        with open_service(
            root, s3=store.s3, **{**store.settings(), "PLANNING__ANSWER_FILES": "2"}
        ) as running:
            running.client_properties = {}
            running.iceberg().create_namespace("db")
            running.iceberg().create_table("db.t", SCHEMA, partition_spec=BY_PART).append(_told(ROWS))
            yield running


@every_client
@every_mode
def test_rows_in_s3_are_read_with_credentials_of_the_catalog(
    in_s3: Service, mode: str, read: Callable[[Table, str], list[dict[str, Any]]]
) -> None:
    assert _plain(read(_load(in_s3, mode), "id < 10")) == ROWS[:10]


def test_a_table_whose_scans_the_catalog_plans_gives_no_client_a_credential(in_s3: Service) -> None:
    properties = {"read.scan-planning-mode": "server"}
    in_s3.lake.catalog().create_table("db.planned", OWN_ROWS.schema, properties=properties)
    for load in (
        lambda catalog: catalog.load_table("db.planned"),
        lambda catalog: pl.scan_iceberg("db.planned", catalog=catalog).collect(),
        lambda catalog: daft.Catalog.from_iceberg(catalog).get_table("db.planned").read(),
    ):
        with pytest.raises(Exception) as refused:
            load(in_s3.iceberg())
        # Daft has an error of its own, from this one.
        told = f"{refused.value} {refused.value.__cause__}"
        assert "rule=planned-files" in told and "remote-signing" in told


def test_polars_and_daft_load_a_table_by_its_name(served: Service) -> None:
    catalog = served.iceberg(**{"scan-planning-mode": "server"})
    read = pl.scan_iceberg("db.t", catalog=catalog).select("id").collect()
    assert sorted(read["id"].to_list()) == [row["id"] for row in ROWS]
    found = daft.Catalog.from_iceberg(catalog).get_table("db.t").read().select("id").to_pydict()
    assert sorted(found["id"]) == [row["id"] for row in ROWS]


def test_polars_and_daft_append(served: Service) -> None:
    table = served.iceberg().create_table("db.written", OWN_ROWS.schema)
    pl.from_arrow(OWN_ROWS).write_iceberg(table, mode="append")
    table.refresh()
    daft.from_arrow(OWN_ROWS).write_iceberg(table, mode="append")
    assert served.iceberg().load_table("db.written").scan().to_arrow().num_rows == 4
