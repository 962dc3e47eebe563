"""What a user is told of the columns of a table: encryption, masks and tags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.planning.test_plan_restrictions import filtering, masking
from tests.support.http_calls import encrypted_table, new_table, refused
from tests.support.lake import CAROL, standard_policies
from tests.support.rules import put_rules, rule, tag
from tests.support.service import Service

_NESTED = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": True},
        {"id": 2, "name": "name", "type": "string", "required": False},
        {
            "id": 3,
            "name": "people",
            "required": False,
            "type": {
                "type": "list",
                "element-id": 4,
                "element-required": False,
                "element": {
                    "type": "struct",
                    "fields": [{"id": 5, "name": "ssn", "type": "string", "required": False}],
                },
            },
        },
    ],
}


@pytest.fixture(autouse=True)
def no_rules_left(served: Service) -> Iterator[None]:
    """Each test puts its own rules in force."""
    yield
    put_rules(served.lake)
    served.lake.set_policies(standard_policies())


def _columns(client: httpx.Client, namespace: str, table: str = "t") -> dict[str, dict[str, Any]]:
    answer = client.get(f"/admin/v1/tables/{namespace}/{table}/columns")
    assert answer.status_code == 200, answer.text
    return {each.pop("name"): each for each in answer.json()["columns"]}


def test_columns_are_listed_with_their_encryption_and_tags(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    assert new_table(alice, served.prefix, namespace, schema=_NESTED).status_code == 200
    encrypted_table(alice, namespace, "all")
    encrypted_table(alice, namespace, "one", **{"encryption.columns": "lakewarden:name"})
    tagging = (tag("person", "people.ssn", "id", databases=[namespace]), tag("name", "n?me"))
    put_rules(served.lake, rule("r", databases=["nowhere"], tags=["person", "name"]), tags=tagging)
    shown = {"encrypted": False, "shown": True}
    assert _columns(alice, namespace) == {
        "id": {"type": "long", "required": True, "tags": ["person"], **shown},
        "name": {"type": "string", "required": False, "tags": ["name"], **shown},
        "people.element.ssn": {"type": "string", "required": False, "tags": ["person"], **shown},
    }
    encrypted = {table: _columns(alice, namespace, table) for table in ("all", "one")}
    assert {table: [each["encrypted"] for each in found.values()] for table, found in encrypted.items()} == {
        "all": [True, True],
        "one": [False, True],
    }


def test_masked_columns_and_filtered_rows_are_not_shown_and_tags_need_alter(
    served: Service, alice: httpx.Client
) -> None:
    alice.post(f"{served.prefix}/namespaces", json={"namespace": ["db"]})
    new_table(alice, served.prefix, "db", "columns")
    lake = served.lake
    put_rules(lake, rule("r", databases=["nowhere"], tags=["name"]), tags=(tag("name", "name"),))
    with served.client(CAROL) as carol, served.client("mallory") as mallory:
        lake.set_policies([*standard_policies(), masking("name", "MASK_HASH")])
        masked = _columns(carol, "db", "columns")
        lake.set_policies([*standard_policies(), filtering("id > 1")])
        filtered = _columns(carol, "db", "columns")
        refused(mallory.get("/admin/v1/tables/db/columns/columns"), 403, "NotAuthorized")
    assert {name: (each["shown"], each["tags"]) for name, each in masked.items()} == {
        "id": (True, None),
        "name": (False, None),
    }
    assert [each["shown"] for each in filtered.values()] == [False, False]
