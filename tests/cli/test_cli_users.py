"""`lakewarden user` and the tokens of a user, on the host and over HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from catalog.authorization.tokens import DEFAULT_TTL
from catalog.cli.main import app
from catalog.http.server import served
from tests.support.command_line import CliRunner, Result
from tests.support.host import ADMIN, Host
from tests.support.lake import policy, tables


@dataclass
class Place:
    """Where commands run: the host, or elsewhere with the address of the service and a token."""

    host: Host
    options: tuple[str, ...]

    def run(self, *arguments: str, code: int = 0) -> Result:
        """Run a command, which must end with this exit code."""
        if not self.options:
            return self.host.run(*arguments, code=code)
        result = CliRunner().invoke(app, [*self.options, *arguments])
        assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
        return result

    def token_row(self, token_id: str, user: str) -> dict[str, Any]:
        """The token, as `token list --user` shows it."""
        listed = self.host.json("token", "list", "--user", user)["tokens"]
        return next(each for each in listed if each["id"] == token_id)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    made = Host(tmp_path_factory.mktemp("users"))
    made.init()
    made.put_policies(
        policy(
            "staff reads",
            tables("sales"),
            {},
            policyItems=[{"groups": ["staff"], "accesses": [{"type": "select", "isAllowed": True}]}],
        )
    )
    return made


@pytest.fixture(scope="module", params=["host", "http"])
def place(request: pytest.FixtureRequest, host: Host) -> Iterator[Place]:
    if request.param == "host":
        yield Place(host, ())
        return
    file = Path(host.root) / "admin.token"
    file.write_text(host.run("token", "issue", ADMIN).stdout)
    file.chmod(0o600)
    with host.services() as services, served(services) as url:
        yield Place(host, ("--url", url, "--token-file", str(file)))


@pytest.mark.nightly
def test_groups_are_assigned_and_what_is_checked_goes_by_them(place: Place) -> None:
    name = f"ann-{len(place.options)}"
    asked = ("policy", "check", "table:sales.orders", "select", "--as", name)
    place.run("token", "issue", name, "--group", "guests")
    place.host.run(*asked, code=3)
    place.run("user", "assign", name, "--group", "staff", "--role", "reader")
    place.host.run(*asked)
    place.host.run(*asked, "--group", "guests", code=3)
    (listed,) = (each for each in place.host.json("user", "list")["users"] if each["name"] == name)
    assert (listed["groups"], listed["roles"], listed["disabled-at"]) == (["staff"], ["reader"], None)
    shown = next(line for line in place.run("user", "list").stdout.splitlines() if name in line)
    assert re.search(r" \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", shown)


@pytest.mark.nightly
def test_a_user_is_disabled_and_enabled(place: Place) -> None:
    name = f"bob-{len(place.options)}"
    place.run("user", "disable", name, code=1)
    place.run("user", "assign", name)
    place.run("user", "disable", name)
    (listed,) = (each for each in place.host.json("user", "list")["users"] if each["name"] == name)
    assert listed["disabled-at"] is not None
    asked = ("policy", "check", "table:sales.orders", "select", "--as", name)
    assert "disabled" in place.host.run(*asked, code=3).stderr
    place.run("user", "enable", name)
    assert "disabled" not in place.host.run(*asked, code=3).stderr


def test_a_user_is_deleted(place: Place) -> None:
    name = f"dora-{len(place.options)}"
    place.run("user", "delete", name, code=1)
    place.run("token", "issue", name, "--group", "staff")
    place.run("user", "delete", name)
    assert all(each["name"] != name for each in place.host.json("user", "list")["users"])
    place.host.run("policy", "check", "table:sales.orders", "select", "--as", name, code=3)


def test_claims_of_a_provider_are_forgotten(place: Place) -> None:
    name = f"erin-{len(place.options)}"
    place.run("user", "forget-claims", name, code=1)
    place.run("user", "assign", name, "--group", "staff")
    place.run("user", "forget-claims", name)
    (listed,) = (each for each in place.host.json("user", "list")["users"] if each["name"] == name)
    assert (listed["groups"], listed["issuer"], listed["claimed-at"]) == (["staff"], None, None)


def test_a_token_has_an_end_unless_none_is_wanted(place: Place) -> None:
    name = f"carol-{len(place.options)}"
    for options, ttl in (((), DEFAULT_TTL), (("--ttl", "2d"), timedelta(days=2)), (("--ttl", "never"), None)):
        before = datetime.now(UTC)
        place.run("token", "issue", name, *options)
        row = place.host.json("token", "list", "--user", name)["tokens"][-1]
        if ttl is None:
            assert row["expires-at"] is None
            continue
        ends = datetime.fromisoformat(row["expires-at"])
        assert before + ttl - timedelta(seconds=1) <= ends <= datetime.now(UTC) + ttl


@pytest.mark.nightly
def test_a_token_is_rotated_and_all_of_a_user_are_revoked(place: Place) -> None:
    name = f"dave-{len(place.options)}"
    place.run("token", "issue", name, "--ttl", "never")
    (old,) = place.host.json("token", "list", "--user", name)["tokens"]
    rotated = place.run("token", "rotate", old["id"], "--overlap", "1h")
    assert rotated.stdout.startswith("lw_") and len(rotated.stdout.split()) == 1
    ends = datetime.fromisoformat(place.token_row(old["id"], name)["expires-at"])
    assert ends <= datetime.now(UTC) + timedelta(hours=1)
    place.run("token", "rotate", old["id"], "--overlap", "8d", code=1)
    assert f"Revoked 2 tokens of {name}." in place.run("token", "revoke", "--user", name).stderr
    assert f"No token was revoked: {name} has none." in place.run("token", "revoke", "--user", name).stderr
    place.run("token", "rotate", old["id"], code=1)


def test_one_token_or_those_of_a_user_are_revoked_and_not_both(place: Place) -> None:
    place.run("token", "revoke", code=2)
    place.run("token", "revoke", "0d5e4a60-7f0c-4f6e-8a53-6f2f6f0f5b1e", "--user", "bob", code=2)
