"""Mutation testing of the decision modules: small faults are put in, and the tests should notice.

Usage: python tools/mutation.py [--sample N] [MODULE ...], a module being a path such as
policy/ranger/evaluate.py or a pattern such as "policy/ranger/*"; without one, all modules that are held to
full branch coverage. Prints a table and every mutant that lives; ends with 1 if a tenth of the mutants of any
module or more are alive.

With --sample, N mutants of each module are tried, drawn by chance but the same each time; the table then
says between which shares that of all its mutants is (Wilson's interval, 95 %).

The faults are made by mutmut, in a copy below build/; tools/mutation_run.py runs the tests. What is not
changed: properties, other decorated functions, and values at the top of a module. A mutant that runs into the
limit of CPU time counts as killed and is in the table as out of time too. Mutants that mean the same as the
original are listed with the reason in tests/mutants.toml, by module, function and the lines that differ;
those that do so everywhere are known here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatch
from math import sqrt
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "mutation" / str(os.getpid())
MAX_ALIVE = 0.10
"""A share of living mutants from which on the run fails."""

# How strict a zip is and what the error of a failed assertion says are assertions; the names of codecs have
# no case, and integers become bytes in big endian unless it is said otherwise.
_NO_MEANING = (
    (re.compile(r",\s*(strict=(True|False|None)\s*)?(?=\))"), ""),
    (re.compile(r"raise AssertionError\(.*\)"), "raise AssertionError()"),
    (re.compile(r"\"UTF-8(-SIG)?\""), lambda found: found[0].lower()),
    (re.compile(r"(?<=to_bytes\(8), \"big\"(?=\))"), ""),
)
UNNOTICED = frozenset({0, 33})
"""How the tests of a mutant end that none of them notices, or that none of them reaches."""
OUT_OF_TIME = frozenset({-signal.SIGXCPU, -signal.SIGALRM})


@dataclass
class Tally:
    """What became of one module's mutants."""

    killed: int = 0
    equivalent: int = 0
    alive: list[str] = field(default_factory=list)
    out_of_time: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Those that count: an equivalent one cannot be noticed."""
        return self.killed + len(self.alive)

    @property
    def share(self) -> float:
        """The share that is alive."""
        return len(self.alive) / self.total if self.total else 0.0

    def interval(self) -> tuple[float, float]:
        """The shares between which that of the whole module is, if these mutants were drawn by chance."""
        if not self.total:
            return 0.0, 1.0
        z, n, p = 1.96, self.total, self.share
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        reach = z / (1 + z * z / n) * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, middle - reach), min(1.0, middle + reach)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="MODULE")
    parser.add_argument("--sample", type=int, metavar="N", help="try so many mutants of each module")
    arguments = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    groups = _groups(project, _modules(project, arguments.modules))
    tallies: dict[str, Tally] = {}
    for tests, modules in groups.items():
        print(f"{len(modules)} modules, tests in {' '.join(tests)}", flush=True)
        tallies |= _try(modules, tests, arguments.sample)
    return _report(tallies, arguments.sample)


def _try(modules: list[str], tests: tuple[str, ...], sample: int | None) -> dict[str, Tally]:
    _prepare(modules, tests)
    command = [sys.executable, str(ROOT / "tools" / "mutation_run.py")]
    command += [] if sample is None else ["--sample", str(sample)]
    with (WORK / "run.log").open("w", encoding="utf-8") as log:
        run = subprocess.run(command, cwd=WORK, stdout=log, stderr=subprocess.STDOUT, check=False)
    if run.returncode:
        sys.exit(f"the run did not come to its end ({run.returncode}): see {WORK / 'run.log'}")
    results = json.loads((WORK / "results.json").read_text("utf-8"))
    shutil.rmtree(WORK)
    return {module: _tally(module, results[module]) for module in modules}


def _modules(project: dict[str, Any], wanted: list[str]) -> list[str]:
    """The decision modules of the policy package, or those of them that are asked for."""
    patterns = project["tool"]["coverage"]["report"]["include"]
    files = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "policy").rglob("*.py"))]
    decisive = [name for name in files if any(fnmatch(name, pattern) for pattern in patterns)]
    found = [name for name in decisive if not wanted or any(fnmatch(name, each) for each in wanted)]
    if not found:
        sys.exit(f"no decision module is called {' or '.join(wanted)}")
    return found


def _groups(project: dict[str, Any], modules: list[str]) -> dict[tuple[str, ...], list[str]]:
    """The modules by the tests that can notice a fault in them."""
    patterns = project["tool"]["lakewarden"]["mutation"]["tests"]
    groups: dict[tuple[str, ...], list[str]] = {}
    for module in modules:
        named = next(tests for pattern, tests in patterns.items() if fnmatch(module, pattern))
        paths = sorted({path.relative_to(ROOT).as_posix() for each in named for path in ROOT.glob(each)})
        groups.setdefault(tuple(paths), []).append(module)
    return groups


def _prepare(modules: list[str], tests: tuple[str, ...]) -> None:
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("policy", "catalog"):
        shutil.copytree(ROOT / name, WORK / name, ignore=ignore)
    for name in ("policy", "locations", "support", "vectors"):
        shutil.copytree(ROOT / "tests" / name, WORK / "tests" / name, ignore=ignore)
    settings = {
        "source_paths": ["policy"],
        "also_copy": ["catalog"],
        "only_mutate": modules,
        "pytest_add_cli_args": ["-p", "no:cacheprovider"],
        "pytest_add_cli_args_test_selection": tests,
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    pytest = '[tool.pytest.ini_options]\npythonpath = ["."]\nmarkers = ["core", "slow"]\n'
    (WORK / "pyproject.toml").write_text("\n".join(["[tool.mutmut]", *lines, "", pytest]), "utf-8")


def _tally(module: str, results: dict[str, dict[str, Any]]) -> Tally:
    tally = Tally()
    equivalents = {(each["module"], each["function"], each["change"].strip()) for each in _equivalents()}
    for name, result in results.items():
        code, change = result["code"], result["change"]
        if code not in UNNOTICED:
            tally.killed += 1
            tally.out_of_time += [f"{name}\n{change}"] if code in OUT_OF_TIME else []
        elif (module, _function(name), change) in equivalents or _says_the_same(change):
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


def _says_the_same(change: str) -> bool:
    """Whether lines differ in nothing but what has no meaning."""
    plain = [line[2:] for line in change.splitlines()]
    for pattern, meaning in _NO_MEANING:
        plain = [pattern.sub(meaning, line) for line in plain]
    return plain[: len(plain) // 2] == plain[len(plain) // 2 :]


def _report(tallies: dict[str, Tally], sample: int | None) -> int:
    for tally in tallies.values():
        for mutant in tally.alive:
            print(f"alive: {mutant}\n")
        for mutant in tally.out_of_time:
            print(f"killed, being out of time: {mutant}\n")
    width = max(map(len, tallies))
    print(f"{'module':{width}}  mutants  killed  out of time  alive  equivalent  share alive")
    for module, tally in tallies.items():
        print(_row(module, width, tally, sample))
    total = Tally(
        killed=sum(tally.killed for tally in tallies.values()),
        out_of_time=[mutant for tally in tallies.values() for mutant in tally.out_of_time],
        equivalent=sum(tally.equivalent for tally in tallies.values()),
        alive=[mutant for tally in tallies.values() for mutant in tally.alive],
    )
    print(_row("all", width, total, None))
    return int(any(tally.share >= MAX_ALIVE for tally in tallies.values()))


def _row(name: str, width: int, tally: Tally, sample: int | None) -> str:
    counts = f"{tally.total:7}  {tally.killed:6}  {len(tally.out_of_time):11}  {len(tally.alive):5}"
    row = f"{name:{width}}  {counts}  {tally.equivalent:10}  {tally.share:10.1%}"
    if sample is None or tally.total + tally.equivalent < sample:
        return row
    low, high = tally.interval()
    return f"{row}  ({low:.1%} to {high:.1%})"


if __name__ == "__main__":
    sys.exit(main())
