"""Two replicas on PostgreSQL behind a proxy that takes turns: each goes on with what the other one began."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from pyiceberg.exceptions import ViewAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyiceberg.view.metadata import SQLViewRepresentation, ViewVersion

from tests.support.crash import assert_sound
from tests.support.guarded_store import guarded_store
from tests.support.http_calls import (
    SCHEMA,
    encrypted_table,
    new_key,
    new_table,
    refused,
    tables_of,
    written_file,
)
from tests.support.lake import ALICE, BOB, CAROL, policy, tables
from tests.support.moto_server import MotoS3
from tests.support.postgres import PostgresServer
from tests.support.replicas import Replicas, processes, threads
from tests.support.service import Service, s3_settings
from tests.support.tables import rows

#: Plans of more than one file come in parts; policies are looked for often.
SETTINGS = {"PLANNING__ANSWER_FILES": "1", "POLICIES_POLL_S": "0.2"}
PATIENCE_S = 30.0
VIEW_SCHEMA = Schema(NestedField(1, "id", LongType()))


@pytest.fixture(scope="module")
def replicas(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer | str
) -> Iterator[Replicas]:
    """Two processes and the proxy."""
    if isinstance(postgres_server, str):
        pytest.skip(postgres_server)
    root = tmp_path_factory.mktemp("lake")
    with processes(root, postgres_server.create_database(), **SETTINGS) as running:
        yield running


@pytest.fixture
def balanced(replicas: Replicas) -> Iterator[Service]:
    """The proxy; the database is sound afterwards."""
    yield replicas.balanced
    assert_sound(replicas.balanced.lake)


@pytest.fixture
def client(balanced: Service) -> Iterator[httpx.Client]:
    """Alice before the proxy."""
    with balanced.client() as opened:
        yield opened


@pytest.fixture
def namespace(balanced: Service, client: httpx.Client) -> str:
    """An empty namespace."""
    return _namespace(balanced, client)


def _namespace(service: Service, client: httpx.Client) -> str:
    name = f"n{uuid4().hex[:12]}"
    answer = client.post(f"{service.prefix}/namespaces", json={"namespace": [name]})
    assert answer.status_code == 200, answer.text
    return name


def _transaction(
    client: httpx.Client, service: Service, namespace: str, names: str, mark: str
) -> httpx.Response:
    update = {"action": "set-properties", "updates": {mark: "1"}}
    changes = [
        {"identifier": {"namespace": [namespace], "name": each}, "requirements": [], "updates": [update]}
        for each in names
    ]
    return client.post(f"{service.prefix}/transactions/commit", json={"table-changes": changes})


def _planned(client: httpx.Client, service: Service, namespace: str) -> tuple[str, dict[str, Any]]:
    url = f"{service.prefix}/namespaces/{namespace}/tables/t"
    answer = client.post(f"{url}/plan", json={})
    assert answer.status_code == 200, answer.text
    plan: dict[str, Any] = answer.json()
    return url, plan


def _check_plans_and_transactions(service: Service) -> None:
    """A plan in parts, fetched and cancelled in turns, a transaction, and a repeated commit."""
    with service.client() as client:
        namespace = _namespace(service, client)
        for name in "tu":
            assert new_table(client, service.prefix, namespace, name).status_code == 200
        table = service.iceberg().load_table(f"{namespace}.t")
        for first in (1, 11):
            table.append(rows(first))
        url, plan = _planned(client, service, namespace)
        assert len(plan["plan-tasks"]) == 2
        paths = set()
        for part in plan["plan-tasks"]:
            tasks = client.post(f"{url}/tasks", json={"plan-task": part})
            assert tasks.status_code == 200, tasks.text
            paths |= {each["data-file"]["file-path"] for each in tasks.json()["file-scan-tasks"]}
        assert len(paths) == 2
        assert client.get(f"{url}/plan/{plan['plan-id']}").status_code == 200
        assert client.delete(f"{url}/plan/{plan['plan-id']}").status_code == 204
        for _ in range(2):
            assert client.get(f"{url}/plan/{plan['plan-id']}").status_code == 404
        assert _transaction(client, service, namespace, "tu", "mark").status_code == 204
        for _ in range(2):
            assert all(
                "mark" in service.iceberg().load_table(f"{namespace}.{each}").properties for each in "tu"
            )
        headers, body = (
            new_key(),
            {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "1"}}]},
        )
        first_answer, repeated = (client.post(url, json=body, headers=headers) for _ in range(2))
        assert first_answer.json()["metadata-location"] == repeated.json()["metadata-location"]


def test_plans_in_parts_transactions_and_repetitions(tmp_path: Path, postgres: PostgresServer) -> None:
    with threads(tmp_path, postgres.create_database(), **SETTINGS) as running:
        _check_plans_and_transactions(running.balanced)
        assert_sound(running.balanced.lake)


@pytest.mark.nightly
def test_plans_in_parts_transactions_and_repetitions_in_processes(balanced: Service) -> None:
    _check_plans_and_transactions(balanced)


@pytest.mark.nightly
def test_a_standard_client(balanced: Service, namespace: str) -> None:
    """Staged creation, appends, a branch, a new column, a rename and a drop, in turns."""
    catalog = balanced.iceberg()
    name, moved = f"{namespace}.t", f"{namespace}.moved"
    with catalog.create_table_transaction(name, rows(1).schema) as creation:
        creation.append(rows(1))
    table = catalog.load_table(name)
    table.append(rows(11))
    with table.update_schema() as update:
        update.add_column("more", StringType())
    assert "more" in catalog.load_table(name).schema().column_names
    assert catalog.load_table(name).scan().to_arrow().num_rows == 4
    table.manage_snapshots().create_tag(table.snapshots()[0].snapshot_id, "first").commit()
    catalog.rename_table(name, moved)
    assert catalog.load_table(moved).scan().use_ref("first").to_arrow().num_rows == 2
    catalog.drop_table(moved)
    assert not catalog.table_exists(moved)


@pytest.mark.nightly
def test_transactions_in_opposite_orders(balanced: Service, client: httpx.Client, namespace: str) -> None:
    for name in "abc":
        new_table(client, balanced.prefix, namespace, name)

    def act(number: int) -> Counter[int]:
        with balanced.client() as own:
            names = ("abc", "cba", "bc", "ca")[number]
            marks = (f"mark-{number}-{turn}" for turn in range(8))
            return Counter(_transaction(own, balanced, namespace, names, mark).status_code for mark in marks)

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(act, range(4)))
    assert sum(told, Counter()).keys() <= {204, 409}
    found = [balanced.iceberg().load_table(f"{namespace}.{name}").properties for name in "abc"]
    marks = Counter(mark for each in found for mark in each if mark.startswith("mark-"))
    wanted = [3, 3, 2, 2]
    assert all(count == wanted[int(mark.split("-")[1])] for mark, count in marks.items())
    by_writer = Counter(int(mark.split("-")[1]) for mark in marks)
    assert [by_writer[number] for number in range(4)] == [each[204] for each in told]


@pytest.mark.nightly
def test_a_key_that_is_sent_to_both_at_once_takes_effect_once(
    replicas: Replicas, client: httpx.Client, namespace: str
) -> None:
    new_table(client, replicas.balanced.prefix, namespace)
    url, body = (
        f"{replicas.balanced.prefix}/transactions/commit",
        {
            "table-changes": [
                {
                    "identifier": {"namespace": [namespace], "name": "t"},
                    "requirements": [{"type": "assert-last-assigned-field-id", "last-assigned-field-id": 2}],
                    "updates": [
                        {
                            "action": "add-schema",
                            "schema": {
                                **SCHEMA,
                                "schema-id": 1,
                                "fields": [
                                    *SCHEMA["fields"],
                                    {"id": 3, "name": "x", "type": "long", "required": False},
                                ],
                            },
                            "last-column-id": 3,
                        },
                    ],
                }
            ]
        },
    )
    headers = new_key()

    def sent(service: Service) -> int:
        with service.client() as own:
            return own.post(url, json=body, headers=headers).status_code

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(sent, replicas.each * 2)) == [204] * 4


@pytest.mark.nightly
def test_engines_register_sign_write_and_plan(
    balanced: Service, client: httpx.Client, namespace: str
) -> None:
    """A key registered at one signs at both; a write is begun at one and committed at the other."""
    with balanced.client(engine="spark") as engine:
        assert encrypted_table(engine, namespace).status_code == 200
        for _ in range(3):
            begun = engine.post(f"/engine/v1/tables/{namespace}/t/writes")
            assert begun.status_code == 200, begun.text
            aborted = engine.delete(f"/engine/v1/writes/{begun.json()['write-id']}")
            assert aborted.status_code == 204, aborted.text
            rotated = client.post(f"/admin/v1/tables/{namespace}/t/keys/rotate", json={})
            assert rotated.status_code == 200, rotated.text
        for _ in range(2):
            assert engine.post(f"/engine/v1/tables/{namespace}/t/plan", json={}).status_code == 200
        plain = new_table(engine, balanced.prefix, namespace, "plain")
        assert plain.status_code == 200
        begun = engine.post(f"/engine/v1/tables/{namespace}/plain/writes").json()
        commit = {"operation": "append", "added": [written_file(begun)]}
        url = f"/engine/v1/writes/{begun['write-id']}/commit"
        answers = [engine.post(url, json=commit) for _ in range(3)]
        assert [each.status_code for each in answers] == [200] * 3
        assert len(answers[2].json()["metadata"]["snapshots"]) == 1


@pytest.mark.nightly
def test_views(balanced: Service, client: httpx.Client, namespace: str) -> None:
    text = {"type": "sql", "sql": "SELECT 0 AS id", "dialect": "spark"}
    body: dict[str, Any] = {
        "schema": SCHEMA,
        "view-version": {"representations": [text], "default-namespace": [namespace], "summary": {}},
        "properties": {},
    }
    views, view = f"/engine/v1/namespaces/{namespace}/views", f"/engine/v1/views/{namespace}/v"
    assert client.post(views, json={**body, "name": "v"}).status_code == 204
    for version in (1, 2, 3):
        body["view-version"] |= {"representations": [text | {"sql": f"SELECT {version} AS id"}]}
        assert client.get(view).json()["version"] == version
        shown = client.get(f"{balanced.prefix}/namespaces/{namespace}/views/v").json()
        assert shown["metadata"]["current-version-id"] == version
        assert client.post(view, json={**body, "expected-version": version}).status_code == 204
    assert client.delete(view).status_code == 204
    for _ in range(2):
        refused(client.get(view), 404, "NoSuchView")


@pytest.mark.nightly
def test_pages(balanced: Service, client: httpx.Client, namespace: str) -> None:
    names = [f"t{number}" for number in range(5)]
    for name in names:
        new_table(client, balanced.prefix, namespace, name)
    url, token, found = f"{balanced.prefix}/namespaces/{namespace}/tables", "", list[str]()
    while token is not None:
        answer = client.get(url, params={"pageToken": token, "pageSize": "1"})
        assert answer.status_code == 200, answer.text
        found += [each["name"] for each in answer.json()["identifiers"]]
        token = answer.json()["next-page-token"]
    assert found == names == tables_of(client, balanced.prefix, namespace)


@pytest.mark.nightly
def test_tokens_end_in_both_at_once(balanced: Service, client: httpx.Client) -> None:
    issued = client.post("/admin/v1/tokens", json={"principal": BOB, "ttl-s": 3600})
    assert issued.status_code == 200, issued.text
    bearer = {"Authorization": f"Bearer {issued.json()['token']}"}
    with httpx.Client(base_url=balanced.url, headers=bearer) as bob:
        assert [bob.get("/v1/config").status_code for _ in range(2)] == [200] * 2
        assert client.delete(f"/admin/v1/tokens/{issued.json()['id']}").status_code == 204
        assert [bob.get("/v1/config").status_code for _ in range(2)] == [401] * 2


@pytest.mark.nightly
def test_storage_credentials(tmp_path: Path, postgres: PostgresServer, moto: MotoS3) -> None:
    """A client that has no permissions on storage writes and reads with the credentials of either."""
    with guarded_store(moto) as store:
        settings = SETTINGS | s3_settings(store.s3) | store.settings()
        with processes(tmp_path, postgres.create_database(), **settings) as running:
            catalog = running.balanced.iceberg()
            catalog.create_namespace("db")
            table = catalog.create_table("db.t", schema=rows(1).schema)
            for first in (1, 11, 21):
                table.append(rows(first))
                assert catalog.load_table("db.t").scan().to_arrow().num_rows == first // 10 * 2 + 2
            asked = {"X-Iceberg-Access-Delegation": "vended-credentials"}
            url = f"{running.balanced.prefix}/namespaces/db/tables/t"
            with running.balanced.client() as client:
                given = [client.get(url, headers=asked).json()["storage-credentials"] for _ in range(2)]
                assert given[0][0]["prefix"] == given[1][0]["prefix"]


def _opened(service: Service, location: str, user: str = ALICE) -> int:
    """Read a file with a signature alone; return the status of the refusal, or of the store's answer."""
    bucket, _, key = location.removeprefix("s3://").partition("/")
    uri = f"{service.lake.settings.s3.endpoint}/{bucket}/{key}"
    asked = {"method": "GET", "region": "us-east-1", "uri": uri, "headers": {}}
    with service.client(user) as client:
        answer = client.post(f"{service.prefix}/namespaces/db/tables/t/sign", json=asked)
    if answer.status_code != 200:
        return answer.status_code
    signed = {name: values[0] for name, values in answer.json()["headers"].items()}
    return httpx.get(answer.json()["uri"], headers=signed).status_code


@pytest.mark.nightly
def test_signatures(tmp_path: Path, postgres: PostgresServer, moto: MotoS3) -> None:
    """Each replica signs what the other one committed or planned, and nothing that the other one refuses."""
    settings = SETTINGS | s3_settings(moto) | {"S3__SIGNING": "true"}
    with threads(tmp_path, postgres.create_database(), **settings) as running:
        catalog = running.balanced.iceberg(**moto.pyiceberg_properties())
        catalog.create_namespace("db")
        table = catalog.create_table("db.t", schema=rows(1).schema)
        for first in (1, 11, 21):
            table.append(rows(first))
            files = [each.file.file_path for each in table.scan().plan_files()]
            assert [_opened(each, file) for each in running.each for file in files] == [200] * 2 * len(files)
        stray = f"{table.location()}/data/stray.parquet"
        assert [_opened(each, stray) for each in running.each] == [403] * 2
        with table.transaction() as transaction:
            transaction.set_properties({"read.scan-planning-mode": "server"})
        assert [_opened(each, files[0], CAROL) for each in running.each] == [403] * 2
        first, second = running.each
        with first.client(CAROL) as carol:
            planned = carol.post(f"{first.prefix}/namespaces/db/tables/t/plan", json={})
            assert planned.status_code == 200, planned.text
        assert [_opened(each, files[0], CAROL) for each in running.each] == [200] * 2
        with second.client(CAROL) as carol:
            at = f"{second.prefix}/namespaces/db/tables/t/plan/{planned.json()['plan-id']}"
            assert carol.delete(at).status_code == 204
        assert [_opened(each, files[0], CAROL) for each in running.each] == [403] * 2


@pytest.mark.nightly
def test_views_of_a_standard_client(balanced: Service, namespace: str) -> None:
    catalog, name = balanced.iceberg(), (namespace, "v")
    texts = [SQLViewRepresentation(type="sql", sql="SELECT 1 AS id", dialect="spark")]
    version = ViewVersion(
        version_id=1,
        schema_id=0,
        timestamp_ms=int(time.time() * 1000),
        summary={},
        representations=texts,
        default_namespace=[namespace],
    )
    for _ in range(3):
        catalog.create_view(name, VIEW_SCHEMA, version)
        with pytest.raises(ViewAlreadyExistsError):
            catalog.create_view(name, VIEW_SCHEMA, version)
        assert [catalog.load_view(name).schema().column_names for _ in range(2)] == [["id"]] * 2
        assert catalog.list_views(namespace) == [name]
        catalog.drop_view(name)
        assert [catalog.view_exists(name) for _ in range(2)] == [False] * 2


@pytest.mark.nightly
def test_policies_come_into_force_in_both(
    replicas: Replicas, balanced: Service, client: httpx.Client, namespace: str
) -> None:
    """A plan that was made before is judged by the policies of the request that fetches a part of it."""
    new_table(client, balanced.prefix, namespace)
    table = balanced.iceberg().load_table(f"{namespace}.t")
    for first in (1, 11):
        table.append(rows(first))
    document = {"policies": [policy(f"bob-{namespace}", tables(namespace), {BOB: ["select"]})]}
    url = f"/admin/v1/policies/documents/ranger/{namespace}"
    put = client.put(url, json=document)
    assert put.status_code in (200, 201), put.text
    with balanced.client(BOB) as bob:
        _until(lambda: all(_plans(each, namespace) == 200 for each in replicas.each))
        at, plan = _planned(bob, balanced, namespace)
        removed = client.delete(url, headers={"If-Match": client.get(url).headers["ETag"]})
        assert removed.status_code in (200, 204), removed.text
        _until(lambda: all(_plans(each, namespace) == 403 for each in replicas.each))
        for part in plan["plan-tasks"]:
            refused(bob.post(f"{at}/tasks", json={"plan-task": part}), 403, "NotAuthorized")


def _plans(service: Service, namespace: str) -> int:
    with service.client(BOB) as bob:
        return bob.post(f"{service.prefix}/namespaces/{namespace}/tables/t/plan", json={}).status_code


def _until(holds: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
