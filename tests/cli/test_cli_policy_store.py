"""`lakewarden policy list|get|put|apply|remove|history`: policies in the database, for the operator."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from catalog.cli.session import os_user
from tests.support.host import ADMIN, Host
from tests.support.lake import policy, tables
from tests.support.vectors import each_row

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


@pytest.mark.nightly
def test_a_document_comes_into_force_and_goes(host: Host, file: Path, tmp_path: Path) -> None:
    host.run(*QUESTION, code=3)
    made = host.run("policy", "put", "readers", file)
    assert "policy 'sales readers'" in made.stdout and "revision 2" in made.stderr
    host.run(*QUESTION)
    assert host.json("policy", "show")["revision"] == 2
    with host.services() as services:
        assert services.policies.current().version == host.json("policy", "show")["version"]
    assert (
        "exists, at revision 2"
        in host.run("policy", "put", "readers", _document(tmp_path, "dave"), code=1).stderr
    )
    host.run("policy", "put", "readers", _document(tmp_path, "dave"), "--revision", "2")
    host.run(*QUESTION, code=3)
    assert "revision 3" in host.run("policy", "remove", "readers", code=1).stderr
    assert host.json("policy", "remove", "readers", "--revision", "3")["effect"]["removed"] == [
        "policy 'sales readers'"
    ]
    left = host.json("policy", "list")
    assert (left["revision"], [each["name"] for each in left["documents"]]) == (4, ["admin"])


def test_what_was_said_before_is_kept_byte_for_byte(host: Host, file: Path, tmp_path: Path) -> None:
    host.run("policy", "put", "readers", file)
    host.run("policy", "put", "readers", _document(tmp_path, "dave"), "--revision", "2", "--as", "carol")
    old = host.run("policy", "get", "readers", "--revision", "2")
    assert old.stdout_bytes == file.read_bytes() and "Revision 2" in old.stderr
    assert host.run("policy", "get", "readers").stdout_bytes == (tmp_path / "dave.json").read_bytes()
    listed = host.json("policy", "history", "readers")["changes"]
    assert [(each["revision"], each["author"]) for each in listed] == [(3, "carol"), (2, os_user())]
    assert host.json("policy", "history", "--limit", "1")["changes"] == listed[:1]
    assert listed[0]["sha256"] in host.run("policy", "list").stdout
    assert "readers" in host.run("policy", "history").stdout
    for missing in (("none",), ("readers", "--revision", "4"), ("readers", "--kind", "encryption")):
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
    assert host.json("policy", "list")["revision"] == 1
    changes = [each for each in host.json("audit", "show") if each["action"] == "policy.change"]
    assert {each["resource"] for each in changes} == {"policy ranger/admin"}


def test_a_dry_run_only_tells(host: Host, file: Path) -> None:
    told = host.json("policy", "put", "readers", str(file), "--dry-run")
    assert (told["dry-run"], told["effect"]["added"]) == (True, ["policy 'sales readers'"])
    assert "nothing was changed" in host.run("policy", "put", "readers", file, "--dry-run").stderr
    host.run(*QUESTION, code=3)
    assert host.json("policy", "history", "readers")["changes"] == []


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
    assert "no current user" in host.run("policy", "put", "no", denial, code=1).stderr
    assert host.json("policy", "put", "no", str(denial), "--dry-run")["lockout"] is not None
    host.run("policy", "put", "no", denial, "--force")
    assert host.json("audit", "show", "--limit", "1")[0]["reasons"][-1]["rule"] == "policy-lockout"
    host.run("policy", "check", "--as", ADMIN, "service:lakewarden", "admin", code=3)
    host.run("policy", "remove", "no", "--revision", "2")
    host.run("policy", "check", "--as", ADMIN, "service:lakewarden", "admin")


def test_policies_that_make_no_set_any_more_are_mended(host: Host, file: Path) -> None:
    """A newer release wrote what this one refuses."""
    host.break_policies()
    assert "ranger/newer" in host.run("policy", "show", code=1).stderr
    assert "ranger/newer" in host.run("policy", "put", "readers", file, code=1).stderr
    host.run("policy", "remove", "newer", "--revision", "2")
    host.run("policy", "put", "readers", file)
    host.run(*QUESTION)


def test_rules_for_encryption_are_kept_too(host: Host, tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    rule = {"name": "hr", "databases": ["hr"], "tables": ["*"], "mustEncrypt": True}
    rules.write_text(json.dumps({"rules": [rule]}))
    host.run("policy", "put", "hr", rules, code=1)
    host.run("policy", "put", "hr", rules, "--kind", "encryption")
    assert [each["kind"] for each in host.json("policy", "list")["documents"]] == ["encryption", "ranger"]
    with host.services() as services:
        assert [each.name for each in services.policies.encryption().rules] == ["hr"]


def test_files_are_applied_and_each_change_is_a_line(host: Host, tmp_path: Path) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    _document(directory, "bob")
    rules = tmp_path / "rules.json"
    rule = {"name": "hr", "databases": ["hr"], "tables": ["*"], "mustEncrypt": True}
    rules.write_text(json.dumps({"rules": [rule]}))
    told = host.run("policy", "apply", directory, "--dry-run")
    assert "policy 'sales readers'" in told.stdout and "nothing was changed" in told.stderr
    assert host.json("policy", "list")["revision"] == 1
    made = host.run("policy", "apply", directory, "--encryption-rules", rules, "--as", "carol")
    assert made.stdout.splitlines() == [
        "Added ranger/files.bob, revision 2.",
        "Added encryption/files.rules, revision 2.",
    ]
    record = host.json("audit", "show", "--limit", "1")[0]
    assert (record["action"], record["principal"]) == ("policy.change", "carol")
    assert record["resource"] == "policy ranger/files.bob, policy encryption/files.rules"
    host.run(*QUESTION)
    assert "Nothing was changed" in host.run("policy", "apply", directory).stderr
    (directory / "bob.json").write_text("{")
    assert str(directory / "bob.json") in host.run("policy", "apply", directory, code=1).stderr
    host.run(*QUESTION)
    (directory / "bob.json").unlink()
    assert host.run("policy", "apply", directory).stdout == "Removed ranger/files.bob, revision 3.\n"
    host.run(*QUESTION, code=3)
    assert len(host.json("policy", "list")["documents"]) == 2


def test_files_that_shut_everybody_out_are_refused(host: Host, tmp_path: Path) -> None:
    denial = _denial(tmp_path)
    assert "no current user" in host.run("policy", "apply", denial, code=1).stderr
    host.run("policy", "apply", denial, "--force")
    host.run("policy", "check", "--as", ADMIN, "service:lakewarden", "admin", code=3)


@each_row("words", [(), ("d", "--watch", "--dry-run"), ("--watch",)])
def test_what_is_applied_is_named(host: Host, words: tuple[str, ...]) -> None:
    assert "at least one path" in host.run("policy", "apply", *words, code=1).stderr


def test_watched_files_are_applied_when_they_change_until_it_is_interrupted(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    _document(directory, "bob")
    path = directory / "bob.json"
    content = path.read_text()
    waits: list[float] = []
    # What happens while the command waits, and at the end Ctrl-C.
    events: list[Callable[[], object]] = [
        lambda: None,
        lambda: path.write_text("{"),
        lambda: None,
        lambda: directory.rename(tmp_path / "lost"),
        lambda: None,
        lambda: (tmp_path / "lost").rename(directory),
        lambda: path.write_text(content.replace("bob", "dave")),
        lambda: path.unlink(),
    ]

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) > len(events):
            raise KeyboardInterrupt
        events[len(waits) - 1]()

    monkeypatch.setattr("catalog.cli.policy_apply.sleep", wait)
    done = host.run("policy", "apply", directory, "--watch")
    assert done.stdout.splitlines() == [
        "Added ranger/files.bob, revision 2.",
        "Changed ranger/files.bob, revision 3.",
        "Removed ranger/files.bob, revision 4.",
    ]
    assert waits == [5.0] * 9
    assert done.stderr.count("is not JSON") == 1 and done.stderr.count("cannot be read") == 1
    assert done.stderr.count("Nothing was changed.") == 2


def test_watched_files_are_applied_when_the_database_changes(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.run("policy", "put", "readers", _document(tmp_path, "bob"))
    file = _document(tmp_path, "dave")
    events = iter(
        [
            lambda: host.run("policy", "remove", "readers", "--revision", "2"),
            lambda: host.run("policy", "remove", "files.dave", "--revision", "4"),
            lambda: None,
        ]
    )

    def wait(_: float) -> None:
        try:
            next(events)()
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr("catalog.cli.policy_apply.sleep", wait)
    done = host.run("policy", "apply", file, "--watch")
    assert [line for line in done.stdout.splitlines() if "dave" in line] == [
        "Added ranger/files.dave, revision 4.",
        "Added ranger/files.dave, revision 6.",
    ]
    assert "sales readers" in done.stderr


def test_attributes_of_users_decide_conditions(host: Host, tmp_path: Path) -> None:
    granted = policy("by department", tables("sales"), {"{USER}": ["select"]})
    granted["conditions"] = [{"type": "expression", "values": ["USER.dept == 'finance'"]}]
    directory = tmp_path / "policies"
    directory.mkdir()
    (directory / "sales.json").write_text(json.dumps(granted))
    users = directory / "people.json"
    users.write_text(json.dumps({"userAttrMapping": {"bob": {"dept": "finance"}}}))
    applied = host.run("policy", "apply", directory)
    assert "Added users/files.people" in applied.stdout and "Added ranger/files.sales" in applied.stdout
    host.run(*QUESTION)
    users.write_text(json.dumps({"userAttrMapping": {"bob": {"dept": "sales"}}}))
    assert "attributes of users and groups" in host.run("policy", "apply", directory, "--dry-run").stdout
    host.run("policy", "apply", directory)
    refused = host.run(*QUESTION, code=3)
    assert "The conditions of policy 'by department' must hold" in " ".join(refused.stdout.split())
    users.unlink()
    assert "Removed users/files.people" in host.run("policy", "apply", directory).stdout
    assert "the attributes of the user 'bob' are not known" in " ".join(
        host.run(*QUESTION, code=3).stdout.split()
    )


def test_a_document_is_put_under_its_own_kind(host: Host, tmp_path: Path, file: Path) -> None:
    users = tmp_path / "users.json"
    users.write_text(json.dumps({"userAttrMapping": {}}))
    for document, kind in ((users, "ranger"), (file, "users")):
        refused = host.run("policy", "put", "people", document, "--kind", kind, code=1)
        assert "the document is of the kind" in refused.stderr
    host.run("policy", "put", "people", users, "--kind", "users")
    assert host.run("policy", "get", "people", "--kind", "users").stdout_bytes == users.read_bytes()
