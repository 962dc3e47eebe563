"""A standard client that tries to read by a view what its user cannot read.

Alice's table has a column that Bob cannot select. Bob can create views, and change hers. Carol reads views.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.http_calls import SCHEMA, new_table, refused
from tests.support.lake import ALICE, BOB, CAROL, policies_without_code, policy, tables
from tests.support.service import Service, open_service

_NAMESPACE = "launder"
_SECRET = "SELECT name FROM t"
_OPEN = "SELECT id FROM t"


def _schema(column: str, kind: str) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"id": 1, "name": column, "type": kind, "required": False}]}


def _version(sql: str, dialect: str = "spark") -> dict[str, Any]:
    text = {"type": "sql", "sql": sql, "dialect": dialect}
    summary = {"spark.catalog-name": "lake"}
    ids = {"version-id": 1, "schema-id": -1, "timestamp-ms": 1}
    return {**ids, "summary": summary, "representations": [text], "default-namespace": [_NAMESPACE]}


def _body(name: str, sql: str = _OPEN, dialect: str = "spark", **properties: str) -> dict[str, Any]:
    version = _version(sql, dialect)
    return {"name": name, "schema": _schema("c", "string"), "view-version": version, "properties": properties}


def _replacing(sql: str) -> list[dict[str, Any]]:
    return [
        {"action": "add-schema", "schema": _schema("c", "string")},
        {"action": "add-view-version", "view-version": _version(sql)},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]


def _setting(**properties: str) -> dict[str, Any]:
    return {"action": "set-properties", "updates": properties}


@dataclass
class Laundry:
    """The service, and the views in it."""

    service: Service

    @property
    def views(self) -> str:
        return f"{self.service.prefix}/namespaces/{_NAMESPACE}/views"

    @property
    def table(self) -> str:
        return f"{self.service.prefix}/namespaces/{_NAMESPACE}/tables/t"

    def send(self, user: str, path: str, **body: Any) -> httpx.Response:
        with self.service.client(user) as client:
            return client.post(path, json=body)

    def create(self, user: str, body: dict[str, Any]) -> None:
        answer = self.send(user, self.views, **body)
        assert answer.status_code == 200, answer.text

    def commit(self, user: str, view: str, *updates: dict[str, Any]) -> None:
        answer = self.send(user, f"{self.views}/{view}", updates=list(updates))
        assert answer.status_code == 200, answer.text

    def read(self, view: str, column: str, user: str = CAROL) -> httpx.Response:
        """Read a column through a view, in an engine that is trusted."""
        url = f"/engine/v1/views/{_NAMESPACE}/{view}"
        with self.service.client(user, engine="spark") as engine:
            found = engine.get(url).json()
            through = {"view-uuid": found["metadata"]["view-uuid"], "version": found["version"]}
            asked = {"table": {"namespace": [_NAMESPACE], "name": "t"}, "columns": [column], **through}
            return engine.post(f"{url}/tables/plan", json=asked)


@pytest.fixture(scope="module")
def laundry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laundry]:
    views = tables(_NAMESPACE) | {"table": ["v*"]}
    of_bob = {"database": [_NAMESPACE], "table": ["t"], "column": ["id"]}
    storage = {"storage-type": ["*"], "storage-url": ["*"]}
    policies = [
        *policies_without_code(),
        policy("views", views, {BOB: ["create", "alter", "drop", "select"], CAROL: ["select"]}),
        policy("bob-reads", of_bob, {BOB: ["select"]}),
        policy("bob-stores", storage, {BOB: ["rwstorage"]}),
    ]
    with open_service(tmp_path_factory.mktemp("lake"), policies=policies) as service:
        with service.client() as alice:
            alice.post(f"{service.prefix}/namespaces", json={"namespace": [_NAMESPACE]})
            assert new_table(alice, service.prefix, _NAMESPACE, schema=SCHEMA).status_code == 200
        yield Laundry(service)


def test_a_definer_view_must_not_launder_a_column(laundry: Laundry) -> None:
    laundry.create(BOB, _body("v_own", _SECRET, security="definer"))
    refused(laundry.read("v_own", "name"), 403, "NotAuthorized")
    laundry.create(ALICE, _body("v_hers", _SECRET, security="definer"))
    assert laundry.read("v_hers", "name").status_code == 200
    # What Bob makes of her view has his permissions.
    laundry.commit(BOB, "v_hers", *_replacing(f"{_SECRET} WHERE id > 0"))
    refused(laundry.read("v_hers", "name"), 403, "NotAuthorized")
    assert laundry.read("v_hers", "id").status_code == 200


def test_a_former_version_that_is_made_current_has_the_permissions_of_who_did(laundry: Laundry) -> None:
    laundry.create(ALICE, _body("v_former", _SECRET, security="definer"))
    laundry.commit(ALICE, "v_former", *_replacing(_OPEN))
    refused(laundry.read("v_former", "none"), 400, "RequestInvalid")
    laundry.commit(BOB, "v_former", {"action": "set-current-view-version", "view-version-id": 1})
    refused(laundry.read("v_former", "name"), 403, "NotAuthorized")


def test_the_property_gives_the_permissions_of_who_sets_it(laundry: Laundry) -> None:
    laundry.create(ALICE, _body("v_set", _SECRET))
    laundry.commit(BOB, "v_set", _setting(security="definer"))
    refused(laundry.read("v_set", "name"), 403, "NotAuthorized")
    # A change of another property leaves the definer, and gives Bob nothing that he could change.
    laundry.create(ALICE, _body("v_kept", _SECRET, security="definer"))
    laundry.commit(BOB, "v_kept", _setting(comment="c"))
    assert laundry.read("v_kept", "name").status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        _body("v_x", _SECRET, "trino", security="definer"),
        _body("v_x", "SELECT reflect('a', 'b') FROM t", security="definer"),
        _body("v_x", "not a query", security="definer"),
        _body("v_x", _SECRET, security="Definer"),
    ],
    ids=["another dialect", "code", "no query", "another value"],
)
def test_a_text_that_the_catalog_cannot_read_has_no_definer_rights(
    laundry: Laundry, body: dict[str, Any]
) -> None:
    answer = laundry.send(ALICE, laundry.views, **body)
    assert answer.status_code == 400, answer.text
    laundry.create(ALICE, body | {"properties": {}})
    with laundry.service.client() as alice:
        # Nor later, by the property alone.
        updates = [_setting(**body["properties"])]
        answer = alice.post(f"{laundry.views}/v_x", json={"updates": updates})
        assert answer.status_code == 400, answer.text
        assert alice.delete(f"{laundry.views}/v_x").status_code == 204


def test_a_file_in_storage_makes_no_definer_view(laundry: Laundry, tmp_path: Path) -> None:
    laundry.create(ALICE, _body("v_filed", _SECRET, security="definer"))
    with laundry.service.client() as alice:
        metadata = alice.get(f"{laundry.views}/v_filed").json()["metadata"]
    path = laundry.views.replace("/views", "/register-view")
    file = tmp_path / "00001-x.metadata.json"
    asked = {"name": "v_taken", "metadata-location": file.as_uri()}
    file.write_text(json.dumps(metadata | {"location": tmp_path.as_uri()}))
    refused(laundry.send(BOB, path, **asked), 400, "RequestInvalid", "register-definer")
    file.write_text(json.dumps(metadata | {"location": tmp_path.as_uri(), "properties": {}}))
    registered = laundry.send(BOB, path, **asked).json()["metadata"]
    assert registered["view-uuid"] != metadata["view-uuid"]
    refused(laundry.read("v_taken", "name"), 403, "NotAuthorized", "view-text")


@pytest.mark.parametrize("dialect", ["spark", "SPARK"])
def test_a_file_with_two_texts_of_a_dialect_is_not_registered(
    laundry: Laundry, tmp_path: Path, dialect: str
) -> None:
    name = f"v_two_{dialect}"
    laundry.create(BOB, _body(name, _OPEN))
    with laundry.service.client(BOB) as bob:
        metadata = bob.get(f"{laundry.views}/{name}").json()["metadata"]
    # Clients show the first text. If Alice set the property, the second one would have her permissions.
    (version,) = metadata["versions"]
    texts = [*version["representations"], {"type": "sql", "sql": _SECRET, "dialect": dialect}]
    document = metadata | {
        "location": tmp_path.as_uri(),
        "versions": [version | {"representations": texts}],
    }
    file = tmp_path / "00001-x.metadata.json"
    file.write_text(json.dumps(document))
    path = laundry.views.replace("/views", "/register-view")
    asked = {"name": "v_twice", "metadata-location": file.as_uri()}
    refused(laundry.send(BOB, path, **asked), 400, "MetadataInvalid")


@pytest.mark.parametrize("engine", [None, "spark"], ids=["own process", "trusted engine"])
def test_referenced_by_is_no_permission(laundry: Laundry, engine: str | None) -> None:
    name = f"v_named_by_{engine}"
    laundry.create(ALICE, _body(name, _SECRET, security="definer"))
    asked = {"referenced-by": f"{_NAMESPACE}\x1f{name}"}
    with laundry.service.client(CAROL, engine=engine) as carol:
        refused(carol.get(laundry.table, params=asked), 403, "NotAuthorized", "policy-no-match")
        assert carol.get(f"{laundry.views}/{name}", params=asked).status_code == 200
        unseen = laundry.views.replace("/views", "/views/w")
        refused(carol.get(unseen, params=asked), 403, "NotAuthorized")


def test_readers_see_no_former_version(laundry: Laundry) -> None:
    laundry.create(ALICE, _body("v_past", "SELECT 'former' AS c"))
    laundry.commit(ALICE, "v_past", *_replacing(_OPEN))
    with laundry.service.client(CAROL) as carol:
        answer = carol.get(f"{laundry.views}/v_past")
    metadata = answer.json()["metadata"]
    assert "former" not in answer.text
    assert len(metadata["versions"]) == len(metadata["version-log"]) == len(metadata["schemas"]) == 1
