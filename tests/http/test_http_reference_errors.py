"""Refusals have the status, type and text by which Iceberg's clients choose the exception that they promise.

`_EXCEPTIONS` states which exception `ErrorHandlers` of Iceberg Java 1.11 throws for a status and `type`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pyiceberg.exceptions
import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.support.http_calls import SCHEMA, new_table
from tests.support.service import Service

_BY_DEFAULT: Final = {400: "BadRequest", 401: "NotAuthorized", 403: "Forbidden", 503: "ServiceUnavailable"}
#: By handler and status: the exception for each `type`, and for any other one (None).
_EXCEPTIONS: Final[dict[str, dict[int, dict[str | None, str]]]] = {
    "config": {404: {None: "NoSuchWarehouse"}},
    "namespace": {404: {None: "NoSuchNamespace"}, 409: {None: "AlreadyExists"}, 422: {None: "REST"}},
    "drop namespace": {404: {None: "NoSuchNamespace"}, 409: {None: "NamespaceNotEmpty"}},
    "table": {
        404: {
            "NoSuchNamespaceException": "NoSuchNamespace",
            "NotFoundException": "NotFound",
            None: "NoSuchTable",
        },
        409: {None: "AlreadyExists"},
    },
    "create table": {404: {None: "NoSuchNamespace"}, 409: {None: "AlreadyExists"}},
    "commit": {404: {None: "NoSuchTable"}, 409: {None: "CommitFailed"}},
    "plan": {
        404: {
            "NoSuchNamespaceException": "NoSuchNamespace",
            "NoSuchTableException": "NoSuchTable",
            None: "NoSuchPlanId",
        }
    },
    "plan task": {
        404: {
            "NoSuchNamespaceException": "NoSuchNamespace",
            "NoSuchTableException": "NoSuchTable",
            None: "NoSuchPlanTask",
        }
    },
}


def _exception(handler: str, error: dict[str, Any]) -> str:
    """Return the exception that the handler throws."""
    by_type = _EXCEPTIONS[handler].get(error["code"])
    return _BY_DEFAULT[error["code"]] if by_type is None else by_type.get(error["type"], by_type[None])


@dataclass(frozen=True)
class Refusal:
    """A refused request: which handler gets it, what it throws, and how the message begins."""

    method: str
    path: str
    handler: str
    thrown: str
    text: str = ""
    body: Any = None
    #: The whole message, and not only its beginning.
    exact: bool = False


_TABLE: Final = "/namespaces/{ns}/tables/t"
_NO_TABLE: Final = "/namespaces/{ns}/tables/no"
_NEW: Final = {"name": "t", "schema": SCHEMA}


def _name(name: str, namespace: str = "{ns}") -> dict[str, Any]:
    return {"namespace": [namespace], "name": name}


def _commit(kind: str, **fields: Any) -> dict[str, Any]:
    return {"requirements": [{"type": kind, **fields}], "updates": []}


def _requirement(kind: str, text: str, **fields: Any) -> Refusal:
    return Refusal(
        "POST", _TABLE, "commit", "CommitFailed", f"Requirement failed: {text}", _commit(kind, **fields)
    )


_REFUSALS: Final = [
    Refusal("GET", "/v1/config?warehouse=no", "config", "NoSuchWarehouse"),
    Refusal(
        "POST",
        "/namespaces",
        "namespace",
        "AlreadyExists",
        "Namespace already exists: {ns}",
        {"namespace": ["{ns}"]},
    ),
    Refusal(
        "GET", "/namespaces/no", "namespace", "NoSuchNamespace", "Namespace does not exist: no", exact=True
    ),
    Refusal(
        "GET",
        "/namespaces?parent=no",
        "namespace",
        "NoSuchNamespace",
        "Namespace does not exist: no",
        exact=True,
    ),
    Refusal(
        "POST",
        "/namespaces/no/properties",
        "namespace",
        "NoSuchNamespace",
        "Namespace does not exist: no",
        {"updates": {"a": "b"}},
    ),
    Refusal(
        "POST",
        "/namespaces/{ns}/properties",
        "namespace",
        "REST",
        "",
        {"updates": {"a": "b"}, "removals": ["a"]},
    ),
    Refusal("DELETE", "/namespaces/no", "drop namespace", "NoSuchNamespace", "Namespace does not exist: no"),
    Refusal(
        "DELETE", "/namespaces/{ns}", "drop namespace", "NamespaceNotEmpty", "Namespace {ns} is not empty"
    ),
    Refusal("GET", "/namespaces/no/tables", "namespace", "NoSuchNamespace", "Namespace does not exist: no"),
    Refusal(
        "POST", "/namespaces/no/tables", "table", "NoSuchNamespace", "Namespace does not exist: no", _NEW
    ),
    Refusal(
        "POST", "/namespaces/{ns}/tables", "table", "AlreadyExists", "Table already exists: {ns}.t", _NEW
    ),
    Refusal("GET", _NO_TABLE, "table", "NoSuchTable", "Table does not exist: {ns}.no"),
    Refusal("GET", "/namespaces/no/tables/t", "table", "NoSuchTable", "Table does not exist: no.t"),
    # Iceberg Java loads a metadata table this way first.
    Refusal(
        "GET",
        "/namespaces/{ns}%1Ft/tables/files",
        "table",
        "NoSuchTable",
        "Table does not exist: {ns}.t.files",
    ),
    Refusal(
        "GET",
        "/namespaces/{ns}/tables/gone",
        "table",
        "NotFound",
        "Failed to open input stream for file: file:",
    ),
    Refusal("POST", _NO_TABLE, "commit", "NoSuchTable", "Table does not exist: {ns}.no", {"updates": []}),
    _requirement("assert-table-uuid", "UUID does not match", uuid="27872c28-714d-4b3e-8204-29be4d9cf176"),
    _requirement(
        "assert-last-assigned-field-id", "last assigned field id changed", **{"last-assigned-field-id": 9}
    ),
    _requirement("assert-current-schema-id", "current schema changed", **{"current-schema-id": 9}),
    _requirement(
        "assert-last-assigned-partition-id",
        "last assigned partition id changed",
        **{"last-assigned-partition-id": 9},
    ),
    _requirement("assert-default-spec-id", "default partition spec changed", **{"default-spec-id": 9}),
    _requirement(
        "assert-default-sort-order-id", "default sort order changed", **{"default-sort-order-id": 9}
    ),
    _requirement("assert-ref-snapshot-id", "branch or tag main is missing", ref="main", **{"snapshot-id": 9}),
    Refusal("DELETE", _NO_TABLE, "table", "NoSuchTable", "Table does not exist: {ns}.no"),
    Refusal(
        "POST",
        "/tables/rename",
        "table",
        "NoSuchTable",
        "Table does not exist: {ns}.no",
        {"source": _name("no"), "destination": _name("to")},
    ),
    Refusal(
        "POST",
        "/tables/rename",
        "table",
        "NoSuchNamespace",
        "Namespace does not exist: no",
        {"source": _name("t"), "destination": _name("to", "no")},
    ),
    Refusal(
        "POST",
        "/tables/rename",
        "table",
        "AlreadyExists",
        "Table already exists: {ns}.u",
        {"source": _name("t"), "destination": _name("u")},
    ),
    Refusal(
        "POST",
        "/namespaces/{ns}/register",
        "table",
        "AlreadyExists",
        "Table already exists: {ns}.t",
        {"name": "t", "metadata-location": "{metadata}"},
    ),
    Refusal("POST", f"{_NO_TABLE}/plan", "plan", "NoSuchTable", "Table does not exist: {ns}.no", {}),
    Refusal("GET", f"{_TABLE}/plan/no", "plan", "NoSuchPlanId"),
    Refusal("POST", f"{_TABLE}/tasks", "plan task", "NoSuchPlanTask", "", {"plan-task": "no"}),
]


@pytest.fixture(scope="module")
def names(served: Service) -> dict[str, str]:
    """A namespace with the tables `t`, `u` and `gone`, whose metadata.json is gone."""
    with served.client() as alice:
        assert alice.post(f"{served.prefix}/namespaces", json={"namespace": ["ns"]}).status_code == 200
        made = {name: new_table(alice, served.prefix, "ns", name).json() for name in ("t", "u", "gone")}
    Path(made["gone"]["metadata-location"].removeprefix("file://")).unlink()
    return {"ns": "ns", "metadata": made["t"]["metadata-location"]}


def _filled(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace(f"{{{name}}}", text)
        return value
    if isinstance(value, dict):
        return {key: _filled(each, names) for key, each in value.items()}
    return [_filled(each, names) for each in value] if isinstance(value, list) else value


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("refusal", _REFUSALS, ids=lambda each: f"{each.method} {each.path} {each.thrown}")
def test_a_refusal_is_the_exception_that_iceberg_java_promises(
    served: Service, names: dict[str, str], alice: httpx.Client, refusal: Refusal
) -> None:
    path = _filled(refusal.path, names)
    url = path if path.startswith("/v1") else f"{served.prefix}{path}"
    body = {} if refusal.body is None else {"json": _filled(refusal.body, names)}
    answer = alice.request(refusal.method, url, **body)
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    assert _exception(refusal.handler, error) == refusal.thrown, error
    text = _filled(refusal.text, names)
    assert error["message"] == text if refusal.exact else error["message"].startswith(text), error["message"]


def test_completing_a_staged_table_that_exists_by_now(
    served: Service, names: dict[str, str], alice: httpx.Client
) -> None:
    staged = new_table(alice, served.prefix, "ns", "race", **{"stage-create": True}).json()["metadata"]
    assert new_table(alice, served.prefix, "ns", "race").status_code == 200
    updates = [
        {"action": "assign-uuid", "uuid": staged["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": SCHEMA},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": staged["location"]},
    ]
    body = {"requirements": [{"type": "assert-create"}], "updates": updates}
    error = alice.post(f"{served.prefix}/namespaces/ns/tables/race", json=body).json()["error"]
    assert _exception("create table", error) == "AlreadyExists"
    assert error["message"].startswith("Requirement failed: table already exists")


def test_views_and_tables_share_their_names(
    served: Service, names: dict[str, str], alice: httpx.Client
) -> None:
    url = "/engine/v1/namespaces/ns/views"
    text = {"type": "sql", "sql": "SELECT id, name FROM t", "dialect": "spark"}
    version = {"representations": [text], "default-namespace": ["ns"], "summary": {}}
    view = {"name": "v", "schema": SCHEMA, "view-version": version, "properties": {}}
    assert alice.post(url, json=view).status_code == 204
    over_table = alice.post(url, json={**view, "name": "t"}).json()["error"]
    assert over_table["message"].startswith("Table with same name already exists: ns.t")
    assert alice.post(url, json=view).json()["error"]["message"].startswith("View already exists: ns.v")
    for more in ({}, {"stage-create": True}):
        error = new_table(alice, served.prefix, "ns", "v", **more).json()["error"]
        assert error["message"].startswith("View with same name already exists: ns.v")
    moved = {"source": _name("t", "ns"), "destination": _name("v", "ns")}
    error = alice.post(f"{served.prefix}/tables/rename", json=moved).json()["error"]
    assert error["message"].startswith("Cannot rename ns.t to ns.v. View already exists")


_PYICEBERG: Final[list[tuple[str, Callable[[RestCatalog], object]]]] = [
    ("NoSuchNamespaceError", lambda catalog: catalog.list_tables("no")),
    ("NoSuchNamespaceError", lambda catalog: catalog.load_namespace_properties("no")),
    ("NoSuchNamespaceError", lambda catalog: catalog.drop_namespace("no")),
    ("NoSuchNamespaceError", lambda catalog: catalog.update_namespace_properties("no", updates={"a": "b"})),
    ("NamespaceAlreadyExistsError", lambda catalog: catalog.create_namespace("ns")),
    ("NamespaceNotEmptyError", lambda catalog: catalog.drop_namespace("ns")),
    ("NoSuchTableError", lambda catalog: catalog.load_table("ns.no")),
    ("NoSuchTableError", lambda catalog: catalog.drop_table("ns.no")),
    ("NoSuchTableError", lambda catalog: catalog.rename_table("ns.no", "ns.to")),
    ("TableAlreadyExistsError", lambda catalog: catalog.rename_table("ns.t", "ns.u")),
]


@pytest.mark.parametrize(("expected", "call"), _PYICEBERG)
def test_a_refusal_is_the_exception_that_pyiceberg_promises(
    served: Service, names: dict[str, str], expected: str, call: Callable[[RestCatalog], object]
) -> None:
    catalog = RestCatalog("lake", uri=served.url, token=served.token("alice"))
    with pytest.raises(getattr(pyiceberg.exceptions, expected)):
        call(catalog)
