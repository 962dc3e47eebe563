"""Commands of the operator: database, master keys, tokens, audit; they work although policies are broken."""

from __future__ import annotations

import sqlite3
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from catalog.authorization.tokens import TokenStore
from catalog.base.identifiers import table_name
from catalog.cli.session import calling, open_state, os_user
from catalog.db.engine import open_database, write
from catalog.kms_server.store import Denial, KeySpec
from policy.errors import NotAuthenticated
from tests.support.host import ADMIN, Host


def _principal(host: Host, token: str, kind: str = "user") -> object:
    with open_state(host.settings()) as engine:
        return TokenStore(engine).verify(token, kind)


@pytest.mark.nightly
def test_a_database_is_created_checked_and_cleaned_up(bare: Host) -> None:
    bare.config.write_text(f'data_dir = "{bare.data}"\n')
    assert "lakewarden db upgrade" in bare.run("db", "check", code=1).stderr
    bare.run("db", "upgrade")
    bare.run("db", "upgrade")
    bare.run("db", "check")


def test_clean_up_deletes_what_expired_writes_left(host: Host) -> None:
    host.make_table()
    with host.services() as services:
        session = services.writes.begin(calling(ADMIN), table_name(["sales"], "orders"))
        services.storage.create(session.prefix.child("left.parquet"), b"half a file")
        assert "cleaned up: 0" in host.run("db", "clean-up").stderr
        with write(services.engine) as connection:
            connection.execute(text("UPDATE lw_write SET expires_ms = 1"))
        assert "cleaned up: 1" in host.run("db", "clean-up").stderr
        assert not services.storage.exists(session.prefix.child("left.parquet"))


def test_a_token_is_shown_once_and_speaks_for_its_principal(host: Host) -> None:
    issued = host.run("token", "issue", "bob", "--group", "staff", "--role", "reader")
    token = issued.stdout.strip()
    principal = _principal(host, token)
    assert (principal.name, principal.groups, principal.roles) == ("bob", {"staff"}, {"reader"})
    for command in (
        ("token", "list"),
        ("token", "list", "--json"),
        ("audit", "show"),
        ("audit", "show", "--json"),
    ):
        result = host.run(*command)
        assert token[36:] not in result.stdout + result.stderr
    assert token not in issued.stderr


def test_engine_tokens_and_times_of_expiry(host: Host) -> None:
    issued = host.json("token", "issue", "spark", "--engine", "--ttl", "12h")
    assert _principal(host, issued["token"], "engine").name == "spark"
    with pytest.raises(NotAuthenticated):
        _principal(host, issued["token"])
    left = datetime.fromisoformat(issued["expires-at"]) - datetime.now(UTC)
    assert timedelta(hours=11) < left <= timedelta(hours=12)


def test_a_revoked_token_is_refused_and_listed_as_such(host: Host) -> None:
    issued = host.json("token", "issue", "bob")
    host.run("token", "revoke", issued["id"])
    with pytest.raises(NotAuthenticated):
        _principal(host, issued["token"])
    listed = {token["id"]: token for token in host.json("token", "list")["tokens"]}
    assert listed[issued["id"]]["revoked-at"] is not None


def test_a_token_given_in_place_of_its_id_is_not_repeated(host: Host) -> None:
    token = host.run("token", "issue", "bob").stdout.strip()
    result = host.run("token", "revoke", token, code=1)
    trail = host.run("audit", "show", "--json")
    assert token not in result.stdout + result.stderr + trail.stdout


def test_master_keys_are_created_disabled_and_enabled(host: Host) -> None:
    host.run("key", "create-master", "pii")
    host.run("key", "disable-master", "pii")
    assert {"id": "pii", "version": 1, "enabled": False} in host.json("key", "masters")["master-keys"]
    host.run("key", "enable-master", "pii")
    assert {"id": "pii", "version": 1, "enabled": True} in host.json("key", "masters")["master-keys"]
    assert "pii" in host.run("key", "masters").stdout
    assert "already" in host.run("key", "create-master", "pii", code=1).stderr


def test_keys_of_the_kms_endpoint_are_listed_disabled_and_enabled(host: Host) -> None:
    with host.services() as services:
        services.kms_endpoint.create(calling(ADMIN), KeySpec("pii", 256, None, {}, Denial.ERROR))
    key = {"name": "pii", "bits": 256, "versions": 1, "state": "active", "master-key-id": "lakewarden"}
    assert host.json("kms-endpoint", "list", "--as", ADMIN)["keys"] == [key]
    assert host.json("kms-endpoint", "disable", "pii", "--as", ADMIN)["keys"] == [key | {"state": "disabled"}]
    assert "disabled" in host.run("kms-endpoint", "list", "--as", ADMIN).stdout
    assert host.json("kms-endpoint", "enable", "pii", "--as", ADMIN)["keys"] == [key]
    assert "is not authorized" in host.run("kms-endpoint", "disable", "pii", "--as", "nobody", code=1).stderr
    assert "does not exist" in host.run("kms-endpoint", "disable", "none", "--as", ADMIN, code=1).stderr


def test_operators_act_and_are_recorded_although_the_policies_are_broken(host: Host) -> None:
    host.break_policies()
    host.run("token", "issue", "bob")
    host.run("key", "disable-master", "lakewarden", "--as", "carol")
    latest = host.json("audit", "show", "--limit", "4")
    assert [(record["action"], record["principal"], record["begun"]) for record in latest] == [
        (action, user, begun)
        for action, user in (("master-key.disable", "carol"), ("token.issue", os_user()))
        for begun in (False, True)
    ]
    assert all(record["request_id"].startswith(f"cli-{os_user()}-") for record in latest)
    assert "ranger/newer" in host.run("policy", "show", code=1).stderr


def test_the_environment_has_no_say_in_who_ran_a_command(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(variable, "mallory")
    host.run("token", "issue", "bob")
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    assert host.json("audit", "show", "--limit", "1")[0]["principal"] == user


def test_nothing_happens_without_a_record(host: Host) -> None:
    database = sqlite3.connect(host.data / "lakewarden.db")
    database.execute(
        "CREATE TRIGGER no_records BEFORE INSERT ON lw_audit BEGIN SELECT RAISE(ABORT, 'full'); END"
    )
    database.commit()
    database.close()
    before = host.json("token", "list")
    for command in (
        ("token", "issue", "bob"),
        ("key", "disable-master", "lakewarden"),
        ("key", "create-master", "x"),
    ):
        host.run(*command, code=1)
    assert host.json("token", "list") == before
    assert host.json("key", "masters")["master-keys"] == [{"id": "lakewarden", "version": 1, "enabled": True}]


def test_the_trail_is_filtered_by_user_table_and_time(host: Host) -> None:
    host.make_table()
    host.make_table("sales.items")
    records = host.json("audit", "show", "--table", "sales.items", "--user", ADMIN, "--since", "1h")
    assert records and {record["resource"] for record in records} == {"sales.items"}
    assert host.json("audit", "show", "--since", "2999-01-01T00:00") == []
    assert len(host.json("audit", "show", "--limit", "1")) == 1
    assert "sales.items" in host.run("audit", "show", "--table", "sales.items").stdout


def test_an_edited_trail_is_found(host: Host) -> None:
    host.run("audit", "verify")
    assert host.json("audit", "verify")["problems"] == []
    engine = open_database(host.settings().database.url)
    with write(engine) as connection:
        connection.execute(text("UPDATE lw_audit SET principal = 'nobody'"))
    engine.dispose()
    assert "edited" in host.run("audit", "verify", code=1).stdout
    assert host.json("audit", "verify", code=1)["problems"][0]["kind"] == "edited"
