"""Compares this checkout with an earlier one, in one run: `python -m bench.before CHECKOUT [--rounds N]`.

CHECKOUT is a directory of the earlier commit, with a `.venv` of its own. Commit checks and small queries are
asked of both in turn. Each works in processes of its own, which ask what this checkout asks (`commit.py`,
`small.py`) with the other modules of theirs. Budget: a small query takes at most 5 ms more than before.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from bench.report import Figure, at_most, figure, machine, show, write

HERE: Final = Path(__file__).parent
BEFORE, NOW = "before", "now"
#: What was measured before and now, by round.
Rounds = list[tuple[Mapping[str, float], ...]]


@dataclass(frozen=True)
class Asked:
    """A module of this package with a `contender`.

    Attributes:
        title: what it measures.
        warm_up: rounds that do not count; a JVM compiles what it runs often.
        more_ms: how much more than before it takes at most, if it has such a budget.
    """

    title: str
    warm_up: int
    more_ms: float | None


MODULES: Final[Mapping[str, Asked]] = {
    "commit": Asked("Commit checks", 1, None),
    "small": Asked("Small queries", 3, 5.0),
}

#: Runs the contender of a module, and answers each line with what was measured, as JSON.
_WORKER: Final = """
import importlib.util, json, os, sys
from pathlib import Path
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
spec = importlib.util.spec_from_file_location("asked", sys.argv[1])
sys.modules["asked"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
with module.contender(Path(sys.argv[2])) as actions:
    print(json.dumps(list(actions)), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(actions[json.loads(line)]()), file=answers, flush=True)
"""


class _Contender:
    """A checkout that is asked; its names are what can be asked of it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.names: Sequence[str] = self._answer()

    def ask(self, name: str) -> Mapping[str, float]:
        """Milliseconds by what was measured."""
        assert self._process.stdin
        print(json.dumps(name), file=self._process.stdin, flush=True)
        answer: Mapping[str, float] = self._answer()
        return answer

    def _answer(self) -> Any:
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())


@contextmanager
def _contender(checkout: Path, module: str, directory: Path) -> Iterator[_Contender]:
    """Ask a module of this checkout in another; it ends with its input."""
    directory.mkdir()
    asked = [checkout / ".venv/bin/python", "-c", _WORKER, HERE / module, directory]
    with subprocess.Popen(
        asked, cwd=checkout, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield _Contender(process)


def measure(checkout: Path, name: str, rounds: int) -> Mapping[str, Rounds]:
    """Ask both checkouts everything that a module asks; each round begins with the other one."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory())).resolve()
        both = [
            stack.enter_context(_contender(where, f"{name}.py", root / when))
            for when, where in ((BEFORE, checkout), (NOW, HERE.parent))
        ]
        taken: dict[str, Rounds] = {name: [] for name in both[1].names}
        for number in range(-MODULES[name].warm_up, rounds):
            for what, collected in taken.items():
                order = both if number % 2 else both[::-1]
                answers = [each.ask(what) for each in order]
                if number >= 0:
                    collected.append(tuple(answers if number % 2 else answers[::-1]))
    return taken


def _figures(name: str, taken: Rounds, more: float | None) -> Iterator[Figure]:
    """Before, now, and the median of what the rounds differ by."""
    for what in taken[0][0]:
        pairs = [(before[what], now[what]) for before, now in taken]
        yield figure(f"{name}: {what} {BEFORE}", [before for before, _ in pairs], "ms")
        yield figure(f"  {what} {NOW}", [now for _, now in pairs], "ms")
        differs = figure(f"  {what} {NOW} - {BEFORE}", [now - before for before, now in pairs], "ms")
        yield differs if more is None else at_most(more, differs)


def main() -> None:
    """Measure both checkouts, print tables, write one JSON file."""
    arguments = argparse.ArgumentParser(description="This checkout beside an earlier one")
    arguments.add_argument("checkout", type=Path, help="a directory of the earlier commit, with its .venv")
    arguments.add_argument("--rounds", type=int, default=7, help="rounds that count")
    arguments.add_argument("--only", choices=MODULES, help="this one alone")
    given = arguments.parse_args()
    console = Console()
    figures = []
    for module in [given.only] if given.only else MODULES:
        asked = MODULES[module]
        taken = measure(given.checkout.resolve(), module, given.rounds)
        measured = [each for name, both in taken.items() for each in _figures(name, both, asked.more_ms)]
        show(console, f"{asked.title}: before and now", measured)
        figures += measured
    console.print(f"written to {write(figures, machine() | {'before': _commit(given.checkout)})}")


def _commit(checkout: Path) -> str:
    """The commit that a checkout is of."""
    asked = ["git", "-C", checkout, "rev-parse", "HEAD"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
