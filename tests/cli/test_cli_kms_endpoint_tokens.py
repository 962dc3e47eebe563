"""Tokens for the KMS endpoint for standard Hadoop clients, and the files that such clients read them from."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from catalog.authorization.tokens import TokenStore
from catalog.cli.session import open_state
from policy.errors import NotAuthenticated
from tests.support.host import Host
from tests.support.vectors import each_row

SERVICE = "kms://https@lake.example:9600/kms"


def _issue(host: Host, file: Path, *more: str, code: int = 0) -> str:
    words = ("token", "issue", "bob", "--hadoop-credentials", str(file), "--service", SERVICE, *more)
    result = host.run(*words, code=code)
    return result.stdout + result.stderr


def test_a_token_of_the_kms_endpoint_speaks_for_its_principal_there_alone(host: Host) -> None:
    token = host.run("token", "issue", "bob", "--kms", "--group", "staff").stdout.strip()
    with open_state(host.settings()) as engine:
        assert TokenStore(engine).verify(token, "kms").groups == {"staff"}
        for kind in ("user", "engine"):
            with pytest.raises(NotAuthenticated):
                TokenStore(engine).verify(token, kind)


def test_a_file_of_credentials_is_private_and_the_token_is_not_shown(host: Host, tmp_path: Path) -> None:
    file = tmp_path / "bob.credentials"
    shown = _issue(host, file, "--kms")
    data = file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    start = data.index(b"lw_")
    token = data[start : start + 3 + 32 + 1 + 43].decode()
    assert token not in shown and SERVICE.encode() in data
    with open_state(host.settings()) as engine:
        assert TokenStore(engine).verify(token, "kms").name == "bob"
    answer = host.json("token", "list")["tokens"]
    assert [each["kind"] for each in answer if each["principal"] == "bob"] == ["kms"]


def test_an_existing_file_is_left_alone_and_the_token_can_be_revoked(host: Host, tmp_path: Path) -> None:
    file = tmp_path / "bob.credentials"
    file.write_bytes(b"mine")
    shown = " ".join(_issue(host, file, "--kms", code=1).split())
    (token,) = [each for each in host.json("token", "list")["tokens"] if each["kind"] == "kms"]
    assert file.read_bytes() == b"mine" and token["id"] in shown


@each_row(
    "words",
    [
        ("--kms", "--engine"),
        ("--hadoop-credentials", "x"),
        ("--kms", "--service", SERVICE),
        ("--kms", "--hadoop-credentials", "x"),
        ("--hadoop-credentials", "x", "--service", SERVICE),
        ("--kms", "--hadoop-credentials", "x", "--service", "https://lake.example/kms"),
    ],
)
def test_what_does_not_go_together_issues_nothing(host: Host, words: tuple[str, ...]) -> None:
    before = host.run("token", "list", "--json").stdout
    host.run("token", "issue", "bob", *words, code=2)
    assert host.run("token", "list", "--json").stdout == before
