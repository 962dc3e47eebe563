"""The tests against each mutant, in processes forked from one that has collected the tests once.

Called by tools/mutation.py, in the directory that it prepared. mutmut makes the mutants; its own way to run
them starts pytest anew each time, which takes longer than the tests do. Here a child is forked for each
mutant from a process in which all is imported and collected. It runs the tests that reach the mutated
function, those first that noticed most mutants before for the time that they take, then the fastest, and ends
at the first that fails.

For each test a child may use CPU time in proportion to what the test takes without a fault; the load of the
machine does not count. What uses more is stopped by the system, which says so (SIGXCPU).

Writes results.json: for each module the mutants that were tried, with how the child ended and, where that was
not by a test that failed, the lines that differ.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from mutmut.__main__ import create_mutants
from mutmut.configuration import config
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state
from mutmut.utils.file_utils import copy_also_copy_files, copy_src_dir, walk_mutatable_files
from mutmut.utils.format_utils import mangled_name_from_mutant_name

WORKERS = os.cpu_count() or 1
UNNOTICED = 0
FAILED = 1
BROKEN = 70
"""The code of a child that came to no answer; one that was killed from outside has none either."""
NO_TESTS = 33
"""The code of a mutant of a function that no test reaches."""
_UNUSED = ("logging", "pytest_cov", "xdist", "anyio", "faulthandler", "timeout", "warnings")
_LEAN = [word for name in _UNUSED for word in ("-p", f"no:{name}")]
"""Parts of pytest that take time at each test."""
_CPU_SECONDS = 5
_CPU_FACTOR = 10
_WALL_SECONDS = 1200
_MEMORY = 4 << 30


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int)
    mutants = _make_mutants(parser.parse_args().sample)
    settings = config()
    work = Path.cwd()
    os.chdir("mutants")
    sys.path.insert(0, str(Path.cwd()))
    trials = Trials([name for names in mutants.values() for name in names])
    options = [*settings.pytest_add_cli_args, *settings.pytest_add_cli_args_test_selection]
    code = pytest.main(["--rootdir=.", "-s", "-q", "--tb=native", *_LEAN, *options], plugins=[trials])
    os.chdir(work)
    broken = [name for name, code in trials.codes.items() if code in (BROKEN, -signal.SIGKILL)]
    if broken:
        print("no answer from", *broken)
    if code or broken or len(trials.codes) < sum(map(len, mutants.values())):
        return int(code) or 1
    results = {
        module: {name: _result(module, name, trials.codes[name]) for name in names}
        for module, names in mutants.items()
    }
    Path("results.json").write_text(json.dumps(results), "utf-8")
    return 0


def _make_mutants(sample: int | None) -> dict[str, list[str]]:
    """The mutants to try, by module: all, or so many of each, which are the same in each run."""
    Path("mutants").mkdir()
    copy_src_dir()
    copy_also_copy_files()
    create_mutants(WORKERS)
    found = {}
    for path in walk_mutatable_files():
        made = SourceFileMutationData(path=path)
        made.load()
        names = sorted(made.exit_code_by_key)
        chosen = (
            names if sample is None else random.Random(path.as_posix()).sample(names, min(sample, len(names)))
        )
        found[path.as_posix()] = chosen
    return found


def _result(module: str, name: str, code: int) -> dict[str, Any]:
    return {"code": code, "change": "" if code == FAILED else _change(module, name)}


def _change(module: str, name: str) -> str:
    """The lines that a mutant takes out and puts in."""
    shown = get_diff_for_mutant(name, path=module).splitlines()
    changed = [line for line in shown if line[:1] in ("-", "+") and line[:3] not in ("---", "+++")]
    return "\n".join(f"{line[0]} {line[1:].strip()}" for line in changed)


class Trials:
    """The place of pytest's loop over the tests: a loop over the mutants."""

    def __init__(self, mutants: list[str]) -> None:
        self.codes: dict[str, int] = {}
        self._mutants = mutants
        self._running: dict[int, str] = {}
        self._items: list[pytest.Item] = []
        self._reach: dict[str, list[int]] = {}
        self._seconds: list[float] = []
        self._failures: Counter[int] = Counter()
        self._news, self._tell = os.pipe()

    def pytest_configure(self) -> None:
        # The same examples each time; what fails is not made smaller.
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile(
            "mutation", hypothesis.settings.get_profile("ci"), phases=phases, database=None
        )
        hypothesis.settings.load_profile("mutation")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("not all tests could be collected")
        self._items = session.items
        self._survey()
        gc.freeze()
        self._expect_silence(partial(self._try, "", range(len(self._items))))
        self._mutants.sort(key=self._estimate)
        for done, name in enumerate(self._mutants):
            if not self._tests(name):
                self.codes[name] = NO_TESTS
                continue
            while len(self._running) >= WORKERS:
                self._wait()
            self._running[_fork(partial(self._try, name, self._tests(name)))] = name
            if done % 100 == 0:
                print(f"{done} of {len(self._mutants)}", flush=True)
        while self._running:
            self._wait()
        return True

    def _survey(self) -> None:
        """Which tests reach which function, and how much CPU time each takes."""
        report = Path("survey.json")
        self._expect_silence(partial(self._measure, report))
        survey = json.loads(report.read_text("utf-8"))
        self._seconds = survey["seconds"]
        self._reach = {
            function: sorted(tests, key=self._seconds.__getitem__)
            for function, tests in survey["reach"].items()
        }

    def _expect_silence(self, work: Callable[[], None]) -> None:
        """No test fails without a mutant, nor under the limits that a mutant has."""
        _, status = os.waitpid(_fork(work), 0)
        if code := os.waitstatus_to_exitcode(status):
            number = int.from_bytes(os.read(self._news, 4), "big") if code == FAILED else None
            where = code if number is None else self._items[number].nodeid
            raise pytest.UsageError(f"the tests fail without a mutant: {where}")

    def _measure(self, report: Path) -> None:
        set_mutant_under_test("stats")
        reach = defaultdict(list)
        seconds = []
        for number in range(len(self._items)):
            before = time.process_time()
            self._run(number)
            seconds.append(time.process_time() - before)
            for function in state()._stats:
                reach[function].append(number)
            state()._stats.clear()
        report.write_text(json.dumps({"seconds": seconds, "reach": reach}), "utf-8")

    def _tests(self, name: str) -> list[int]:
        return self._reach.get(mangled_name_from_mutant_name(name), [])

    def _worth(self, number: int) -> float:
        """How many mutants a test has noticed for the time that it takes."""
        return self._failures[number] / (self._seconds[number] + 0.001)

    def _estimate(self, name: str) -> float:
        return sum(self._seconds[number] for number in self._tests(name))

    def _try(self, name: str, tests: Iterable[int]) -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        signal.alarm(_WALL_SECONDS)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        set_mutant_under_test(name)
        for number in sorted(tests, key=self._worth, reverse=True):
            limit = ceil(time.process_time() + _CPU_SECONDS + _CPU_FACTOR * self._seconds[number])
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            self._run(number)

    def _run(self, number: int) -> None:
        self._number, item = number, self._items[number]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os.write(self._tell, self._number.to_bytes(4, "big"))
            os._exit(FAILED)

    def _wait(self) -> None:
        pid, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        self.codes[self._running.pop(pid)] = code
        if code == FAILED:
            self._failures[int.from_bytes(os.read(self._news, 4), "big")] += 1


def _fork(work: Callable[[], None]) -> int:
    """Does the work in a child; returns the number of its process."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
        os._exit(UNNOTICED)
    finally:
        os._exit(BROKEN)


if __name__ == "__main__":
    sys.exit(main())
