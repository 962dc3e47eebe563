"""Writes the reference of the command line as Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from spark_ext.cli.main import app


def page() -> str:
    """Each command with its usage, arguments and options, in the order of `--help`."""
    return "\n".join(line for path, command in commands() for line in _command(path, command))


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that does something, with its words."""
    yield from _below("lakewarden", get_command(app))


def _below(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", {})
    if not below:
        yield path, command
    for name, each in below.items():
        if not each.hidden:
            yield from _below(f"{path} {name}", each)


def _command(path: str, command: Any) -> Iterator[str]:
    context = command.make_context(path, [], resilient_parsing=True)
    shown = [each for each in command.params if not getattr(each, "hidden", False) and each.name != "help"]
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"## `{path}`\n"
    yield f"{_help(command.help)}\n"
    yield f"```text\n{path} {usage}\n```\n"
    if shown:
        yield "| argument or option | meaning | default |\n|---|---|---|"
        yield from (_row(each) for each in shown)
        yield ""


def _row(parameter: Any) -> str:
    names = parameter.opts if parameter.param_type_name == "option" else [parameter.name.upper()]
    names = [*names, *parameter.secondary_opts]
    default = parameter.default if isinstance(parameter.default, str | int | float) else None
    is_flag = getattr(parameter, "is_flag", False) and not default
    told = "required" if parameter.required else "" if default is None or is_flag else f"`{default}`"
    return f"| {', '.join(f'`{each}`' for each in names)} | {_cell(parameter.help)} | {told} |"


def _help(text: str | None) -> str:
    """The help of a command, whose examples are indented or follow a line of their own."""
    plain = re.sub(r"[\b\f]", "", inspect.cleandoc(text or ""))
    return "\n\n".join(_paragraph(each) for each in plain.split("\n\n"))


def _paragraph(text: str) -> str:
    if re.match(r"\s*(\$ |lakewarden )", text):
        return f"```text\n{inspect.cleandoc(text)}\n```"
    return _escaped(text)


def _cell(text: str | None) -> str:
    return _escaped(" ".join((text or "").split())).replace("|", "\\|")


def _escaped(text: str) -> str:
    parts = text.split("`")
    return "`".join(
        each if at % 2 else re.sub(r"([*_<\[\]{}])", r"\\\1", each) for at, each in enumerate(parts)
    )
