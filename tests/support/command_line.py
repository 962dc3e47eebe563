"""The command line in the process of a test, whose commands are put together once."""

from __future__ import annotations

from functools import cache

import typer.testing
from typer.testing import CliRunner, Result

__all__ = ["CliRunner", "Result"]

# Typer puts all commands together for each call: 0.1 s, and tests make a thousand.
typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]
