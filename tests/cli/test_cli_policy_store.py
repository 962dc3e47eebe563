"""`lakewarden policy list|get|put|remove|history`: policies in the database, for the operator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catalog.cli.session import os_user
from tests.support.host import ADMIN, Host
from tests.support.lake import policy, tables

QUESTION = ("policy", "check", "--as", "bob", "table:sales.orders", "select")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A document that lets Bob read."""
    return _document(tmp_path, "bob")


def _document(directory: Path, user: str, name: str = "sales readers") -> Path:
    path = directory / f"{user}.json"
    granted = policy(name, tables("sales"), {user: ["select"]}, description="gr\u00fcn \u009b31m")
    path.write_text(json.dumps({"policies": [granted]}, ensure_ascii=False, indent=1), "utf-8")
    return path


def _denial(directory: Path) -> Path:
    """A document that lets the administrator do nothing with the service."""
    item = {"users": [ADMIN], "accesses": [{"type": "admin", "isAllowed": True}]}
    path = directory / "denial.json"
    path.write_text(json.dumps({"policies": [policy("no", {"service": ["*"]}, {}, denyPolicyItems=[item])]}))
    return path


def test_a_document_comes_into_force_and_goes(host: Host, file: Path, tmp_path: Path) -> None:
    host.run(*QUESTION, code=3)
    made = host.run("policy", "put", "readers", file)
    assert "policy 'sales readers'" in made.stdout and "revision 1" in made.stderr
    host.run(*QUESTION)
    assert host.json("policy", "show")["revision"] == 1
    with host.services() as services:
        assert services.policies.current().version == host.json("policy", "show")["version"]
    assert (
        "exists, at revision 1"
        in host.run("policy", "put", "readers", _document(tmp_path, "dave"), code=1).stderr
    )
    host.run("policy", "put", "readers", _document(tmp_path, "dave"), "--revision", "1")
    host.run(*QUESTION, code=3)
    assert "revision 2" in host.run("policy", "remove", "readers", code=1).stderr
    assert host.json("policy", "remove", "readers", "--revision", "2")["effect"]["removed"] == [
        "policy 'sales readers'"
    ]
    assert host.json("policy", "list") == {"revision": 3, "documents": []}


def test_what_was_said_before_is_kept_byte_for_byte(host: Host, file: Path, tmp_path: Path) -> None:
    host.run("policy", "put", "readers", file)
    host.run("policy", "put", "readers", _document(tmp_path, "dave"), "--revision", "1", "--as", "carol")
    old = host.run("policy", "get", "readers", "--revision", "1")
    assert old.stdout_bytes == file.read_bytes() and "Revision 1" in old.stderr
    assert host.run("policy", "get", "readers").stdout_bytes == (tmp_path / "dave.json").read_bytes()
    listed = host.json("policy", "history", "readers")["changes"]
    assert [(each["revision"], each["author"]) for each in listed] == [(2, "carol"), (1, os_user())]
    assert host.json("policy", "history", "--limit", "1")["changes"] == listed[:1]
    assert listed[0]["sha256"] in host.run("policy", "list").stdout
    assert "readers" in host.run("policy", "history").stdout
    for missing in (("none",), ("readers", "--revision", "3"), ("readers", "--kind", "encryption")):
        host.run("policy", "get", *missing, code=1)


def test_a_mistake_changes_nothing_and_is_placed(host: Host, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"policies": [\n{"name": "x", "resuorces": {}}]}')
    for more in ((), ("--dry-run",)):
        assert "catalog:ranger/bad, line 2" in host.run("policy", "put", "bad", bad, *more, code=1).stderr
    host.run("policy", "put", "bad", tmp_path / "none.json", code=1)
    host.run("policy", "put", "bad", tmp_path, code=1)
    host.run("policy", "put", "not a name", bad, code=1)
    host.run("policy", "put", "bad", bad, "--kind", "other", code=2)
    assert host.json("policy", "list")["revision"] == 0
    assert not [each for each in host.json("audit", "show") if each["action"] == "policy.change"]


def test_a_dry_run_only_tells(host: Host, file: Path) -> None:
    told = host.json("policy", "put", "readers", str(file), "--dry-run")
    assert (told["dry-run"], told["effect"]["added"]) == (True, ["policy 'sales readers'"])
    assert "nothing was changed" in host.run("policy", "put", "readers", file, "--dry-run").stderr
    host.run(*QUESTION, code=3)
    assert host.json("policy", "history")["changes"] == []


def test_a_change_is_on_record_before_it_is_made(host: Host, file: Path) -> None:
    host.run("policy", "put", "readers", file, "--as", "carol")
    record, begun = host.json("audit", "show", "--limit", "2")
    for each in (record, begun):
        assert (each["action"], each["principal"]) == ("policy.change", "carol")
        assert each["resource"] == "policy ranger/readers"
        assert [why["rule"] for why in each["reasons"]] == ["operator", "policy-effect", "policy-change"]
    assert (record["allowed"], begun["begun"]) == (True, True)
    assert host.json("policy", "history")["changes"][0]["request-id"] == record["request_id"]
    assert "already has this content" in host.run("policy", "put", "readers", file).stderr
    assert host.json("audit", "show", "--limit", "1")[0] == record


def test_the_last_administrator_is_not_shut_out_unless_it_is_forced_and_comes_back(
    host: Host, tmp_path: Path
) -> None:
    denial = _denial(tmp_path)
    assert "no user with a token" in host.run("policy", "put", "no", denial, code=1).stderr
    assert host.json("policy", "put", "no", str(denial), "--dry-run")["lockout"] is not None
    host.run("policy", "put", "no", denial, "--force")
    assert host.json("audit", "show", "--limit", "1")[0]["reasons"][-1]["rule"] == "policy-lockout"
    host.run("policy", "check", "--as", ADMIN, "service:lakewarden", "admin", code=3)
    host.run("policy", "remove", "no", "--revision", "1")
    host.run("policy", "check", "--as", ADMIN, "service:lakewarden", "admin")


def test_policies_that_make_no_set_any_more_are_mended(host: Host, file: Path) -> None:
    host.run("policy", "put", "readers", file)
    (host.data / "policies" / "more.json").write_bytes(file.read_bytes())
    assert "sales readers" in host.run("policy", "show", code=1).stderr
    host.run("policy", "remove", "readers", "--revision", "1")
    host.run(*QUESTION)


def test_rules_for_encryption_are_kept_too(host: Host, tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    rule = {"name": "hr", "databases": ["hr"], "tables": ["*"], "mustEncrypt": True}
    rules.write_text(json.dumps({"rules": [rule]}))
    host.run("policy", "put", "hr", rules, code=1)
    host.run("policy", "put", "hr", rules, "--kind", "encryption")
    assert [each["kind"] for each in host.json("policy", "list")["documents"]] == ["encryption"]
    with host.services() as services:
        assert [each.name for each in services.policies.encryption().rules] == ["hr"]
