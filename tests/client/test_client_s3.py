"""Reading and appending without Spark where the warehouse is an object store."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

import lakewarden
from policy.errors import DecryptionRefused, StorageUnavailable
from tests.support.lake import ALICE
from tests.support.moto_server import MotoS3
from tests.support.service import open_service

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
ROWS = pa.table({"id": [1, 2], "name": ["a", None]})
MODES: list[dict[str, str]] = [
    {},
    {"encryption.mechanism": "envelope"},
    {"encryption.columns": "lakewarden:name"},
]


def test_tables_in_an_object_store(tmp_path: Path, moto: MotoS3) -> None:
    with open_service(tmp_path.resolve(), s3=moto) as service:
        stock = service.lake.catalog()
        stock.create_namespace("db")
        given = moto.pyiceberg_properties()
        s3 = {
            "endpoint": given["s3.endpoint"],
            "region": given["s3.region"],
            "access_key_id": given["s3.access-key-id"],
            "secret_access_key": given["s3.secret-access-key"],
        }
        lake = lakewarden.connect(service.url, service.token(ALICE), s3=s3)
        assert given["s3.secret-access-key"] not in repr(lake.table("db.t").scan())
        tables = []
        for number, properties in enumerate(MODES):
            stock.create_table(f"db.t{number}", SCHEMA, properties=properties)
            tables.append(lake.table(f"db.t{number}"))
            tables[-1].append(ROWS)
            tables[-1].append(ROWS)
            read = tables[-1].scan("id = 1").to_arrow()
            assert read.to_pylist() == [{"id": 1, "name": "a"}] * 2
        _swap(tables[1], lake)
        with pytest.raises(DecryptionRefused):
            tables[1].scan().to_arrow()
        away = lakewarden.connect(
            service.url, service.token(ALICE), s3=s3 | {"endpoint": "http://127.0.0.1:9", "max_attempts": 1}
        )
        with pytest.raises(StorageUnavailable):
            away.table("db.t0").scan().to_arrow()


def _swap(table: lakewarden.Table, lake: lakewarden.Connection) -> None:
    """Put one file of a table in the place of another."""
    plan = table.scan()._plan()
    one, other = (plan.location(each) for each in plan.files)
    storage = lake._storage
    data = storage.read(other, limit=1 << 20)
    storage.delete(one)
    storage.create(one, data)
