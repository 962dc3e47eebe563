"""Which schemes a table may have where: metadata on storage that the catalog has, data anywhere."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from policy.errors import LocationInvalid, LocationNotAllowed
from tests.support.lake import Lake

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
ELSEWHERE = [
    "gs://acme-lake/t", "oss://acme-lake/t", "abfss://data@acme.dfs.core.windows.net/t",
    "wasbs://data@acme.blob.core.windows.net/t", "hdfs://nn:8020/t", "viewfs://cluster-a/t",
]  # fmt: skip


@pytest.fixture
def catalog(lake: Lake):
    catalog = lake.catalog()
    catalog.create_namespace("db")
    return catalog


@pytest.mark.parametrize("place", ELSEWHERE)
def test_metadata_in_storage_that_the_catalog_has_not_is_refused(catalog, place):
    for asked in ({"location": place}, {"properties": {"write.metadata.path": place}}):
        with pytest.raises(LocationNotAllowed) as refused:
            catalog.create_table("db.t", SCHEMA, **asked)
        assert refused.value.rule == "storage-scheme" and refused.value.hint
    assert catalog.list_tables("db") == []


def test_data_may_lie_in_any_storage(catalog):
    allowed = ",".join(ELSEWHERE)
    properties = {"write.data.path": ELSEWHERE[0], "read.allowed.data.paths": allowed}
    table = catalog.create_table("db.t", SCHEMA, properties=properties)
    assert table.properties["read.allowed.data.paths"] == allowed


def test_an_allowed_list_is_kept_in_its_one_spelling(catalog):
    odd = "abfs://data@ACME.dfs.core.windows.net/t/, hdfs://NN:8020/T"
    table = catalog.create_table("db.t", SCHEMA, properties={"read.allowed.data.paths": odd})
    kept = "abfss://data@acme.dfs.core.windows.net/t,hdfs://nn:8020/T"
    assert table.properties["read.allowed.data.paths"] == kept


@pytest.mark.parametrize("entry", ["hdfs:///t", "gs://Acme/t", "abfss://data@acme.blob.core.windows.net/t"])
def test_an_allowed_list_with_an_ambiguous_place_is_refused(catalog, entry):
    with pytest.raises(LocationInvalid):
        catalog.create_table("db.t", SCHEMA, properties={"read.allowed.data.paths": entry})
