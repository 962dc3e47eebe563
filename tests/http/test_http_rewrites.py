"""Rewriting over HTTP: what is answered to an engine, and the end of old epochs for administrators."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest

from catalog.base.identifiers import TableName
from tests.support.http_calls import refused
from tests.support.plan_streams import planned_files
from tests.support.service import ENGINE, Service
from tests.support.table_keys import load
from tests.support.tables import ENCRYPTED, Engine, append_files, make, name_of


@pytest.fixture
def name(served: Service) -> TableName:
    """A table with two files in plaintext, which was encrypted since."""
    served.lake.catalog().create_namespace_if_not_exists("db")
    table = make(served.lake)
    append_files(served.lake, name_of(table), 2)
    with served.lake.catalog().load_table(table.name()).transaction() as transaction:
        transaction.set_properties(ENCRYPTED)
    return name_of(table)


def url(name: TableName, what: str, door: str = "engine") -> str:
    return f"/{door}/v1/tables/{name.database}/{name.name}/{what}"


def post(client: httpx.Client, where: str, **body: Any) -> Any:
    answer = client.post(where, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.nightly
def test_from_the_groups_to_the_end_of_the_old_epoch(
    served: Service, alice: httpx.Client, name: TableName
) -> None:
    old = load(served.lake, name).metadata.current_snapshot_id
    with served.client(engine=ENGINE) as engine:
        found = post(engine, url(name, "rewrites"))
        (group,) = found["groups"]
        assert (group["branch"], group["snapshot-id"]) == ("main", old)
        assert (len(group["paths"]), group["sizes"], group["records"]) == (2, [1000, 1000], 20)
        left = [found[each] for each in ("left-files", "left-bytes", "sequence-number", "dangling")]
        assert left == [2, 2000, 1, True]
        assert post(engine, url(name, "rewrites"), without=group["paths"])["groups"] == []
        few = post(engine, url(name, "rewrites"), options={"max-file-group-size-bytes": "1000"})
        assert [len(each["paths"]) for each in few["groups"]] == [1, 1]
        planned = engine.post(url(name, "plan"), json={"ref": "main", "files": group["paths"]})
        rows = planned_files(planned.content)
        assert set(rows["file_path"].to_pylist()) == set(group["paths"])
        write = Engine.begin(served.lake, name)
        file = write.file(record_count=20)
        body = {
            "operation": "replace",
            "added": [
                {
                    "path": file.path,
                    "file-format": "parquet",
                    "record-count": 20,
                    "file-size-in-bytes": 1000,
                    "keys": [_key(each) for each in file.keys],
                }
            ],
            "deleted-paths": group["paths"],
            "base-snapshot-id": group["snapshot-id"],
            "schema-id": 0,
        }
        post(engine, f"/engine/v1/writes/{write.session.id}/commit", **body)
        assert post(engine, url(name, "rewrites"))["groups"] == []
        left = refused(engine.post(url(name, "regimes/forbid-old"), json={}), 400, "RequestInvalid")
        assert left["rule"] == "old-epoch-in-use" and str(old) in left["message"]
    report = alice.get(url(name, "regimes", "admin")).json()
    assert [(each["files"], each["old-files"]) for each in report["branches"]] == [(1, 0)]
    assert report["snapshots"] == [{"snapshot-id": old, "names": [], "old-files": 2}]
    stock = served.lake.catalog().load_table(str(name))
    stock.maintenance.expire_snapshots().by_id(old).commit()
    done = post(alice, url(name, "regimes/forbid-old", "admin"))
    assert (done["old-forbidden"], done["snapshots"]) == (True, [])
    assert alice.get(url(name, "regimes", "admin")).json() == done


def _key(key: Any) -> dict[str, Any]:
    return {
        "key-name": key.label.key_name,
        "field-ids": list(key.label.field_ids),
        "wrapped": base64.b64encode(key.wrapped).decode(),
    }


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "body",
    [
        {"max-groups": -1},
        {"max-groups": 1001},
        {"options": {"max-file-group-size-bytes": "0"}},
        {"options": {"min-input-files": "1.5"}},
        {"branch": ""},
        {"where": "id = 1"},
        {"without": ["x"] * 1001},
    ],
    ids=lambda body: str(body)[:40],
)
def test_limits_without_a_meaning_are_refused(
    alice: httpx.Client, name: TableName, body: dict[str, Any]
) -> None:
    refused(alice.post(url(name, "rewrites"), json=body), 400, "RequestInvalid")


def test_files_that_are_gone_are_a_conflict(alice: httpx.Client, name: TableName) -> None:
    refused(
        alice.post(url(name, "plan"), json={"ref": "main", "files": ["file:///x"]}), 409, "CommitConflict"
    )
