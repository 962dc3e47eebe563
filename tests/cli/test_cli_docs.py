"""The operators' page names every command and every setting that there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from catalog.config import LocalKmsOptions, Settings
from spark_ext.cli.main import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")


def _commands(command: Any, words: str) -> Iterator[str]:
    below = getattr(command, "commands", {})
    if not below:
        yield words
    for name, each in below.items():
        yield from _commands(each, f"{words} {name}")


def _settings(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        section = _section(field)
        if section is None:
            yield f"`{prefix}{name}`"
        else:
            yield from _settings(section, f"{prefix}{name}.")


def _section(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def test_every_command_is_described() -> None:
    commands = set(_commands(typer.main.get_command(app), "lakewarden"))
    assert len(commands) > 20
    assert not {command for command in commands if f"`{command}`" not in PAGE}


def test_every_setting_is_described() -> None:
    settings = set(_settings(Settings))
    assert {f"`kms.options.{name}`" for name in LocalKmsOptions.model_fields} <= settings
    assert not {setting for setting in settings if setting not in PAGE}
