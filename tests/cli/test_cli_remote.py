"""`lakewarden --url URL --token-file FILE`: commands as requests to a service, with the user's own token."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from catalog.cli.main import app
from catalog.http.server import served
from tests.support.command_line import CliRunner, Result
from tests.support.host import ADMIN, Host
from tests.support.lake import policy, tables
from tests.support.lossy_proxy import lossy_proxy

ROOT = Path(__file__).parents[2]
TABLE = "db.vault"
_AS_ADMIN = ("--as", ADMIN)


@dataclass
class Laptop:
    """A place with a service's address and a user's token, and without settings."""

    host: Host
    url: str

    def token_file(self, user: str) -> Path:
        """A private file with a token of a user."""
        file = self.host.root / f"{user}.token"
        if not file.exists():
            file.write_text(self.host.run("token", "issue", user).stdout)
            file.chmod(0o600)
        return file

    def run(self, *arguments: str, user: str = ADMIN, code: int = 0) -> Result:
        """Run a command as a user, which must end with this exit code."""
        words = ["--url", self.url, "--token-file", str(self.token_file(user)), *arguments]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
        return result

    def json(self, *arguments: str, user: str = ADMIN, code: int = 0) -> Any:
        """What a command prints with `--json`."""
        return json.loads(self.run(*arguments, "--json", user=user, code=code).stdout)


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    host = Host(tmp_path_factory.mktemp("remote"))
    host.init()
    host.make_table(TABLE, **{"encryption.mechanism": "envelope"})
    with host.services() as services, served(services) as url:
        yield Laptop(host, url)


@pytest.mark.nightly
def test_both_ways_answer_the_same(laptop: Laptop) -> None:
    (key,) = laptop.json("key", "list", TABLE)["keys"]
    for command in (
        ("key", "list", TABLE),
        ("key", "show", TABLE, key["id"]),
        ("kms-endpoint", "list"),
        ("table", "show", TABLE),
        ("table", "epochs", TABLE),
        ("table", "clean-up", TABLE),
    ):
        assert laptop.json(*command) == laptop.host.json(*command, *_AS_ADMIN), command
        assert laptop.run(*command).stdout == laptop.host.run(*command, *_AS_ADMIN).stdout, command
    for command in (("key", "masters"), ("policy", "list"), ("policy", "show"), ("policy", "history")):
        assert laptop.json(*command) == laptop.host.json(*command), command


def test_keys_are_managed_and_the_record_names_the_tokens_user(laptop: Laptop) -> None:
    (rotated,) = laptop.json("key", "rotate", TABLE)["keys"]
    assert rotated["version"] == rotated["previous-version"] + 1
    assert laptop.json("key", "rewrap", TABLE)["branches"] is not None
    laptop.run("key", "disable", TABLE, "--key", rotated["id"])
    enabled = laptop.json("key", "enable", TABLE)["keys"]
    assert {each["state"] for each in enabled} <= {"active", "decrypt-only"}
    record = laptop.host.json("audit", "show", "--limit", "1", "--user", ADMIN)[0]
    assert record["action"] == "key.enable" and not record["request_id"].startswith("cli-")


def test_tables_are_managed(laptop: Laptop) -> None:
    laptop.run("table", "set", TABLE, "comment=a=b", "encryption.data-key-length=32")
    assert laptop.json("table", "show", TABLE)["properties"]["encryption.data-key-length"] == "32"
    laptop.run("table", "unset", TABLE, "comment")
    assert "is restored at" in laptop.run("table", "restore", TABLE).stderr
    assert laptop.json("table", "forbid-old-epochs", TABLE)["old-forbidden"] is True
    assert "mallory is not authorized" in laptop.run("table", "show", TABLE, user="mallory", code=1).stderr
    laptop.run("table", "drop", TABLE, code=2)


def test_master_keys_are_managed_by_who_may_administer_the_service(laptop: Laptop) -> None:
    laptop.run("key", "create-master", "pii")
    assert "version 2" in laptop.run("key", "rotate-master", "pii").stderr
    assert "kms.pek_ttl_s" in laptop.run("key", "disable-master", "pii").stderr
    laptop.run("key", "enable-master", "pii")
    assert {"id": "pii", "version": 2, "enabled": True} in laptop.json("key", "masters")["master-keys"]
    assert laptop.json("key", "rewrap-master", "pii") == {"rewrapped": 0, "failed": []}
    for command in (("masters",), ("create-master", "x"), ("disable-master", "pii")):
        refused = laptop.run("key", *command, user="mallory", code=1)
        assert "mallory is not authorized" in refused.stderr, command


def test_tokens_are_issued_shown_once_and_revoked(laptop: Laptop) -> None:
    issued = laptop.run("token", "issue", "dave", "--group", "staff", "--ttl", "1h")
    token = issued.stdout.strip()
    (listed,) = (each for each in laptop.json("token", "list")["tokens"] if each["principal"] == "dave")
    assert listed["groups"] == ["staff"] and listed["expires-at"] is not None
    assert laptop.json("token", "list") == laptop.host.json("token", "list")
    assert token not in laptop.run("token", "list").stdout + issued.stderr
    laptop.run("token", "revoke", listed["id"])
    (listed,) = (each for each in laptop.json("token", "list")["tokens"] if each["principal"] == "dave")
    assert listed["revoked-at"] is not None
    assert token not in laptop.run("token", "revoke", token, code=2).stderr
    for command in (("list",), ("issue", "eve"), ("revoke", listed["id"])):
        refused = laptop.run("token", *command, user="mallory", code=1)
        assert "mallory is not authorized" in refused.stderr, command


def test_policies_are_kept_byte_for_byte(laptop: Laptop, tmp_path: Path) -> None:
    granted = policy("readers", tables("sales"), {"bob": ["select"]}, description="gr\u00fcn \u009b31m")
    file = tmp_path / "readers.json"
    file.write_text(json.dumps({"policies": [granted]}, ensure_ascii=False, indent=1), "utf-8")
    put = ("policy", "put", "readers", str(file))
    assert laptop.json(*put, "--dry-run")["effect"]["added"] == ["policy 'readers'"]
    assert "revision 2" in laptop.run(*put).stderr
    assert laptop.host.run("policy", "get", "readers").stdout_bytes == file.read_bytes()
    found = laptop.run("policy", "get", "readers")
    assert (found.stdout_bytes, found.stderr) == (file.read_bytes(), "Revision 2.\n")
    (change,) = laptop.json("policy", "history", "readers")["changes"]
    assert (change["author"], change["revision"]) == (ADMIN, 2)
    assert laptop.json("policy", "list") == laptop.host.json("policy", "list")
    assert "revision 2" in laptop.run("policy", "remove", "readers", code=1).stderr
    laptop.run("policy", "remove", "readers", "--revision", "2")
    assert "removed" in laptop.run("policy", "history", "--limit", "1").stdout
    laptop.run("policy", "get", "readers", code=1)
    for command in (("list",), ("get", "readers"), ("history",), ("put", "readers", str(file)), ("show",)):
        refused = laptop.run("policy", *command, user="mallory", code=1)
        assert "mallory is not authorized" in refused.stderr, command


def test_what_is_not_answered_is_not_asked_again(laptop: Laptop) -> None:
    with lossy_proxy(laptop.url) as lossy:
        lossy.lose_answers("/tokens", 1)
        words = ["--url", lossy.url, "--token-file", str(laptop.token_file(ADMIN)), "token", "issue", "frank"]
        result = CliRunner().invoke(app, words)
    assert result.exit_code == 1 and "might have taken effect" in result.stderr
    assert [each["principal"] for each in laptop.json("token", "list")["tokens"]].count("frank") == 1


@pytest.mark.parametrize("name", ["plan", "load", "writes"])
def test_a_table_with_the_name_of_an_operation_is_not_changed_twice(laptop: Laptop, name: str) -> None:
    with lossy_proxy(laptop.url) as lossy:
        lossy.lose_answers(f"/{name}", 1)
        words = ["--url", lossy.url, "--token-file", str(laptop.token_file(ADMIN))]
        result = CliRunner().invoke(app, [*words, "table", "set", f"db.{name}", "comment=x"])
    assert result.exit_code == 1 and "might have taken effect" in result.stderr


def test_the_policies_decide_for_the_tokens_user(laptop: Laptop) -> None:
    refused = laptop.run("key", "rotate", TABLE, user="mallory", code=1).stderr
    assert "mallory is not authorized" in refused
    assert "with --url, the token says who acts" in " ".join(
        laptop.run("key", "list", TABLE, "--as", "ann", code=2).stderr.split()
    ).lower().replace("│ ", "")


def test_the_token_is_read_from_a_private_file_and_shown_nowhere(laptop: Laptop) -> None:
    file = laptop.token_file("carol")
    token = file.read_text().strip()
    shown = laptop.run("key", "list", TABLE, user="carol", code=1)
    assert token not in shown.stdout + shown.stderr
    file.chmod(0o644)
    assert "0600" in laptop.run("key", "list", TABLE, user="carol", code=1).stderr
    file.chmod(0o600)
    file.write_text("not a token")
    shown = laptop.run("key", "list", TABLE, user="carol", code=1)
    assert "not a token" not in shown.stdout + shown.stderr


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "words",
    [
        ("--url", "http://127.0.0.1:1", "key", "masters"),
        ("--token-file", "t", "key", "masters"),
        ("--config", "c", "--url", "http://127.0.0.1:1", "--token-file", "t", "key", "masters"),
        ("--url", "http://127.0.0.1:1", "--token-file", "t", "db", "check"),
        ("--url", "http://127.0.0.1:1", "--token-file", "t", "audit", "verify"),
        ("--url", "http://127.0.0.1:1", "--token-file", "t", "policy", "test", "."),
        ("--url", "http://127.0.0.1:1", "--token-file", "t", "policy", "check", "key:k", "use", "--as", "a"),
    ],
)
def test_options_that_would_be_ignored_are_refused(words: tuple[str, ...]) -> None:
    assert CliRunner().invoke(app, words).exit_code == 2


def test_a_service_that_does_not_answer_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("lw_token")
    file.chmod(0o600)
    words = ["--url", "http://127.0.0.1:1", "--token-file", str(file), "key", "masters"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1 and result.stderr.count("\n") == 1 and "lw_token" not in result.stderr


#: Sends a command to a service that does not answer, and tells which libraries of the service were loaded.
_LOADED = """
import sys
from typer.testing import CliRunner
from catalog.cli.main import app
service = ["--url", "http://127.0.0.1:1", "--token-file", sys.argv[1]]
commands = "key list db.t, key masters, table show db.t, token issue bob, token list"
commands += ", policy show, policy list"
for words in commands.split(", "):
    said = CliRunner().invoke(app, [*service, *words.split()]).stderr
    assert "cannot be reached" in said or "might have taken effect" in said, said
heavy = "alembic fastapi sqlalchemy starlette uvicorn pyarrow pyspark yaml"
print(*sorted(set(heavy.split()) & set(sys.modules)))
"""


@pytest.mark.nightly
def test_no_library_of_the_service_is_needed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("lw_token")
    file.chmod(0o600)
    words = [sys.executable, "-c", _LOADED, str(file)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_policies_are_imported(laptop: Laptop, tmp_path: Path) -> None:
    granted = policy("imported", tables("sales"), {"ivy": ["select"]})
    file = tmp_path / "export.json"
    file.write_text(json.dumps({"policies": [granted], "roles": []}))
    assert laptop.json("policy", "import", str(file))["change"]["effect"]["added"] == ["policy 'imported'"]
    assert laptop.json("policy", "import", str(file))["change"]["changes"] == []
    assert (
        "mallory is not authorized"
        in laptop.run("policy", "import", str(file), user="mallory", code=1).stderr
    )
    (revision,) = (
        each["revision"] for each in laptop.json("policy", "list")["documents"] if each["name"] == "ranger"
    )
    laptop.run("policy", "remove", "ranger", "--revision", str(revision))
