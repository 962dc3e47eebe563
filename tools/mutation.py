"""Mutation testing of the decision modules: small faults are put in, and the tests should notice.

Usage: python tools/mutation.py [MODULE ...], a module being a path such as policy/ranger/evaluate.py or a
pattern such as "policy/ranger/*"; without one, all modules that are held to full branch coverage. Prints a
table and every mutant that lives; ends with 1 if a tenth of the mutants or more are alive.

The faults are made by mutmut, in a copy below build/. What it does not change: properties, other decorated
functions, and values at the top of a module. Mutants that mean the same as the original are listed with the
reason in tests/mutants.toml, by module, function and the lines that differ; those in how
strict a zip is are known, since that is an assertion.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "mutation" / str(os.getpid())
MAX_ALIVE = 0.10
"""A share of living mutants from which on the run fails."""

_NOT_STRICT = re.compile(r",\s*(strict=(True|False|None)\s*)?(?=\))")
# Exit codes of mutmut's children: its tests failed, or the mutant ran into a limit of time or crashed.
KILLED = frozenset({1, 3, 24, 36, 152, 255, -24, -11, -9})


@dataclass
class Tally:
    """What became of one module's mutants."""

    killed: int = 0
    equivalent: int = 0
    alive: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Those that count: an equivalent one cannot be noticed."""
        return self.killed + len(self.alive)

    @property
    def share(self) -> float:
        """The share that is alive."""
        return len(self.alive) / self.total if self.total else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="MODULE")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    modules = _modules(project, parser.parse_args().modules)
    tests = _tests(project, modules)
    _prepare(modules, tests)
    print(f"{len(modules)} modules, tests in {' '.join(tests)}", flush=True)
    with (WORK / "mutmut.log").open("w", encoding="utf-8") as log:
        run = subprocess.run([_mutmut(), "run"], cwd=WORK, stdout=log, stderr=subprocess.STDOUT, check=False)
    codes = {module: _exit_codes(module) for module in modules}
    if any(None in found.values() for found in codes.values()) or not any(codes.values()):
        print(f"mutmut did not come to its end ({run.returncode}): see {WORK / 'mutmut.log'}")
        return 2
    tallies = {module: _tally(module, codes[module]) for module in modules}
    shutil.rmtree(WORK)
    return _report(tallies)


def _modules(project: dict[str, Any], wanted: list[str]) -> list[str]:
    """The decision modules of the policy package, or those of them that are asked for."""
    patterns = project["tool"]["coverage"]["report"]["include"]
    files = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "policy").rglob("*.py"))]
    decisive = [name for name in files if any(fnmatch(name, pattern) for pattern in patterns)]
    found = [name for name in decisive if not wanted or any(fnmatch(name, each) for each in wanted)]
    if not found:
        sys.exit(f"no decision module is called {' or '.join(wanted)}")
    return found


def _tests(project: dict[str, Any], modules: list[str]) -> list[str]:
    """The tests that can notice a fault in these modules: mutmut runs of them what reaches the fault."""
    groups = project["tool"]["lakewarden"]["mutation"]["tests"]
    patterns: dict[str, None] = {}
    for module in modules:
        found = next(tests for pattern, tests in groups.items() if fnmatch(module, pattern))
        patterns.update(dict.fromkeys(found))
    paths = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    return list(dict.fromkeys(path.relative_to(ROOT).as_posix() for path in paths))


def _prepare(modules: list[str], tests: list[str]) -> None:
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "policy", WORK / "policy", ignore=ignore)
    for name in ("policy", "support", "vectors"):
        shutil.copytree(ROOT / "tests" / name, WORK / "tests" / name, ignore=ignore)
    settings = {
        "source_paths": ["policy"],
        "only_mutate": modules,
        # The profile "ci" of hypothesis draws the same examples each time and has no deadline.
        "pytest_add_cli_args": ["-p", "no:cacheprovider", "--hypothesis-profile=ci"],
        "pytest_add_cli_args_test_selection": tests,
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    pytest = '[tool.pytest.ini_options]\npythonpath = ["."]\ntimeout = 180\nmarkers = ["core", "slow"]\n'
    (WORK / "pyproject.toml").write_text("\n".join(["[tool.mutmut]", *lines, "", pytest]), "utf-8")


def _mutmut() -> str:
    return str(Path(sys.executable).with_name("mutmut"))


def _exit_codes(module: str) -> dict[str, int | None]:
    """How the tests of each mutant ended; None for one that was not tried."""
    results = WORK / "mutants" / f"{module}.meta"
    if not results.exists():
        return {}
    found: dict[str, int | None] = json.loads(results.read_text("utf-8"))["exit_code_by_key"]
    return found


def _tally(module: str, codes: dict[str, int | None]) -> Tally:
    tally = Tally()
    equivalents = Counter(
        (each["module"], each["function"], each["change"].strip()) for each in _equivalents()
    )
    for name, code in codes.items():
        if code in KILLED:
            tally.killed += 1
            continue
        change = _change(name)
        if equivalents[module, _function(name), change] or _says_the_same(change):
            tally.equivalent += 1
        else:
            tally.alive.append(f"{name} ({_function(name)})\n{change}")
    return tally


def _equivalents() -> list[dict[str, str]]:
    found: list[dict[str, str]] = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text("utf-8")).get(
        "equivalent", []
    )
    return found


def _function(mutant: str) -> str:
    """The function that a mutant is of, as people write it: ``Schedule.at``."""
    name = mutant.rpartition("__mutmut_")[0].rpartition(".")[2]
    return name.removeprefix("xǁ").replace("ǁ", ".") if "ǁ" in name else name.removeprefix("x_")


def _change(mutant: str) -> str:
    """The lines that a mutant takes out and puts in."""
    shown = subprocess.run(
        [_mutmut(), "show", mutant], cwd=WORK, capture_output=True, text=True, check=True
    ).stdout
    changed = [
        line for line in shown.splitlines() if line[:1] in ("-", "+") and line[:3] not in ("---", "+++")
    ]
    return "\n".join(f"{line[0]} {line[1:].strip()}" for line in changed)


def _says_the_same(change: str) -> bool:
    """Whether lines differ in nothing but how strict a zip is."""
    plain = [_NOT_STRICT.sub("", line[2:]) for line in change.splitlines()]
    return plain[: len(plain) // 2] == plain[len(plain) // 2 :]


def _report(tallies: dict[str, Tally]) -> int:
    for tally in tallies.values():
        for mutant in tally.alive:
            print(f"alive: {mutant}\n")
    width = max(map(len, tallies))
    print(f"{'module':{width}}  mutants  killed  alive  equivalent  share alive")
    for module, tally in tallies.items():
        print(_row(module, width, tally))
    total = Tally(
        killed=sum(tally.killed for tally in tallies.values()),
        equivalent=sum(tally.equivalent for tally in tallies.values()),
        alive=[mutant for tally in tallies.values() for mutant in tally.alive],
    )
    print(_row("all", width, total))
    return int(total.share >= MAX_ALIVE)


def _row(name: str, width: int, tally: Tally) -> str:
    counts = f"{tally.total:7}  {tally.killed:6}  {len(tally.alive):5}  {tally.equivalent:10}"
    return f"{name:{width}}  {counts}  {tally.share:10.1%}"


if __name__ == "__main__":
    sys.exit(main())
