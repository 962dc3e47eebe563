"""A process whose standard error is a terminal, and its standard output a pipe or that terminal."""

from __future__ import annotations

import errno
import os
import pty
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Shows progress from the start, for tests that do not wait for two seconds.
AT_ONCE: Final = "from catalog.base import progress\nprogress._BAR_AFTER_S = progress._LINE_EVERY_S = 0.001\n"
_LIMIT_S: Final = 120


@dataclass(frozen=True)
class Shown:
    """What a process left.

    Attributes:
        code: its exit code.
        stdout: what it wrote to its pipe.
        terminal: what it wrote to the terminal, with escape sequences.
    """

    code: int
    stdout: str
    terminal: str


def run(code: str, *arguments: str | Path, cwd: Path, stdout_too: bool = False) -> Shown:
    """Run Python code with a terminal.

    Args:
        code: the code.
        arguments: what it finds in `sys.argv`.
        cwd: its directory.
        stdout_too: whether standard output is the terminal, too.
    """
    ours, theirs = pty.openpty()
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=theirs if stdout_too else subprocess.PIPE,
        stderr=theirs,
        cwd=cwd,
        env=environ,
    ) as process:
        os.close(theirs)
        terminal = _read(ours)
        stdout = "" if process.stdout is None else process.stdout.read().decode()
        exit_code = process.wait(_LIMIT_S)
    os.close(ours)
    return Shown(exit_code, stdout, terminal.decode())


def _read(terminal: int) -> bytes:
    """Read until the process has closed the terminal."""
    data = b""
    while True:
        try:
            more = os.read(terminal, 65_536)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return data
        if not more:
            return data
        data += more
