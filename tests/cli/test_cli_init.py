"""`lakewarden init`: complete, private, and harmless the second time."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from catalog.authorization.tokens import TokenStore
from catalog.cli import first_use
from catalog.db.engine import open_database
from tests.support.host import ADMIN, Host


def _contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.nightly
def test_a_new_catalog_is_complete_and_private(bare: Host) -> None:
    result = bare.init()
    assert _mode(bare.data) == 0o700
    assert {_mode(bare.data / name) for name in ("keystore.json", "keystore.key", "lakewarden.db")} == {0o600}
    assert bare.settings().data_dir == bare.data
    assert bare.json("key", "masters")["master-keys"] == [{"id": "lakewarden", "version": 1, "enabled": True}]
    engine = open_database(bare.settings().database.url)
    assert TokenStore(engine).verify(result.stdout.strip(), "user").name == ADMIN
    engine.dispose()


@pytest.mark.nightly
def test_only_the_token_is_on_standard_output(bare: Host) -> None:
    result = bare.init()
    assert result.stdout.startswith("lw_") and result.stdout.count("\n") == 1
    assert result.stdout.strip() not in result.stderr


def test_a_second_run_changes_nothing_and_shows_no_token(host: Host) -> None:
    before = _contents(host.root)
    tokens = host.json("token", "list")
    result = host.init()
    assert result.stdout == ""
    assert "not an administrator" not in result.stderr
    assert _contents(host.root) == before
    assert host.json("token", "list") == tokens


def test_a_second_run_for_somebody_else_gives_him_nothing(host: Host) -> None:
    result = host.run("init", "--admin", "mallory")
    assert result.stdout == ""
    assert "mallory is not an administrator: no policy grants mallory the admin permission" in result.stderr
    host.run("policy", "check", "--as", "mallory", "service:lakewarden", "admin", code=3)


@pytest.mark.nightly
def test_what_is_missing_is_made_again(host: Host) -> None:
    (host.data / "lakewarden.db").unlink()
    keystore = (host.data / "keystore.json").read_bytes()
    assert host.init().stdout.startswith("lw_")
    assert (host.data / "keystore.json").read_bytes() == keystore


def test_a_key_file_that_is_there_opens_the_new_keystore(host: Host) -> None:
    key_file = (host.data / "keystore.key").read_bytes()
    (host.data / "keystore.json").unlink()
    host.init()
    assert (host.data / "keystore.key").read_bytes() == key_file
    assert len(host.json("key", "masters")["master-keys"]) == 1


def test_no_token_is_issued_while_the_policies_are_broken(host: Host) -> None:
    (host.data / "lakewarden.db").unlink()
    (host.root / "own.json").write_text("{")
    settings = host.config.read_text()
    host.config.write_text(f'policies = ["{host.root}/own.json"]\n{settings}')
    result = host.run("init", "--admin", ADMIN, code=1)
    assert "own.json" in result.stderr and result.stdout == ""
    assert not (host.data / "lakewarden.db").exists()


def test_a_lost_key_file_is_never_replaced(host: Host) -> None:
    (host.data / "keystore.key").unlink()
    result = host.run("init", "--admin", ADMIN, code=1)
    assert "keystore.key" in result.stderr
    assert not (host.data / "keystore.key").exists()


def test_a_policy_that_was_edited_or_removed_stays_so(host: Host) -> None:
    host.run("policy", "remove", "admin", "--revision", "1", "--force")
    host.init()
    assert host.json("policy", "show")["sources"] == []


def test_another_data_directory_than_the_settings_say_is_refused(host: Host) -> None:
    result = host.run("init", "--data-dir", host.root / "other", code=1)
    assert str(host.data) in result.stderr
    assert not (host.root / "other").exists()


def test_a_data_directory_that_cannot_be_made_is_one_sentence(bare: Host) -> None:
    (bare.root / "data").write_text("a file is in the way")
    result = bare.run("init", "--data-dir", bare.data, code=1)
    assert "cannot be created" in result.stderr and result.stderr.count("Traceback") == 0


def test_a_data_directory_of_another_user_is_one_sentence(
    bare: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as when root made the directory, and the service's user creates the catalog."""
    bare.data.mkdir(0o700)
    if os.geteuid() == 0:
        # Root can write everywhere.
        monkeypatch.setattr(first_use.os, "access", lambda *_: False)
    else:
        bare.data.chmod(0)
    monkeypatch.setenv("LAKEWARDEN_DATA_DIR", str(bare.data))
    result = bare.run("init", code=1)
    bare.data.chmod(0o700)
    assert f"{bare.data} cannot be created or written: Permission denied." in result.stderr


@pytest.mark.nightly
def test_names_that_need_quoting_survive_the_settings_file(bare: Host) -> None:
    odd = bare.root / 'a "quoted" ünïcode 𝛼'
    bare.run("init", "--admin", ADMIN, "--data-dir", odd)
    assert bare.settings().data_dir == odd


def test_the_administrator_may_use_storage_of_the_warehouse_alone(host: Host) -> None:
    inside = f"storage:{host.settings().warehouse}/sales"
    host.run("policy", "check", "--as", ADMIN, inside, "rwstorage")
    host.run("policy", "check", "--as", ADMIN, f"storage:file://{host.root}/elsewhere", "rwstorage", code=3)


_OWN = """\
data_dir = "{data}"
{policies}
[kms]
kind = "local"
{audit}
"""
_SIGNED = '[audit]\nkey_file = "{data}/audit.key"'
_LISTED = 'policies = ["{root}/policies"]'


def _own_settings(host: Host, policies: str, audit: str) -> None:
    """A settings file that was there before the catalog."""
    text = _OWN.format(data="{data}", policies=policies, audit=audit)
    host.config.write_text(text.format(data=host.data, root=host.root))


@pytest.mark.nightly
def test_settings_of_ones_own_make_a_whole_catalog(bare: Host) -> None:
    _own_settings(bare, "", _SIGNED)
    assert bare.run("init", "--admin", ADMIN).stdout.startswith("lw_")
    bare.run("policy", "check", "--as", ADMIN, "service:lakewarden", "admin")
    assert (bare.data / "audit.key").exists()


@pytest.mark.parametrize(
    ("policies", "audit", "says"),
    [
        ("", "", ["key_file = ", "audit.key"]),
        (_LISTED, _SIGNED, ["leave `policies` out", "grants ann the admin permission"]),
        (_LISTED, "", ["key_file = ", "leave `policies` out"]),
    ],
)
def test_settings_that_lack_something_are_refused_and_nothing_is_made(
    bare: Host, policies: str, audit: str, says: list[str]
) -> None:
    _own_settings(bare, policies, audit)
    (bare.root / "policies").mkdir()
    before = _contents(bare.root)
    result = bare.run("init", "--admin", ADMIN, code=1)
    message = " ".join(result.stderr.split())
    assert all(each in message for each in says), message
    assert result.stdout == ""
    assert _contents(bare.root) == before and not bare.data.exists()


@pytest.mark.nightly
def test_an_administrator_whom_ones_own_policies_name_gets_a_token(bare: Host) -> None:
    own = bare.root / "own.json"
    item = {"users": [ADMIN], "accesses": [{"type": "admin", "isAllowed": True}]}
    service = {"service": {"values": ["lakewarden"]}}
    grant = {"name": "a", "service": "lakewarden", "resources": service, "policyItems": [item]}
    own.write_text(json.dumps({"policies": [grant]}))
    _own_settings(bare, f'policies = ["{own}"]', _SIGNED)
    assert bare.run("init", "--admin", ADMIN).stdout.startswith("lw_")
    assert bare.json("policy", "show")["sources"] == ["ranger/files.own"]
    bare.run("policy", "check", "--as", ADMIN, "service:lakewarden", "admin")


def test_a_variable_that_names_other_policies_leaves_no_settings_file(
    bare: Host, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("LAKEWARDEN_POLICIES", str(tmp_path_factory.mktemp("others")))
    assert "leave `policies` out" in bare.run("init", "--data-dir", bare.data, code=1).stderr
    assert not _contents(bare.root)
