"""ALTER over HTTP: what an engine sends, and what it gets."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.support.http_calls import new_table, refused
from tests.support.service import Service

TWICE = [{"id": each, "name": "a", "type": "long", "required": False} for each in (1, 2)]


@pytest.fixture
def table(served: Service, alice: httpx.Client, namespace: str) -> str:
    """The address of a table `t`."""
    assert new_table(alice, served.prefix, namespace).status_code == 200
    return f"/engine/v1/tables/{namespace}/t"


def _alter(client: httpx.Client, table: str, *changes: Any) -> httpx.Response:
    return client.post(f"{table}/alter", json={"changes": list(changes)})


def test_every_action_in_one_request(alice: httpx.Client, table: str) -> None:
    point = {
        "type": "struct",
        "fields": [
            {"id": 0, "name": "x", "type": "int", "required": True},
            {"id": 0, "name": "y", "type": "decimal(5, 2)", "required": False, "doc": "up"},
        ],
    }
    tags = {"type": "list", "element-id": 0, "element": point, "element-required": False}
    by = {
        "type": "map",
        "key-id": 0,
        "key": "string",
        "value-id": 0,
        "value": "float",
        "value-required": False,
    }
    answer = _alter(
        alice,
        table,
        {"action": "add-column", "path": ["tags"], "type": tags, "doc": "labels", "position": "first"},
        {"action": "add-column", "path": ["by"], "type": by, "required": False, "position": None},
        {"action": "add-column", "path": ["gone"], "type": "timestamptz", "position": {"after": "id"}},
        {"action": "rename-column", "path": ["name"], "name": "label"},
        {"action": "drop-column", "path": ["gone"]},
        {"action": "drop-column", "path": ["never"], "if-exists": True},
        {"action": "update-type", "path": ["by", "value"], "type": "double"},
        {"action": "update-doc", "path": ["label"], "doc": "a name"},
        {"action": "make-optional", "path": ["tags", "element", "x"]},
        {"action": "move-column", "path": ["by"], "position": {"after": "tags"}},
        {"action": "set-property", "name": "owner.team", "value": "sales"},
        {"action": "remove-property", "name": "never"},
    )
    assert answer.status_code == 200, answer.text
    metadata = answer.json()["metadata"]
    schema = next(each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"])
    assert [(field["name"], field["id"], field.get("doc")) for field in schema["fields"]] == [
        ("tags", 3, "labels"),
        ("by", 7, None),
        ("id", 1, None),
        ("label", 2, "a name"),
    ]
    element = schema["fields"][0]["type"]["element"]["fields"]
    assert [(field["id"], field["required"], field["type"]) for field in element] == [
        (5, False, "int"),
        (6, False, "decimal(5, 2)"),
    ]
    assert schema["fields"][1]["type"]["value"] == "double"
    assert metadata["properties"]["owner.team"] == "sales"
    assert answer.json()["metadata-location"] and answer.headers["ETag"]
    assert alice.post(f"{table}/load").json()["metadata"] == metadata


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "change",
    [
        {"action": "drop-table"},
        {"path": ["id"]},
        {"action": "drop-column"},
        {"action": "drop-column", "path": []},
        {"action": "drop-column", "path": "id"},
        {"action": "drop-column", "path": ["id"], "cascade": True},
        {"action": "rename-column", "path": ["id"]},
        {"action": "add-column", "path": ["x"]},
        {"action": "add-column", "path": ["x"], "type": "varchar"},
        {"action": "add-column", "path": ["x"], "type": {"type": "struct"}},
        {"action": "add-column", "path": ["x"], "type": {"type": "struct", "fields": [*TWICE]}},
        {"action": "add-column", "path": ["x"], "type": 7},
        {"action": "add-column", "path": ["x"], "type": None},
        {"action": "add-column", "path": ["x"], "type": "long", "position": "last"},
        {"action": "add-column", "path": ["x"], "type": "long", "position": {"before": "id"}},
        {"action": "add-column", "path": ["x"], "type": "long", "required": True},
        {"action": "update-doc", "path": ["id"], "doc": None},
        {"action": "update-type", "path": ["id"], "type": "int"},
        {"action": "move-column", "path": ["id"]},
        {"action": "set-property", "name": "x"},
        {"action": "set-property", "name": "x", "value": 7},
    ],
    ids=str,
)
def test_malformed_change_is_one_error(alice: httpx.Client, table: str, change: dict[str, Any]) -> None:
    before = alice.post(f"{table}/load").json()
    kept = {"action": "set-property", "name": "kept", "value": "no"}
    refused(_alter(alice, table, kept, change), 400, "RequestInvalid")
    assert alice.post(f"{table}/load").json() == before


def test_nothing_and_too_much_are_refused(alice: httpx.Client, table: str) -> None:
    change = {"action": "remove-property", "name": "x"}
    for changes in ([], [change] * 1_001):
        refused(_alter(alice, table, *changes), 400, "RequestInvalid", "request")


def test_who_may_not_alter_is_told_nothing(served: Service, table: str) -> None:
    with served.client("bob") as bob:
        for column in ("id", "missing"):
            change = {"action": "drop-column", "path": [column]}
            error = refused(_alter(bob, table, change), 403, "NotAuthorized", "policy-no-match")
            assert column not in error["message"]
