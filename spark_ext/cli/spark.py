"""`lakewarden spark`: what a Spark cluster needs from here."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

from catalog.cli import output
from policy.errors import StateUnavailable
from spark_ext.jar import spark_jar

app = typer.Typer(help="Build the Spark plugin.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """A group, although it has one command."""


@app.command(epilog="Example: lakewarden spark jar --output /opt/spark/jars/")
def jar(
    output_path: Annotated[
        Path | None,
        typer.Option("--output", help="File or directory to copy the jar to."),
    ] = None,
) -> None:
    """Build the plugin's jar for the installed PySpark, and print its path."""
    with output.progress("Building the plugin"):
        built = spark_jar(environ=os.environ, say=output.note)
    output.line(str(built if output_path is None else _copied(built, output_path)))


def _copied(built: Path, target: Path) -> Path:
    if target.is_dir():
        # The digest of its bytes is for the cache alone; the version and that of the sources stay.
        target = target / f"{built.name.rsplit('.', 2)[0]}.jar"
    try:
        shutil.copyfile(built, target)
    except OSError as failure:
        raise StateUnavailable(
            f"{target} cannot be written: {failure.strerror}.",
            rule="jar-output",
            hint="Choose another file or directory with --output.",
        ) from failure
    return target
