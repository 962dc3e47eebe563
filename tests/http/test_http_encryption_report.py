"""The report of tables that break encryption rules, over HTTP; and rules at the doors of `/v1`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.http_calls import encrypted_table, new_table, refused
from tests.support.rules import put_rules, rule, text_of
from tests.support.service import Service

REPORT = "/admin/v1/encryption-report"
_JSON = {"Content-Type": "application/json"}


@pytest.fixture(autouse=True)
def no_rules_left(served: Service) -> Iterator[None]:
    """Each test puts its own rules in force."""
    yield
    put_rules(served.lake)


def reported(answer: httpx.Response, namespace: str) -> dict[str, Any]:
    """What a report says of the tables of a namespace, by name."""
    assert answer.status_code == 200, answer.text
    found = {each["table"]: each for each in answer.json()["tables"]}
    return {name: each for name, each in found.items() if name.startswith(f"{namespace}.")}


def test_the_report_is_for_administrators(served: Service) -> None:
    with served.client("bob") as bob:
        refused(bob.get(REPORT), 403, "NotAuthorized")
        refused(bob.post(REPORT, content=text_of(rule("r")), headers=_JSON), 403, "NotAuthorized")


def test_tables_that_break_the_rules_in_force_are_reported(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    new_table(alice, served.prefix, namespace, "plain")
    encrypted_table(alice, namespace, "safe")
    put_rules(served.lake, rule("names", databases=[namespace], columns=["name"]))
    found = reported(alice.get(REPORT, params={"limit": 1000}), namespace)
    assert found[f"{namespace}.plain"] == {
        "table": f"{namespace}.plain",
        "standing": "breaks",
        "violations": [
            {
                "rule": "names",
                "document": "catalog:encryption/test",
                "ask": "must-encrypt",
                "column": "name",
                "found": "",
                "detail": "Column 'name' must be encrypted.",
                "remedy": "Set encryption.mechanism=envelope.",
            }
        ],
        "set": {"encryption.mechanism": "envelope"},
        "unset": [],
        "undecided": None,
        "earlier-files-in-plaintext": False,
        "problem": None,
    }
    assert found[f"{namespace}.safe"]["standing"] == "fits"


def test_a_document_is_tried_before_it_is_put_in_force(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    new_table(alice, served.prefix, namespace, "t")
    answer = alice.post(f"{REPORT}?limit=1000", content=text_of(rule("all")), headers=_JSON)
    assert reported(answer, namespace)[f"{namespace}.t"]["standing"] == "breaks"
    assert reported(alice.get(f"{REPORT}?limit=1000"), namespace)[f"{namespace}.t"]["standing"] == "fits"
    new_table(alice, served.prefix, namespace, "still-allowed")


@pytest.mark.parametrize(
    "text", ['{"rules": [{"name": "r"}]}', '{"rules": [], "rules": []}', "[]", "{}", '{"rule": []}']
)
def test_a_document_with_a_mistake_is_refused(alice: httpx.Client, text: str) -> None:
    answer = alice.post(REPORT, content=text, headers=_JSON)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["lakewarden"] in ("PolicyInvalid", "RequestInvalid")


def test_the_line_of_a_mistake_is_that_of_what_was_sent(alice: httpx.Client) -> None:
    text = json.dumps({"rules": [rule("r", minDataKeyLength=5)]}, indent=1)
    error = refused(alice.post(REPORT, content=text, headers=_JSON), 400, "PolicyInvalid")
    line = next(number for number, each in enumerate(text.split("\n"), 1) if "minDataKeyLength" in each)
    assert f"request, line {line}, rules[0].minDataKeyLength" in error["message"]


def test_a_long_report_comes_in_pages(served: Service, alice: httpx.Client, namespace: str) -> None:
    for number in range(5):
        new_table(alice, served.prefix, namespace, f"t{number}")
    seen: list[str] = []
    after: str | None = namespace
    while after is not None:
        page = alice.get(REPORT, params={"after": after, "limit": 2}).json()
        assert len(page["tables"]) <= 2
        seen += [each["table"] for each in page["tables"]]
        after = page["next"]
    assert [each for each in seen if each.startswith(namespace)] == [f"{namespace}.t{n}" for n in range(5)]
    assert seen == sorted(set(seen))


def test_a_table_that_cannot_be_loaded_is_reported(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    location = new_table(alice, served.prefix, namespace, "t").json()["metadata-location"]
    Path(location.removeprefix("file://")).unlink()
    found = reported(alice.get(REPORT, params={"limit": 1000}), namespace)[f"{namespace}.t"]
    assert (found["standing"], found["violations"]) == ("unknown", []) and found["problem"]


def test_a_rule_is_told_to_rest_clients_as_an_error_of_its_own(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    put_rules(served.lake, rule("names", databases=[namespace], columns=["name"]))
    for staged in (False, True):
        answer = new_table(alice, served.prefix, namespace, "t", **{"stage-create": staged})
        error = refused(answer, 403, "EncryptionPolicyViolation", "must-encrypt")
        assert "Encryption rule 'names': Column 'name' must be encrypted." in error["message"]
    answer = encrypted_table(alice, namespace)
    assert answer.status_code == 200, answer.text
