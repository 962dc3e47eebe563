"""Expected errors are one sentence on standard error and an exit code, never a traceback, never a secret."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import typer

from catalog.cli.arguments import duration_of, moment_of
from catalog.cli.main import app
from tests.support.command_line import CliRunner
from tests.support.host import Host
from tests.support.vectors import each_row


def test_a_refusal_is_one_line_on_standard_error(host: Host) -> None:
    result = host.run("table", "show", "sales.none", "--as", "ann", code=1)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1 and "Table does not exist: sales.none" in result.stderr


def test_settings_that_are_wrong_are_named_without_their_values(bare: Host) -> None:
    bare.config.write_text('[database]\nurl = "postgresql://u:hunter22@db/x"\ntypo = 1\n')
    result = bare.run("db", "check", code=1)
    assert "database.typo" in result.stderr and "hunter22" not in result.stderr
    assert "missing.toml" in CliRunner().invoke(app, ["--config", "missing.toml", "db", "check"]).stderr


def test_the_environment_wins_over_the_file(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEWARDEN_DATABASE__URL", f"sqlite:///{host.root}/other.db")
    assert "lakewarden db upgrade" in host.run("db", "check", code=1).stderr


def test_an_absent_database_is_one_sentence(host: Host) -> None:
    (host.data / "lakewarden.db").unlink()
    for command in (("token", "list"), ("audit", "show"), ("table", "show", "a.b"), ("token", "issue", "x")):
        result = host.run(*command, code=1)
        assert result.stderr.count("\n") == 1 and result.stdout == ""


def test_a_keystore_that_others_may_read_is_refused(host: Host) -> None:
    (host.data / "keystore.key").chmod(0o644)
    assert "0600" in host.run("key", "masters", code=1).stderr


def test_control_characters_and_secrets_do_not_reach_the_terminal(host: Host) -> None:
    host.run("key", "create-master", "a\x1b[2J\rb", code=1)
    token = host.run("token", "issue", "bob").stdout.strip()
    absent = CliRunner().invoke(app, ["--config", f"\x1b[2J\r{token}.toml", "db", "check"])
    assert "lw_***.toml" in absent.stderr
    shown = host.run("audit", "show")
    assert not {"\x1b", "\r"} & set(absent.stderr + shown.stdout)


@each_row(
    "arguments",
    [
        ["table", "show", "orders"],
        ["table", "set", "sales.orders", "novalue"],
        ["table", "set", "sales.orders", "=x"],
        ["token", "issue", "bob", "--ttl", "soon"],
        ["token", "issue", "bob", "--ttl", "0s"],
        ["audit", "show", "--since", "yesterday"],
        ["audit", "show", "--limit", "0"],
        ["policy", "check", "table:a.b", "select"],
        ["nonsense"],
    ],
)
def test_wrong_usage_is_exit_code_2(host: Host, arguments: list[str]) -> None:
    host.run(*arguments, code=2)


def test_times_are_read_as_utc_unless_they_say_otherwise() -> None:
    assert duration_of("90s") == timedelta(seconds=90) and duration_of("7d") == timedelta(days=7)
    assert moment_of("2030-01-31") == datetime(2030, 1, 31, tzinfo=UTC)
    assert moment_of("2030-01-31T01:00+01:00") == datetime(2030, 1, 31, tzinfo=UTC)
    before = datetime.now(UTC)
    assert before - timedelta(hours=12) <= moment_of("12h") < before
    assert moment_of("99999d") < before
    for wrong in ("1w", "-1h", "1.5h", "", "100000d"):
        with pytest.raises(typer.BadParameter):
            duration_of(wrong)
