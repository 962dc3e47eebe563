"""`lakewarden policy import`: policies of Ranger, with a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.host import Host
from tests.support.lake import policy, tables

QUESTION = ("policy", "check", "--as", "bob", "table:sales.orders", "select")
Json = dict[str, Any]

READERS = policy("readers", tables("sales"), {"bob": ["select"]})
ODD_GRANT = policy("odd grant", tables("sales"), {"bob": ["sleep"]})
ODD_DENIAL = policy(
    "odd denial", tables("hr"), {}, denyPolicyItems=[{"users": ["eve"], "accesses": [{"type": "x"}]}]
)
UNKNOWN = policy("unknown", tables("hr"), {}) | {"denyItems": []}


@pytest.fixture
def export(tmp_path: Path) -> Path:
    return tmp_path / "export.json"


def write(file: Path, *policies: Json, **more: Any) -> Path:
    file.write_text(json.dumps({"policies": policies, "roles": [], **more}))
    return file


@pytest.mark.nightly
def test_what_is_taken_comes_into_force(host: Host, export: Path) -> None:
    write(export, READERS, ODD_DENIAL)
    host.run(*QUESTION, code=3)
    made = host.run("policy", "import", export)
    assert "odd denial" in made.stdout and "It restricts every access type." in made.stdout
    assert "1 taken, 1 taken with a difference, 0 refused, 0 blocked." in made.stderr
    host.run(*QUESTION)
    assert "Nothing was changed" in host.run("policy", "import", export).stderr
    write(export, ODD_DENIAL)
    assert host.json("policy", "import", str(export))["change"]["effect"]["removed"] == ["policy 'readers'"]
    host.run(*QUESTION, code=3)


def test_a_refused_policy_refuses_all_of_them_unless_it_can_be_left_out(host: Host, export: Path) -> None:
    write(export, READERS, ODD_GRANT)
    refused = host.run("policy", "import", export, code=1)
    assert "odd grant" in refused.stdout and "--partial" in refused.stderr
    host.run(*QUESTION, code=3)
    host.run("policy", "import", export, "--partial")
    host.run(*QUESTION)


def test_a_blocked_policy_blocks_all_of_them_always(host: Host, export: Path) -> None:
    write(export, READERS, UNKNOWN)
    blocked = host.run("policy", "import", export, "--partial", "--force", code=1)
    assert "denyItems: the field is unknown" in blocked.stdout
    host.run(*QUESTION, code=3)
    assert host.json("policy", "show")["revision"] == 1


def test_a_report_changes_nothing_and_needs_no_catalog(host: Host, export: Path) -> None:
    write(export, READERS, ODD_GRANT)
    found = host.json("policy", "import", str(export), "--report", "--partial")
    assert found["change"] is None
    assert [(each["name"], each["outcome"]) for each in found["report"]] == [
        ("readers", "taken"),
        ("odd grant", "refused"),
    ]
    assert found["report"][1]["place"] == "policies[1]" and found["report"][1]["reasons"]
    host.run("policy", "import", export, "--report", code=1)
    for ignored in (["--dry-run"], ["--force"], ["--as", "bob"]):
        host.run("policy", "import", export, "--report", *ignored, code=2)
    assert host.json("policy", "import", str(export), "--partial", "--dry-run")["change"]["dry-run"]
    host.run(*QUESTION, code=3)


def test_documents_of_one_service_are_given_together(host: Host, export: Path, tmp_path: Path) -> None:
    by_role = READERS | {"policyItems": [{"roles": ["r"], "accesses": [{"type": "select"}]}]}
    export.write_text(json.dumps({"policies": [by_role]}))
    roles, tags = tmp_path / "roles.json", tmp_path / "tags.json"
    roles.write_text(
        json.dumps({"rangerRoles": [{"name": "r", "users": [{"name": "bob"}]}], "roleVersion": 1})
    )
    tags.write_text(json.dumps({"op": "replace", "tags": {}, "serviceResources": [], "resourceToTagIds": {}}))
    host.run("policy", "import", export, roles, tags, "--name", "prod")
    host.run(*QUESTION)
    listed = [(each["kind"], each["name"]) for each in host.json("policy", "list")["documents"]]
    assert ("ranger", "prod") in listed and ("tags", "prod") in listed


def test_a_file_that_cannot_be_read_is_named(host: Host, tmp_path: Path) -> None:
    assert "none.json cannot be read" in host.run("policy", "import", tmp_path / "none.json", code=1).stderr
    (tmp_path / "x.json").write_text("{")
    assert "not JSON" in host.run("policy", "import", tmp_path / "x.json", code=1).stdout
