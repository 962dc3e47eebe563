"""The operators' pages name every command, and every setting of a KMS or issuer."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from catalog.settings.identity import IssuerSettings
from catalog.settings.kms_options import (
    AwsKmsOptions,
    BackendOptions,
    HadoopKmsOptions,
    LocalKmsOptions,
    VaultKmsOptions,
)
from spark_ext.cli.main import app
from tests.support.vectors import each_row

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")
KEYS_PAGE = (ROOT / "docs" / "keys.md").read_text("utf-8")
DOOR_PAGE = (ROOT / "docs" / "kms-endpoint.md").read_text("utf-8")
ROWS_PAGE = (ROOT / "docs" / "row-filters-and-masks.md").read_text("utf-8")
PIPELINES_PAGE = (ROOT / "docs" / "pipelines.md").read_text("utf-8")
IDENTITY_PAGE = (ROOT / "docs" / "identity.md").read_text("utf-8")
KMS_PAGE = (ROOT / "docs" / "kms.md").read_text("utf-8")


def _commands(command: Any, words: str) -> Iterator[str]:
    below = getattr(command, "commands", {})
    if not below:
        yield words
    for name, each in below.items():
        yield from _commands(each, f"{words} {name}")


def test_every_command_is_described() -> None:
    commands = set(_commands(typer.main.get_command(app), "lakewarden"))
    assert len(commands) > 20
    assert not {command for command in commands if f"`{command}`" not in PAGE}


@pytest.mark.parametrize("options", [LocalKmsOptions, AwsKmsOptions, HadoopKmsOptions, VaultKmsOptions])
def test_every_option_of_a_kms_is_described(options: type[BackendOptions]) -> None:
    assert not {name for name in options.model_fields if f"`kms.options.{name}`" not in KMS_PAGE}


def test_every_setting_of_an_issuer_is_described() -> None:
    settings = {f"`identity.issuers.NAME.{name}`" for name in IssuerSettings.model_fields}
    assert not {setting for setting in settings if setting not in IDENTITY_PAGE}


def _shown(page: str) -> list[str]:
    """The commands in a page's shell blocks."""
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("lakewarden ")]


@each_row("line", _shown(KEYS_PAGE) + _shown(DOOR_PAGE) + _shown(ROWS_PAGE) + _shown(PIPELINES_PAGE))
def test_commands_on_pages_are_as_they_are_typed(line: str) -> None:
    command: Any = typer.main.get_command(app)
    words = shlex.split(line)[1:]
    while words[0].startswith("--"):
        words = words[2:]
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    assert command.make_context("lakewarden", words).params


def test_every_command_about_keys_is_in_the_life_of_a_key() -> None:
    """But those for master keys of the local KMS that have nothing to do with it."""
    group: Any = typer.main.get_command(app)
    shown = {shlex.split(line)[2] for line in _shown(KEYS_PAGE) if line.startswith("lakewarden key ")}
    others = {"masters", "create-master", "disable-master", "enable-master"}
    assert shown == set(group.commands["key"].commands) - others
