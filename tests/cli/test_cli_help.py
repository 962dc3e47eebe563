"""Help and completion answer at once: they load neither the service's libraries, nor Arrow, nor Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Shows the help of every command, and fails if that loads a library that only a running command needs.
_ALL_HELP = """
import contextlib, io, sys, typer
from spark_ext.cli.main import app

def shown(command, *words):
    with contextlib.redirect_stdout(io.StringIO()) as page, contextlib.suppress(SystemExit):
        app([*words, "--help"], prog_name="lakewarden")
    assert "Usage" in page.getvalue(), words
    for name, each in getattr(command, "commands", {}).items():
        shown(each, *words, name)

shown(typer.main.get_command(app))
heavy = "sqlalchemy alembic fastapi uvicorn cryptography numpy pyarrow pyiceberg pyspark sqlglot yaml urllib3"
print(*sorted(set(heavy.split()) & set(sys.modules)))
"""


def test_help_loads_no_library_that_only_a_running_command_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ALL_HELP], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
