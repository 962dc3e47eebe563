"""Help and completion answer at once, and the help of each command shows an example that works.

They load neither the service's libraries, nor Arrow, nor Spark.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from spark_ext.cli.main import app

ROOT = Path(__file__).parents[2]

#: Shows the help of every command, and fails if that loads a library that only a running command needs.
_ALL_HELP = """
import contextlib, io, sys, typer
from spark_ext.cli.main import app

def shown(command, *words):
    with contextlib.redirect_stdout(io.StringIO()) as page, contextlib.suppress(SystemExit):
        root([*words, "--help"], prog_name="lakewarden")
    assert "Usage" in page.getvalue(), words
    for name, each in getattr(command, "commands", {}).items():
        shown(each, *words, name)

root = typer.main.get_command(app)
shown(root)
heavy = "sqlalchemy alembic fastapi uvicorn cryptography numpy pyarrow pyiceberg pyspark sqlglot yaml urllib3"
print(*sorted(set(heavy.split()) & set(sys.modules)))
"""


def test_help_loads_no_library_that_only_a_running_command_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ALL_HELP], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


def _commands(command: Any, words: str = "") -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", {})
    if not below:
        yield words.strip(), command
    for name, each in below.items():
        yield from _commands(each, f"{words} {name}")


COMMANDS = dict(_commands(typer.main.get_command(app)))


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("words", COMMANDS)
def test_the_help_of_a_command_shows_an_example_that_can_be_run(words: str) -> None:
    command = COMMANDS[words]
    program, *example = shlex.split((command.epilog or "").removeprefix("Example: "))
    assert program == "lakewarden"
    if example[0] == "--config":
        del example[:2]
    assert " ".join(example).startswith(words)
    command.make_context(words, example[len(words.split()) :])


def _options(command: Any) -> Iterator[Any]:
    return (each for each in command.params if each.name != "help" and not getattr(each, "hidden", False))


def test_every_option_and_command_says_what_it_is() -> None:
    assert not [words for words, command in COMMANDS.items() if not command.help]
    assert not [
        (words, each.name)
        for words, command in COMMANDS.items()
        for each in _options(command)
        if not getattr(each, "help", None)
    ]
