"""`lakewarden key`: what an operator does in the life of a key, and what is asked before it is for good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from catalog.cli.main import app
from catalog.db.engine import write
from catalog.db.schema import lw_key_invocations, lw_pek
from catalog.kms.local import LocalKms
from catalog.kms.root_key import KeyFile
from catalog.settings.kms_options import LocalKmsOptions
from catalog.writes.new_files import FileCommit
from tests.support.command_line import CliRunner
from tests.support.host import ADMIN, Host
from tests.support.lake import Lake
from tests.support.tables import Engine, named

TABLE = "db.vault"
_AS_ADMIN = ("--as", ADMIN)


@pytest.fixture
def vault(host: Host) -> Host:
    """A host with an encrypted table that has a file."""
    host.make_table(TABLE, **{"encryption.mechanism": "envelope"})
    append(host)
    return host


def append(host: Host) -> None:
    """Append a file to the table."""
    with host.services() as services:
        assert isinstance(services.kms, LocalKms)
        engine = Engine.begin(Lake(host.root, host.settings(), services, services.kms), named("vault"), ADMIN)
        engine.commit(FileCommit("append", (engine.file(),)), ADMIN)


def keys(host: Host) -> list[Any]:
    found = host.json("key", "list", TABLE, *_AS_ADMIN)["keys"]
    return [(key["version"], key["state"], key["in-force"]) for key in found]


@pytest.mark.nightly
def test_a_key_from_its_first_version_to_the_end_of_it(vault: Host) -> None:
    """As docs/keys.md tells it."""
    (key,) = vault.json("key", "list", TABLE, *_AS_ADMIN)["keys"]
    (rotated,) = vault.json("key", "rotate", TABLE, *_AS_ADMIN)["keys"]
    assert rotated == {
        "id": key["id"],
        "master-key-id": "lakewarden",
        "version": 2,
        "previous-version": 1,
    }
    append(vault)
    (done,) = vault.json("key", "rewrap", TABLE, *_AS_ADMIN)["branches"]
    assert (done["branch"], done["manifests"], done["files"]) == ("main", 1, 1)
    shown = vault.json("key", "show", TABLE, key["id"], *_AS_ADMIN)["keys"]
    assert [len(each["needed-by"]) for each in shown] == [2, 2]
    one = ("key", "destroy", TABLE, "--key", key["id"], "--version", "1", "--confirm", TABLE, *_AS_ADMIN)
    refused = vault.run(*one, code=1).stderr
    assert "2 retained snapshots" in refused and str(shown[0]["needed-by"][0]["snapshot-id"]) in refused
    with vault.catalog() as catalog:
        table = catalog.load_table(TABLE)
        old = [each.snapshot_id for each in table.metadata.snapshots][:-1]
        table.maintenance.expire_snapshots().by_ids(old).commit()
    vault.run(*one)
    assert keys(vault) == [(1, "disabled", False), (2, "active", True)]
    _end_waiting(vault)
    assert "Keys destroyed: 1." in vault.run("db", "clean-up").stderr
    assert keys(vault) == [(1, "destroyed", False), (2, "active", True)]


def _end_waiting(host: Host) -> None:
    with host.services() as services, write(services.engine) as connection:
        waiting = lw_pek.c.destroy_after_ms.is_not(None)
        connection.execute(update(lw_pek).where(waiting).values(destroy_after_ms=1))


@pytest.mark.nightly
def test_tables_are_shown_to_people(vault: Host) -> None:
    (key,) = vault.json("key", "list", TABLE, *_AS_ADMIN)["keys"]
    assert "active" in vault.run("key", "list", TABLE, *_AS_ADMIN).stdout
    shown = vault.run("key", "show", TABLE, key["id"], *_AS_ADMIN).stdout
    assert "branch main" in shown and "yes" in shown
    assert "previous-version" in vault.run("key", "rotate", TABLE, *_AS_ADMIN).stdout
    assert "main" in vault.run("key", "rewrap", TABLE, *_AS_ADMIN).stdout


@pytest.mark.nightly
def test_a_key_that_has_encrypted_half_as_often_as_it_may_is_told(vault: Host) -> None:
    (key,) = vault.json("key", "list", TABLE, *_AS_ADMIN)["keys"]
    assert key["invocations"] > 0
    with vault.services() as services, write(services.engine) as connection:
        connection.execute(update(lw_key_invocations).values(counted=2**31))
    for command in (("list", TABLE), ("show", TABLE, key["id"])):
        said = " ".join(vault.run("key", *command, *_AS_ADMIN).stderr.split())
        assert f"{key['id']} version 1 has encrypted 2,147,483,648 times" in said
    assert "2147483648" in vault.run("key", "list", TABLE, *_AS_ADMIN).stdout.replace("\n", "")
    vault.run("key", "rotate", TABLE, *_AS_ADMIN)
    assert "has encrypted" not in vault.run("key", "list", TABLE, *_AS_ADMIN).stderr


@pytest.mark.nightly
def test_keys_are_disabled_and_enabled(vault: Host) -> None:
    vault.run("key", "disable", TABLE, *_AS_ADMIN)
    assert keys(vault) == [(1, "disabled", True)]
    vault.run("key", "rotate", TABLE, *_AS_ADMIN, code=1)
    vault.run("key", "enable", TABLE, *_AS_ADMIN)
    assert keys(vault) == [(1, "active", True)]


@pytest.mark.nightly
@pytest.mark.parametrize(("typed", "code", "state"), [(TABLE, 0, "disabled"), ("yes", 1, "active")])
def test_destroying_keys_asks_for_the_name_of_the_table(
    vault: Host, typed: str, code: int, state: str
) -> None:
    words = ["--config", str(vault.config), "key", "destroy", TABLE, *_AS_ADMIN]
    result = CliRunner().invoke(app, words, input=f"{typed}\n")
    assert result.exit_code == code
    assert "cannot undo it after the waiting time" in result.stderr and f"Type {TABLE}" in result.stderr
    assert keys(vault) == [(1, state, True)]
    vault.run("key", "enable", TABLE, *_AS_ADMIN)
    assert keys(vault) == [(1, "active", True)]


@pytest.mark.nightly
def test_the_keys_of_a_dropped_table_are_called_by_its_uuid(vault: Host) -> None:
    with vault.catalog() as catalog:
        uuid = str(catalog.load_table(TABLE).metadata.table_uuid)
    (key,) = vault.json("key", "list", TABLE, *_AS_ADMIN)["keys"]
    vault.run("key", "list", uuid, *_AS_ADMIN, code=1)
    vault.run("table", "drop", TABLE, *_AS_ADMIN)
    assert vault.json("key", "list", uuid, *_AS_ADMIN)["keys"] == [key]
    (shown,) = vault.json("key", "show", uuid, key["id"], *_AS_ADMIN)["keys"]
    assert shown["needed-by"] == []
    vault.run("key", "list", uuid, "--as", "mallory", code=1)
    words = ["--config", str(vault.config), "key", "destroy", uuid, *_AS_ADMIN]
    result = CliRunner().invoke(app, words, input=f"{uuid}\n")
    assert result.exit_code == 0 and f"Type {uuid}" in result.stderr
    _end_waiting(vault)
    assert "Keys destroyed: 1." in vault.run("db", "clean-up").stderr
    assert [each["state"] for each in vault.json("key", "list", uuid, *_AS_ADMIN)["keys"]] == ["destroyed"]


def test_a_key_is_made_ahead(vault: Host) -> None:
    vault.run("key", "create-master", "pii")
    made = vault.json("key", "create", TABLE, "pii", *_AS_ADMIN)["keys"]
    assert sorted(key["master-key-id"] for key in made) == ["lakewarden", "pii"]


def test_a_master_key_is_rotated_and_what_it_wraps_rewrapped(vault: Host) -> None:
    vault.run("key", "rotate-master", "lakewarden")
    assert [each["version"] for each in vault.json("key", "masters")["master-keys"]] == [2]
    assert vault.json("key", "rewrap-master", "lakewarden") == {"rewrapped": 1, "failed": []}
    append(vault)
    actions = [each["action"] for each in vault.json("audit", "show")]
    assert {"master-key.rotate", "master-key.rewrap"} <= set(actions)


def test_a_key_that_cannot_be_rewrapped_is_told(vault: Host) -> None:
    with vault.services() as services, write(services.engine) as connection:
        connection.execute(update(lw_pek).values(wrapped=b"garbage"))
    told = vault.json("key", "rewrap-master", "lakewarden", code=3)
    assert told["rewrapped"] == 0 and len(told["failed"]) == 1
    assert "garbage" not in str(told)
    assert told["failed"][0]["id"] in vault.run("key", "rewrap-master", "lakewarden", code=3).stdout


@pytest.mark.nightly
def test_the_policies_decide_about_the_keys_of_tables(vault: Host) -> None:
    (key,) = vault.json("key", "list", TABLE, *_AS_ADMIN)["keys"]
    for command in (
        ("list", TABLE),
        ("show", TABLE, key["id"]),
        ("create", TABLE, "lakewarden"),
        ("rotate", TABLE),
        ("rewrap", TABLE),
        ("disable", TABLE),
        ("enable", TABLE),
        ("destroy", TABLE, "--confirm", TABLE),
    ):
        refused = vault.run("key", *command, "--as", "mallory", code=1).stderr
        assert "mallory is not authorized" in refused, command
    assert keys(vault) == [(1, "active", True)]


@pytest.mark.nightly
def test_keys_move_to_another_kms_as_docs_kms_md_tells_it(vault: Host, tmp_path: Path) -> None:
    options = LocalKmsOptions(keystore=tmp_path / "second.json", key_file=tmp_path / "second.key")
    assert options.key_file is not None
    second = LocalKms.create(options.keystore, KeyFile.create(options.key_file))
    second.create_master_key("next")
    section = f'\n[other_kms.second]\nkind = "local"\noptions = {{ keystore = "{options.keystore}", '
    with vault.config.open("a") as file:
        file.write(f'{section}key_file = "{options.key_file}" }}\n')
    unused = ("--kms-key", "lakewarden", *_AS_ADMIN)
    assert vault.json("key", "needs", "local", *unused, code=3)["needs"] == [
        {"by": "table", "name": TABLE, "master-key-id": "lakewarden", "keys": 1},
        {"by": "master-key-id", "name": "lakewarden", "master-key-id": "lakewarden", "keys": 0},
    ]
    assign = ("key", "assign-master", "lakewarden", "--kms", "second", *_AS_ADMIN)
    assert "lakewarden" in vault.run(*assign, code=1).stderr, "the second KMS has no key of that id"
    assert "next in the KMS second" in vault.run(*assign, "--kms-key", "next").stderr
    assert vault.json("key", "move-master", "lakewarden", *_AS_ADMIN) == {"moved": 1, "failed": []}
    assert vault.json("key", "needs", "local", *unused)["needs"] == []
    assert vault.json("key", "kms-keys", *_AS_ADMIN)["master-keys"] == [
        {"id": "lakewarden", "kms": "second", "kms-key-id": "next"}
    ]
    vault.run("key", "disable-master", "lakewarden")
    append(vault)
    vault.run("key", "move-master", "lakewarden", "--as", "bob", code=1)
