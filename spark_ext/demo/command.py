"""`lakewarden demo`."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Annotated

import typer

from spark_ext.demo.flights import ALL_FLIGHTS
from spark_ext.demo.workspace import prepare, remove


def demo(
    directory: Annotated[
        Path | None,
        typer.Option(help="Directory for the demonstration. Default: a new temporary directory."),
    ] = None,
    rows: Annotated[
        int,
        typer.Option(min=1_000, max=ALL_FLIGHTS, help="Number of flights to load."),
    ] = ALL_FLIGHTS,
    clean: Annotated[bool, typer.Option("--clean", help="Remove the directory at the end.")] = False,
) -> None:
    """Run the demonstration: attacks on governed tables of real flights, and how they are refused."""
    # Spark takes its time to import, which other commands need not wait for.
    from spark_ext.demo.lake import SETTINGS_FILE
    from spark_ext.demo.screen import Screen
    from spark_ext.demo.story import LAKE, tell

    screen, began = Screen(), time.monotonic()
    place = prepare(directory)
    tell(place, rows, screen)
    screen.say(f"Every answer was the expected one. It took {time.monotonic() - began:.0f} seconds.")
    if clean:
        remove(place)
    else:
        screen.say(f"{place} is kept. To see the whole audit log, run:")
        screen.command(f"lakewarden --config {shlex.quote(str(place / LAKE / SETTINGS_FILE))} audit show")
