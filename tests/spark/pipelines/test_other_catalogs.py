"""Other catalogs on the driver: what they hold and what they raise ends no audit, and shows no credential."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
import sqlalchemy
from pyiceberg.catalog.sql import SqlCatalog

from policy.errors import RequestInvalid
from spark_ext.pipelines.audit.catalogs import OtherCatalog
from spark_ext.pipelines.audit.pipeline import Audit
from spark_ext.pipelines.items import Item
from spark_ext.pipelines.lake import Lake

SECRET = "hunter2"
CLOSED = "127.0.0.1:1"
NO_LAKE = cast(Lake, None)


def planned(uri: str) -> dict[str, Item]:
    items = OtherCatalog("*", {"name": "c", "type": "sql", "uri": uri}).items(NO_LAKE)
    return {each.key: each for each in items}


@pytest.mark.parametrize(
    "properties",
    [
        {"type": "sql", "uri": f"sqlite:////nowhere/{SECRET}.db"},
        {"type": "sql", "uri": SECRET},
        {"type": "rest", "uri": f"http://{CLOSED}", "credential": f"id:{SECRET}"},
        {"type": "rest", "uri": f"http://u:{SECRET}@[bad"},
        {"py-catalog-impl": f"os.{SECRET}"},
        {"type": SECRET},
    ],
)
def test_a_catalog_that_cannot_be_opened_is_refused_without_its_credentials(
    properties: dict[str, str],
) -> None:
    with pytest.raises(RequestInvalid) as refusal:
        Audit("*", properties)
    assert (refusal.value.rule, refusal.value.__cause__) == ("other-catalog", None)
    assert SECRET not in str(refusal.value)


def test_a_catalog_that_goes_away_is_refused(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/c.db"
    catalog = OtherCatalog("*", {"name": "c", "type": "sql", "uri": uri})
    (tmp_path / "c.db").write_bytes(b"no database")
    with pytest.raises(RequestInvalid, match="cannot be listed"):
        list(catalog.items(NO_LAKE))


def test_tables_that_cannot_be_loaded_do_not_end_the_plan(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/c.db"
    catalog = SqlCatalog("c", uri=uri, warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.fine", pa.schema([("id", pa.int64())]))
    good = Path(table.metadata_location.removeprefix("file://")).read_bytes()
    contents = {
        "empty.metadata.json": b"",
        "list.metadata.json": b"[]",
        "deep.metadata.json": b"[" * 100_000,
        "type.metadata.json": good.replace(b'"long"', b'{"type":"list"}'),
        "schema.metadata.json": good.replace(b'"current-schema-id":0', b'"current-schema-id":5'),
        "cut.gz.metadata.json": gzip.compress(good)[:-20],
    }
    locations = {"lost": "file:///lost.json", "scheme": "none://a/b", "dots.in.it": "file:///lost.json"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        locations[name.partition(".")[0]] = f"file://{tmp_path}/{name}"
    catalog.create_namespace("ns.dots.in")
    with catalog.engine.begin() as connection:
        for name, location in locations.items():
            connection.execute(
                sqlalchemy.text(
                    "INSERT INTO iceberg_tables"
                    " (catalog_name, table_namespace, table_name, metadata_location)"
                    " VALUES ('c', 'ns', :name, :location)"
                ),
                {"name": name, "location": location},
            )
    catalog.create_table(("ns", "dots", "in", "it"), pa.schema([("id", pa.int64())]))
    items = planned(uri)
    assert items.keys() == {f"ns.{each}" for each in locations if "." not in each} | {
        "ns.fine",
        "ns.dots.in.it",
        "ns.`dots.in.it`",
    }
    problems = {name for name, item in items.items() if item.payload["problem"] is not None}
    assert problems == items.keys() - {"ns.fine", "ns.dots.in.it"}
    catalog.close()


def test_credentials_in_properties_are_not_recorded(tmp_path: Path) -> None:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/c.db?password={SECRET}",
        "warehouse": f"s3://key:{SECRET}@bucket/warehouse",
        "s3.secret-access-key": SECRET,
    }
    pipeline = Audit("*", properties)
    assert SECRET not in str((pipeline.parameters, pipeline))
    assert pipeline.parameters["other"]["warehouse"] == "s3://***"
