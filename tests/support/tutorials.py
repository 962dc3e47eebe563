"""Follows a tutorial literally: saves its files, runs its commands in order, and compares what they print.

- A block after "Save this as" is a file. One shell runs the blocks in `sh`, and ends at a command that fails.
- A block in `text` is what the commands before it print. Other lines can be around it, such as Spark's
  warnings. `…` stands for any text in a line, and alone in a line for any lines.
- The environment has the distributions of the page's `pip install '.[EXTRAS]'`, and nothing else.
- The page's ports are replaced by free ones.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.environments import ROOT, Environment

_BLOCK = re.compile(r"(?:Save this as `([^`]+)`:\n\n)?^```(\w+)\n(.*?)^```", re.M | re.S)
_INSTALL = re.compile(r"^pip install '\.\[([a-z,]+)\]'((?: [a-z]+)*)$", re.M)
_PORTS = ("8181", "15002")
_DONE = "== the step ends here =="
_PATIENCE_S = 1_500


@dataclass(frozen=True)
class Step:
    """Commands of a page, and what it says they print; None if it says nothing."""

    commands: str
    prints: str | None


def follow(
    page: str, directory: Path, install: Callable[[Sequence[str], Sequence[str]], Environment]
) -> None:
    """Follow a page of docs in an empty directory, which is the user's home there.

    Args:
        page: its name.
        directory: the directory.
        install: makes an environment with these extras and further distributions.

    Raises:
        AssertionError: a command failed, or printed something else than the page says.
    """
    text = (ROOT / "docs" / page).read_text("utf-8")
    port = {each: str(_free_port()) for each in _PORTS}
    for each, free in port.items():
        text = text.replace(each, free)
    found = _INSTALL.search(text)
    assert found, "The page does not say what to install."
    environment = install(found[1].split(","), found[2].split())
    steps = list(_steps(text))
    assert any(step.prints for step in steps)
    printed = _run([step.commands for step in steps], directory, environment, port["8181"])
    for step, lines in zip(steps, printed, strict=False):
        if step.prints is not None:
            assert re.search(_pattern(step.prints), lines), f"{step.commands}\n{step.prints}\n{lines}"
    assert len(printed) == len(steps), f"{steps[len(printed) - 1].commands}\n{printed[-1]}"


def _steps(text: str) -> Iterator[Step]:
    blocks = [match.groups() for match in _BLOCK.finditer(text)]
    saved = ""
    for number, (name, language, content) in enumerate(blocks):
        if name:
            saved += f"cat > {shlex.quote(name)} <<'END OF THE FILE'\n{content}END OF THE FILE\n"
        elif language == "sh":
            following = blocks[number + 1] if number + 1 < len(blocks) else None
            prints = following[2] if following and following[1] == "text" else None
            commands = "" if _INSTALL.search(content) else content
            yield Step(saved + commands, prints)
            saved = ""
        else:
            assert language == "text", f"A block of {language} is neither saved nor run."


def _run(steps: Sequence[str], directory: Path, environment: Environment, port: str) -> list[str]:
    """What each step printed, up to the one that failed."""
    script = "".join(f"{step}\nprintf '\\n%s\\n' '{_DONE}'\n" for step in steps)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("LAKEWARDEN_", "SPARK"))
    }
    log = directory / "printed"
    home = directory / "home"
    home.mkdir()
    with log.open("wb") as output:
        shell = subprocess.Popen(
            ("bash", "-e", "-c", script),
            cwd=home,
            env=kept
            | {
                "HOME": str(home),
                "LAKEWARDEN_HTTP__PORT": port,
                "PATH": f"{environment.root / 'bin'}:{os.environ['PATH']}",
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            shell.wait(_PATIENCE_S)
        finally:
            # Its group has the services that the page starts, too.
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    text = _plain(log.read_text("utf-8"))
    printed = text.split(f"{_DONE}\n")
    return printed[:-1] if not shell.returncode else printed


def _pattern(prints: str) -> str:
    def line(text: str) -> str:
        return "(?:.*\n)*?" if text == "…" else ".*".join(map(re.escape, text.split("…"))) + "\n"

    return "(?m)^" + "".join(map(line, _plain(prints).splitlines()))


def _plain(text: str) -> str:
    """The text without what depends on the machine: Spark's progress, and the width of a table's columns."""
    lines = (re.sub(" +", " ", line).rstrip() for line in re.split(r"[\r\n]", text))
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("[Stage "))


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
