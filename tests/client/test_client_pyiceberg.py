"""PyIceberg on a Lakewarden catalog: scans and appends go through the client, and nothing past it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import ForbiddenError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType
from requests import RequestException, TooManyRedirects

import lakewarden
from policy.errors import NotAuthorized, NotSupportedYet, PropertyInvalid, RequestInvalid
from tests.support.lake import ALICE, CAROL, policy, standard_policies
from tests.support.service import Service
from tests.support.tables import ENCRYPTED

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", None]})
SELECT = [{"type": "select", "isAllowed": True}]
_numbers = count(1)


@pytest.fixture(scope="module")
def catalog(served: Service) -> lakewarden.PyIcebergCatalog:
    """Alice's, as PyIceberg makes it of its properties."""
    return opened(served, ALICE)


def opened(served: Service, user: str, **properties: str) -> Any:
    impl = {"py-catalog-impl": "lakewarden.PyIcebergCatalog"}
    return load_catalog("lake", **impl, uri=served.url, token=served.token(user), **properties)


@pytest.fixture(params=[{}, ENCRYPTED, {"encryption.columns": "pii:name"}], ids=["plain", "one key", "keyed"])
def table(catalog: lakewarden.PyIcebergCatalog, request: pytest.FixtureRequest) -> Table:
    return made(catalog, request.param)


def made(catalog: lakewarden.PyIcebergCatalog, properties: dict[str, str]) -> Table:
    return catalog.create_table(f"db.p{next(_numbers)}", ROWS.schema, properties=properties)


@pytest.fixture
def policies(served: Service) -> Iterator[Callable[..., None]]:
    yield lambda *more: served.lake.set_policies([*standard_policies(), *more])
    served.lake.set_policies(standard_policies())


@pytest.mark.nightly
def test_rows_that_were_appended_are_scanned(catalog: lakewarden.PyIcebergCatalog, table: Table) -> None:
    assert (table.scan().to_arrow().num_rows, table.scan().count()) == (0, 0)
    table.append(ROWS, snapshot_properties={"batch": "7"})
    table.append(ROWS)
    assert catalog.load_table(table.name()).history()[0].snapshot_id == table.snapshots()[0].snapshot_id
    assert table.snapshots()[0].summary["batch"] == "7"
    scan = table.scan("id > 1", selected_fields=("name", "id"))
    assert (scan.count(), scan.to_arrow().num_rows, scan.to_polars().height) == (4, 4, 4)
    assert sorted(scan.filter("id = 2").to_pandas()["name"]) == ["b", "b"]
    assert table.scan(limit=5).select("id").to_arrow_batch_reader().read_all().shape == (5, 1)
    assert table.to_polars().filter(pl.col("id") == 3).collect().height == 2
    assert table.scan(snapshot_id=table.snapshots()[0].snapshot_id).to_arrow().num_rows == 3


@pytest.mark.nightly
def test_a_table_is_read_as_it_was_loaded(catalog: lakewarden.PyIcebergCatalog) -> None:
    table = made(catalog, ENCRYPTED)
    empty = catalog.load_table(table.name())
    table.append(ROWS)
    before = catalog.load_table(table.name())
    table.append(ROWS)
    assert [each.scan().to_arrow().num_rows for each in (empty, before, table)] == [0, 3, 6]
    assert [each.scan().count() for each in (empty.refresh(), before.refresh())] == [6, 6]


def test_a_branch_is_appended_to(catalog: lakewarden.PyIcebergCatalog) -> None:
    table = made(catalog, ENCRYPTED)
    table.append(ROWS)
    table.append(ROWS, branch="audit")
    assert [table.scan().count(), table.scan().use_ref("audit").count()] == [3, 6]


PAST: dict[str, Callable[[Table], Any]] = {
    "overwrite": lambda table: table.overwrite(ROWS),
    "delete": lambda table: table.delete("id = 1"),
    "upsert": lambda table: table.upsert(ROWS, ["id"]),
    "add files": lambda table: table.add_files(["file:///etc/hostname"]),
    "a transaction": lambda table: table.transaction().append(ROWS),
    "plan files": lambda table: table.scan().plan_files(),
    "increments": lambda table: table.incremental_append_scan().to_arrow(),
    "files": lambda table: table.inspect.files(),
    "Polars by itself": lambda table: pl.scan_iceberg(table).collect(),
    "dictionaries": lambda table: table.scan().to_arrow(("name",)),
    "options": lambda table: table.scan(options={"any": "option"}).to_arrow(),
    "DataFusion": lambda table: table.__datafusion_table_provider__(),
    "Bodo": lambda table: table.to_bodo(),
}


@pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning")
def test_what_pyiceberg_would_open_by_itself_is_refused(catalog: lakewarden.PyIcebergCatalog) -> None:
    table = made(catalog, {})
    table.append(ROWS)
    for name, past in PAST.items():
        with pytest.raises(NotSupportedYet) as refused:
            past(table)
        assert refused.value.rule == "pyiceberg", name
    assert catalog.load_table(table.name()).metadata == table.metadata
    with pytest.raises(NotSupportedYet):
        catalog.create_table_transaction("db.staged", ROWS.schema)


def test_errors_are_those_of_pyiceberg_too(catalog: lakewarden.PyIcebergCatalog, table: Table) -> None:
    with pytest.raises(NoSuchTableError):
        catalog.load_table("db.there_is_none")
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(table.name(), ROWS.schema)
    with pytest.raises(RequestInvalid, match="Did you mean 'name'"):
        table.scan("nam = 'a'").to_arrow()


def test_a_schema_of_a_plaintext_table_is_changed_and_of_an_encrypted_one_not(
    catalog: lakewarden.PyIcebergCatalog,
) -> None:
    table = made(catalog, {})
    table.append(ROWS)
    with table.update_schema() as update:
        update.add_column("more", LongType())
    assert table.scan(selected_fields=("more",)).to_arrow()["more"].to_pylist() == [None] * 3
    with pytest.raises(ForbiddenError), made(catalog, ENCRYPTED).update_schema() as update:
        update.add_column("more", LongType())


def test_a_denied_column_is_refused_and_the_others_are_scanned(
    catalog: lakewarden.PyIcebergCatalog, served: Service, policies: Callable[..., None]
) -> None:
    table = made(catalog, {"encryption.columns": "pii:name"})
    table.append(ROWS)
    where = {"database": ["db"], "table": ["*"], "column": ["name"]}
    denied = policy("no-name", where, {}, denyPolicyItems=[{"users": [CAROL], "accesses": SELECT}])
    policies(denied, policy("carol-keys", {"key": ["lakewarden"]}, {CAROL: ["release"]}))
    carol = opened(served, CAROL).load_table(table.name())
    assert carol.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist() == [1, 2, 3]
    for refused in (carol.scan().to_arrow, carol.scan("name = 'a'", ("id",)).to_arrow, carol.to_polars):
        with pytest.raises(NotAuthorized):
            refused()


def test_an_engine_applies_row_filters_and_its_token_is_in_no_property(
    catalog: lakewarden.PyIcebergCatalog, served: Service, policies: Callable[..., None]
) -> None:
    table = made(catalog, ENCRYPTED)
    table.append(ROWS)
    few = {"users": [CAROL], "accesses": SELECT, "rowFilterInfo": {"filterExpr": "id < 2"}}
    policies(
        policy("few", {"database": ["db"], "table": ["*"]}, {}, policyType=2, rowFilterPolicyItems=[few])
    )
    token = served.engine_token()
    gateway = opened(served, CAROL, **{"engine-token": token})
    assert token not in str(gateway.properties) + repr(gateway) + str(vars(gateway))
    assert gateway.load_table(table.name()).scan().to_arrow()["id"].to_pylist() == [1]
    with pytest.raises(NotAuthorized):
        opened(served, CAROL).load_table(table.name()).scan().to_arrow()


@pytest.mark.parametrize(
    "given", [{"ssl": "x"}, {"auth": "x"}, {"s3.proxy-uri": "http://proxy"}, {"token": ""}]
)
def test_properties_without_effect_are_refused(served: Service, given: dict[str, Any]) -> None:
    properties = {"uri": served.url, "token": served.token(ALICE), **given}
    with pytest.raises(PropertyInvalid):
        lakewarden.PyIcebergCatalog("lake", **properties)


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[str]]]:
    """Another server: its address, and the requests that it got."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(307)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


def test_pyicebergs_own_requests_carry_the_token_to_no_other_address(
    served: Service, elsewhere: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: a way in plaintext, a proxy of the environment, and a redirect, to read the token."""
    address, asked = elsewhere
    monkeypatch.setenv("http_proxy", address)
    for given in ("http://lake.example", served.url):
        with suppress(RequestInvalid, RequestException):
            opened(replace(served, url=given), ALICE)
    assert asked == []
    with pytest.raises(TooManyRedirects):
        lakewarden.PyIcebergCatalog("lake", uri=address, token="lw_1_secret")
    assert asked == ["/v1/config"]
    with pytest.raises(RequestInvalid, match="not https"):
        lakewarden.PyIcebergCatalog("lake", uri="http://lake.example", token="lw_1_secret")


def test_column_names_of_a_schema_select_are_in_its_order(catalog: lakewarden.PyIcebergCatalog) -> None:
    table = made(catalog, {})
    table.append(ROWS)
    scan = table.scan(selected_fields=("name", "id"))
    assert scan.to_arrow().column_names == scan.projection().column_names == ["id", "name"]
    assert isinstance(table.schema(), Schema)
