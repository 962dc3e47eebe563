"""CREATE TABLE AS SELECT over HTTP: what an engine sends to begin, and what it gets."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import httpx
import pytest

from catalog.envelope.file_ids import new_file_name
from tests.support.http_calls import SCHEMA, new_table, refused, tables_of
from tests.support.service import ENGINE, Service

BODY = {"name": "t", "schema": SCHEMA}


def _stage(client: httpx.Client, namespace: str, **body: Any) -> httpx.Response:
    return client.post(f"/engine/v1/namespaces/{namespace}/staged-writes", json={**BODY, **body})


def _commit(client: httpx.Client, staged: dict[str, Any], **body: Any) -> httpx.Response:
    url = f"/engine/v1/writes/{staged['write']['write-id']}/commit"
    return client.post(url, json={"operation": "append", **body})


def test_a_table_comes_with_its_rows(served: Service, alice: httpx.Client, namespace: str) -> None:
    spec = {
        "spec-id": 7,
        "fields": [{"source-id": 2, "field-id": 1000, "name": "p", "transform": "bucket[4]"}],
    }
    order = {
        "order-id": 1,
        "fields": [
            {"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}
        ],
    }
    with served.client(engine=ENGINE) as spark:
        answer = _stage(
            spark,
            namespace,
            properties={"owner.team": "a"},
            **{"partition-spec": spec, "write-order": order, "location": None},
        )
        assert answer.status_code == 200, answer.text
        staged = answer.json()
        assert set(staged) == {"metadata", "config", "write-settings", "write"}
        assert staged["config"]["lakewarden.principal"] == "alice"
        assert staged["write"]["table-uuid"] == staged["metadata"]["table-uuid"]
        assert staged["write"]["location"].startswith(staged["metadata"]["location"] + "/data/")
        assert staged["write"]["encryption"] is None and staged["write"]["transport-key"] is None
        assert tables_of(alice, served.prefix, namespace) == []
        path = f"{staged['write']['location']}/p=1/{new_file_name('part', 'parquet')}"
        file = {"path": path, "file-format": "parquet", "record-count": 3, "file-size-in-bytes": 100}
        local = Path(path.removeprefix("file://"))
        local.parent.mkdir(parents=True)
        local.write_bytes(bytes(100))
        committed = _commit(spark, staged, added=[{**file, "partition": {"p": 1}}])
        assert committed.status_code == 200, committed.text
        assert _commit(spark, staged, added=[{**file, "partition": {"p": 1}}]).json() == committed.json()
    after, before = committed.json()["metadata"], staged["metadata"]
    for each in ("schemas", "partition-specs", "sort-orders", "properties", "location", "table-uuid"):
        assert after[each] == before[each], each
    assert len(after["snapshots"]) == 1
    assert tables_of(alice, served.prefix, namespace) == ["t"]
    loaded = alice.get(f"{served.prefix}/namespaces/{namespace}/tables/t").json()
    assert loaded["metadata"] == after and loaded["config"]["lakewarden.sealed"] == "true"


def test_an_encrypted_table_comes_with_the_key_of_its_write(alice: httpx.Client, namespace: str) -> None:
    staged = _stage(alice, namespace, properties={"encryption.mechanism": "envelope"}).json()
    assert staged["write"]["encryption"] == {
        "algorithm": "AES_GCM_V1",
        "data-key-length": 32,
        "footer": "encrypted",
        "footer-key-name": "lakewarden",
        "column-keys": [],
        "stock-readers": None,
        "digest": False,
        "masks": [],
    }
    assert len(base64.b64decode(staged["write"]["transport-key"]["key"])) == 32
    assert staged["metadata"]["properties"]["encryption.pek-id"]
    assert _commit(alice, staged).status_code == 200


def test_a_write_that_is_given_up_leaves_the_name(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    staged = _stage(alice, namespace).json()
    assert alice.delete(f"/engine/v1/writes/{staged['write']['write-id']}").status_code == 204
    refused(_commit(alice, staged), 400, "RequestInvalid", "write-state")
    assert new_table(alice, served.prefix, namespace).status_code == 200


def test_a_name_that_is_taken(served: Service, alice: httpx.Client, namespace: str) -> None:
    staged = _stage(alice, namespace).json()
    assert new_table(alice, served.prefix, namespace).status_code == 200
    refused(_commit(alice, staged), 409, "TableExists")
    refused(_stage(alice, namespace), 409, "TableExists")
    with served.client("bob") as bob:
        refused(_stage(bob, namespace), 403, "NotAuthorized")
    refused(_stage(alice, "missing"), 404, "NoSuchNamespace")


@pytest.mark.parametrize(
    "change",
    [
        {"stage-create": True},
        {"name": ""},
        {"name": None},
        {"schema": {"type": "struct", "fields": [{"id": 1, "name": "x", "type": "varchar"}]}},
        {"schema": None},
        {"partition-spec": {"fields": [{"source-id": 9, "transform": "identity", "name": "x"}]}},
        {"write-order": {"order-id": 1, "fields": 7}},
        {"properties": {"x": 1}},
        {"properties": []},
        {"location": "../x"},
    ],
    ids=str,
)
def test_malformed_table_is_one_error(
    served: Service, alice: httpx.Client, namespace: str, change: dict[str, Any]
) -> None:
    answer = _stage(alice, namespace, **change)
    assert answer.status_code == 400 and answer.json()["error"]["lakewarden"] in (
        "RequestInvalid",
        "LocationInvalid",
    )
    assert tables_of(alice, served.prefix, namespace) == []


@pytest.mark.nightly
def test_wide_tables_are_staged(alice: httpx.Client, namespace: str) -> None:
    fields = [
        {"id": number, "name": f"{'c' * 200}{number}", "type": "long", "required": False}
        for number in range(1, 5_001)
    ]
    staged = _stage(alice, namespace, schema={"type": "struct", "fields": fields})
    assert staged.status_code == 200
    assert _commit(alice, staged.json()).status_code == 200
