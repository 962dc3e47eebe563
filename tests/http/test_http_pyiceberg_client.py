"""A standard pyiceberg client over the running service: databases and warehouses of each kind."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NamespaceNotEmptyError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import GreaterThan
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

from tests.support.postgres import PostgresServer
from tests.support.service import Service, open_service

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", None]})
MORE = pa.table({"id": pa.array([4], pa.int64()), "name": ["d"]})

KINDS = ["sqlite-disk", "sqlite-s3", "postgresql-disk"]


@pytest.fixture(scope="module", params=KINDS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service on each kind of database and warehouse."""
    database, warehouse = request.param.split("-")
    overrides: dict[str, str] = {}
    if database == "postgresql":
        server: PostgresServer | str = request.getfixturevalue("postgres_server")
        if isinstance(server, str):
            pytest.skip(server)
        overrides["DATABASE__URL"] = server.create_database()
    s3 = request.getfixturevalue("moto") if warehouse == "s3" else None
    with open_service(tmp_path_factory.mktemp("lake"), s3=s3, **overrides) as running:
        yield running


@pytest.fixture
def stock(served: Service) -> RestCatalog:
    """The client, of Alice."""
    return served.iceberg()


def _rows(stock: RestCatalog, name: tuple[str, ...]) -> list[dict[str, object]]:
    found = stock.load_table(name).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: str(row["id"]))


@pytest.mark.nightly
def test_table_from_creation_to_purge(stock: RestCatalog, namespace: str) -> None:
    name, renamed = (namespace, "t"), (namespace, "renamed")
    table = stock.create_table(name, ROWS.schema, properties={"owner": "alice"})
    assert table.properties["owner"] == "alice"
    table.append(ROWS)
    table.append(MORE)
    assert _rows(stock, name) == ROWS.to_pylist() + MORE.to_pylist()
    assert stock.load_table(name).scan(GreaterThan("id", 3)).to_arrow().num_rows == 1
    assert stock.table_exists(name) and stock.list_tables(namespace) == [name]
    stock.rename_table(name, renamed)
    assert not stock.table_exists(name)
    assert _rows(stock, renamed) == ROWS.to_pylist() + MORE.to_pylist()
    with pytest.raises(NamespaceNotEmptyError):
        stock.drop_namespace(namespace)
    stock.drop_table(renamed)
    with pytest.raises(NoSuchTableError):
        stock.load_table(renamed)
    stock.create_table(name, ROWS.schema).append(ROWS)
    stock.purge_table(name)
    stock.drop_namespace(namespace)


@pytest.mark.nightly
def test_schema_evolves(stock: RestCatalog, namespace: str) -> None:
    table = stock.create_table((namespace, "t"), ROWS.schema)
    table.append(ROWS)
    with table.update_schema() as change:
        change.add_column("at", TimestampType())
        change.rename_column("name", "label")
    assert stock.load_table((namespace, "t")).schema().column_names == ["id", "label", "at"]
    assert _rows(stock, (namespace, "t"))[0] == {"id": 1, "label": "a", "at": None}


@pytest.mark.nightly
def test_partitioned_table_is_overwritten_and_deleted_from(stock: RestCatalog, namespace: str) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=False), NestedField(2, "name", StringType(), required=False)
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    table = stock.create_table((namespace, "t"), schema, partition_spec=spec)
    odd = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a b", "2020/01?x=é%", None]})
    table.append(odd)
    assert _rows(stock, (namespace, "t")) == odd.to_pylist()
    table.delete("id = 2")
    assert [row["id"] for row in _rows(stock, (namespace, "t"))] == [1, 3]
    table.overwrite(ROWS)
    assert _rows(stock, (namespace, "t")) == ROWS.to_pylist()


@pytest.mark.nightly
def test_staged_creation_commits_table_and_rows_at_once(stock: RestCatalog, namespace: str) -> None:
    name = (namespace, "t")
    with stock.create_table_transaction(name, ROWS.schema, properties={"owner": "alice"}) as transaction:
        transaction.append(ROWS)
        assert not stock.table_exists(name)
    assert _rows(stock, name) == ROWS.to_pylist()
    assert stock.load_table(name).properties["owner"] == "alice"
    with (
        pytest.raises(TableAlreadyExistsError),
        stock.create_table_transaction(name, ROWS.schema),
    ):
        pass


@pytest.mark.nightly
def test_registered_table_is_the_one_that_was_dropped(stock: RestCatalog, namespace: str) -> None:
    name = (namespace, "t")
    table = stock.create_table(name, ROWS.schema)
    table.append(ROWS)
    location = stock.load_table(name).metadata_location
    stock.drop_table(name)
    assert stock.register_table(name, location).metadata.table_uuid == table.metadata.table_uuid
    assert _rows(stock, name) == ROWS.to_pylist()


@pytest.mark.nightly
def test_namespaces_with_odd_names_and_levels(stock: RestCatalog, namespace: str) -> None:
    nested = (namespace, "sub level é", "%20")
    stock.create_namespace(nested[:2])
    stock.create_namespace(nested, {"a": "1"})
    assert stock.load_namespace_properties(nested) == {"a": "1"}
    summary = stock.update_namespace_properties(nested, {"a", "z"}, {"b": "2"})
    assert (summary.removed, summary.updated, summary.missing) == (["a"], ["b"], ["z"])
    assert stock.list_namespaces((namespace,)) == [nested[:2]]
    stock.create_table((*nested, "t t"), ROWS.schema).append(ROWS)
    assert _rows(stock, (*nested, "t t")) == ROWS.to_pylist()


@pytest.mark.nightly
def test_second_of_two_racing_commits_is_told(stock: RestCatalog, namespace: str) -> None:
    stock.create_table((namespace, "t"), ROWS.schema, properties={"commit.retry.num-retries": "0"})
    first, second = stock.load_table((namespace, "t")), stock.load_table((namespace, "t"))
    first.append(ROWS)
    with second.update_schema() as change:
        change.add_column("x", LongType())
    stale = stock.load_table((namespace, "t"))
    with stock.load_table((namespace, "t")).update_schema() as change:
        change.add_column("y", LongType())
    with pytest.raises(CommitFailedException), stale.update_schema() as change:
        change.add_column("z", LongType())
    assert _rows(stock, (namespace, "t"))[0] == {"id": 1, "name": "a", "x": None, "y": None}


@pytest.mark.nightly
def test_governed_properties_are_shown_and_refused_where_they_are_wrong(
    stock: RestCatalog, namespace: str
) -> None:
    table = stock.create_table((namespace, "t"), ROWS.schema)
    assert table.properties["read.allowed.data.paths"] == table.location()
    with pytest.raises(BadRequestError, match=r"encryption\.mechanism"), table.transaction() as transaction:
        transaction.set_properties({"encryption.mechanism": "rot13"})
    with table.transaction() as transaction:
        transaction.set_properties({"note": "x"})
    assert stock.load_table((namespace, "t")).properties["note"] == "x"


@pytest.mark.nightly
def test_planted_file_of_another_table_is_refused(
    served: Service, stock: RestCatalog, namespace: str
) -> None:
    victim = stock.create_table((namespace, "victim"), ROWS.schema)
    victim.append(ROWS)
    (stolen,) = victim.inspect.files()["file_path"].to_pylist()
    thief = stock.create_table((namespace, "thief"), ROWS.schema)
    with pytest.raises(ForbiddenError, match="LocationNotAllowed"):
        thief.add_files([stolen])
    assert stock.load_table((namespace, "thief")).scan().to_arrow().num_rows == 0


@pytest.mark.nightly
def test_reader_reads_and_does_not_write(served: Service, stock: RestCatalog) -> None:
    """Carol may only read `db`."""
    stock.create_namespace_if_not_exists("db")
    if not stock.table_exists("db.t"):
        stock.create_table("db.t", ROWS.schema).append(ROWS)
    carol = served.iceberg("carol")
    assert carol.load_table("db.t").scan().to_arrow().num_rows == 3
    with pytest.raises(ForbiddenError):
        carol.load_table("db.t").append(MORE)
    with pytest.raises(ForbiddenError):
        carol.drop_table("db.t")
    assert carol.list_namespaces() == [("db",)]
