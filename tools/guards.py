"""Shows that each test named by the threat model fails when its guard is removed.

Usage: python tools/guards.py [pytest arguments], such as tests/attacks or -k spellings; without a path, every
test that docs/threat-model.md names under "What is promised".

This is a pytest plugin. While it is loaded, every `raise` of a `LakewardenError` in the product is a
guard that can be switched off. Each test runs once as it is, which tells the guards that refuse something
in it, then once more for each of these without it, the last one first, until one of the test's own
statements fails: then it is held. Where each of several guards is enough, they are taken away together. A
test that only fails because something is refused for another reason is held by another refusal; one that
fails by the error that the guard should have made a refusal, by what makes it a refusal. One that
breaks otherwise (the code behind the guard could not go on, or waits for what does not come) is held
weakly. A guard that refuses nothing in this process needs a line in tests/guards.toml: the function that
it is (`off`, which then returns `gives` at once, an expression of its module, of what the function was
called with (`given`, `named`) and of the function itself (`was`)). Guards of which each is enough are one
list. A test without a guard has a line there too, with the reason (`control`).

Prints each test that no guard holds; ends with 1 if there is one.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import re
import sys
import tomllib
import unittest.mock
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
PROMISES: Final = ROOT / "docs" / "threat-model.md"
TABLE: Final = ROOT / "tests" / "guards.toml"
PACKAGES: Final = ("policy", "catalog", "spark_ext", "lakewarden")
_NAMED: Final = re.compile(r"`(tests/[\w/]+\.py::test_\w+)`")
_STANDS: Final = "__guard_stands__"
#: How many guards are taken away together.
TOGETHER: Final = 6
#: How long one run of a test may take, in seconds.
LIMIT: Final = 60
#: How the errors begin by which a test says itself that something is not as it should be.
_OWN: Final = ("AssertionError", "assert ", "Failed: ", "in the test: ")
_CONVERTS: Final = " that converts an error"
_TIMED_OUT: Final = "Timeout (>"
_REFUSED: Final = re.compile(r"(policy|catalog|spark_ext)(\.\w+)*\.errors\.")


@dataclass
class Switches:
    """Which guards refused something in the test that runs, in order, and which ones are off."""

    seen: dict[str, None] = field(default_factory=dict)
    off: frozenset[str] = frozenset()

    def stands(self, place: str, error: object) -> bool:
        """Whether the `raise` at `place` is carried out."""
        from policy.errors import LakewardenError

        if not isinstance(error, LakewardenError):
            return True
        self.seen.pop(place, None)
        self.seen[place] = None
        return place not in self.off

    @contextmanager
    def without(self, places: frozenset[str]) -> Iterator[None]:
        """The guards at `places` are off meanwhile."""
        self.seen.clear()
        self.off = places
        try:
            yield
        finally:
            self.off = frozenset()


SWITCHES: Final = Switches()


class _Switchable(ast.NodeTransformer):
    """Puts `if stands(place, error):` before each `raise error`; one that converts an error lets it pass."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._converts = False

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        outside, self._converts = self._converts, True
        self.generic_visit(node)
        self._converts = outside
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        if node.exc is None:
            return node
        error = ast.Name("__guard_error__", ast.Load())
        place = f"{self._file}:{node.lineno}{_CONVERTS if self._converts else ''}"
        asked = ast.Call(ast.Name(_STANDS, ast.Load()), [ast.Constant(place), error], [])
        made = ast.Assign([ast.Name("__guard_error__", ast.Store())], node.exc)
        raised = ast.If(asked, [ast.Raise(error, node.cause)], [ast.Raise()] if self._converts else [])
        switch = ast.If(ast.Constant(True), [made, raised], [])
        return ast.fix_missing_locations(ast.copy_location(switch, node))


class _Loader(importlib.machinery.SourceFileLoader):
    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:
        tree = _Switchable(str(Path(path).relative_to(ROOT))).visit(ast.parse(data))
        code: CodeType = compile(tree, path, "exec", dont_inherit=True)
        return code

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[_STANDS] = SWITCHES.stands
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path or [str(ROOT)])
        if spec is None or not spec.origin or not spec.origin.endswith(".py"):
            return spec
        spec.loader = _Loader(fullname, spec.origin)
        return spec


@dataclass(frozen=True)
class Removal:
    """A line of tests/guards.toml: functions that return at once.

    Attributes:
        off: the functions, as `catalog.state.seals:check_digest` or `module:Class.method`.
        gives: what they return, a Python expression.
        tests: the tests that fail then.
    """

    off: tuple[str, ...]
    gives: str
    tests: tuple[str, ...]

    @contextmanager
    def removed(self) -> Iterator[None]:
        with ExitStack() as patches:
            for each in self.off:
                patches.enter_context(self._patch(each))
            yield

    def _patch(self, off: str) -> AbstractContextManager[object]:
        name, _, path = off.partition(":")
        module = holder = importlib.import_module(name)
        *outer, last = path.split(".")
        for part in outer:
            holder = getattr(holder, part)
        was = getattr(holder, last)  # a name that is not there is an error, not a guard that is off

        def instead(*given: Any, **named: Any) -> Any:
            return eval(self.gives, module.__dict__ | {"given": given, "named": named, "was": was})

        return unittest.mock.patch.object(holder, last, instead)


def table() -> tuple[list[Removal], dict[str, str]]:
    """The removals and the controls of tests/guards.toml."""
    read = tomllib.loads(TABLE.read_text())
    removals = [
        Removal(
            (each["off"],) if isinstance(each["off"], str) else tuple(each["off"]),
            each.get("gives", "None"),
            tuple(each["tests"]),
        )
        for each in read.get("guard", [])
    ]
    return removals, {each["test"]: each["reason"] for each in read.get("control", [])}


def promised() -> list[str]:
    """The tests that the threat model names under "What is promised"."""
    text = PROMISES.read_text().partition("\n## What is promised\n")[2].partition("\n## ")[0]
    return sorted(set(_NAMED.findall(text)))


class _Next:
    """What pytest takes for the next test: it ends every fixture but those of the session."""

    def __init__(self, item: pytest.Item) -> None:
        self._session = item.session

    def listchain(self) -> list[Any]:
        return [self._session, self]


class Plugin:
    """Runs each test with all guards, then without one after the other."""

    def __init__(self) -> None:
        self.removals, self.controls = table()
        self.held: dict[str, str] = {}
        self.otherwise: dict[str, list[str]] = {}
        self.converted: dict[str, list[str]] = {}
        self.weakly: dict[str, list[str]] = {}
        self.broken: list[str] = []
        self.tried: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        test = item.nodeid.partition("[")[0]
        self.tried.add(test)
        if not self._is_proven(test):
            self._prove(item, test)
            reporter: Any = item.config.pluginmanager.get_plugin("terminalreporter")
            reporter.write_line(f"{len(self.tried)}: {test}: {self._verdict(test)}")
        item.session._setupstate.teardown_exact(nextitem)
        return True

    def _prove(self, item: pytest.Item, test: str) -> None:
        SWITCHES.seen.clear()
        named = [each for each in self.removals if test in each.tests]
        if (failure := self._failure(item)) is not None:
            self.broken.append(f"{item.nodeid} ({failure})")
            return
        for removal in named:
            with removal.removed():
                failure = self._failure(item)
            self._note(test, " and ".join(removal.off), failure, waits=True)
        for place in list(SWITCHES.seen)[::-1] if not self._is_proven(test) else ():
            with SWITCHES.without(frozenset({place})):
                self._note(test, place, self._failure(item))
            if test in self.held:
                return
        if not self._is_proven(test):
            self._together(item, test)

    def _together(self, item: pytest.Item, test: str) -> None:
        """Takes one guard after the other away, the one that refused last, until the test fails."""
        off: list[str] = []
        failure = None
        while failure is None and len(off) < TOGETHER:
            with SWITCHES.without(frozenset(off)):
                failure = self._failure(item)
            left = [each for each in SWITCHES.seen if each not in off]
            if failure is None and not left:
                return
            off += left[-1:] if failure is None else []
        if off:
            self._note(test, " and ".join(off), failure)
        else:
            self.broken.append(f"{item.nodeid} (run twice: {failure})")

    def _note(self, test: str, guard: str, failure: str | None, *, waits: bool = False) -> None:
        """What came of a run; `waits`, whether a run that does not end is what has to be seen."""
        if failure is None:
            return
        said = f"{guard} ({failure})"
        if failure.startswith(_OWN) and (waits or _TIMED_OUT not in failure):
            self.held[test] = said
        elif _REFUSED.match(failure):
            self.otherwise.setdefault(test, []).append(said)
        elif guard.endswith(_CONVERTS):
            self.converted.setdefault(test, []).append(said)
        else:
            self.weakly.setdefault(test, []).append(said)

    def _failure(self, item: pytest.Item) -> str | None:
        """The kind of error by which the test fails now; none if it passes.

        No run uses what a fixture made for another one, beside what lasts for the session: tests that share
        it may not run twice.
        """
        from _pytest.runner import call_and_report

        if hasattr(item, "_initrequest"):
            item._initrequest()
        kind: list[str | None] = []
        try:
            for when in ("setup", "call"):
                report = call_and_report(item, when, log=False)
                if report.failed:
                    kind.append(_kind(report))
                    break
        finally:
            call_and_report(item, "teardown", log=False, nextitem=_Next(item))
        return kind[0] if kind else None

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        loose = [each for each in sorted(self.tried) if not self._is_proven(each)]
        for each in self.broken:
            terminalreporter.write_line(f"fails with its guards in place: {each}")
        for each in loose:
            terminalreporter.write_line(f"{each}: {self._verdict(each)}")
        otherwise = self.otherwise.keys() - self.held
        converted = self.converted.keys() - self.held - otherwise
        terminalreporter.write_line(
            f"{len(self.tried)} tests, {len(self.held)} held, {len(otherwise)} by another refusal, "
            f"{len(converted)} by what makes it a refusal, "
            f"{len(self.controls.keys() & self.tried)} controls, {len(loose)} not, {len(self.broken)} broken"
        )
        self.loose = loose

    def _verdict(self, test: str) -> str:
        if test in self.controls:
            return "a control"
        if test in self.held:
            return f"held by {self.held[test]}"
        if test in self.otherwise:
            return f"held by another refusal: {self.otherwise[test][0]}"
        if test in self.converted:
            return f"held by what makes it a refusal: {self.converted[test][0]}"
        weakly = ", ".join(dict.fromkeys(self.weakly.get(test, [])))
        return f"held weakly by {weakly}" if weakly else "held by no guard"

    def _is_proven(self, test: str) -> bool:
        return any(test in each for each in (self.held, self.otherwise, self.converted, self.controls))


def _kind(report: Any) -> str:
    """The first line of the error, and whether the test's own code raised it."""
    crash = getattr(report.longrepr, "reprcrash", None)
    said = str(crash.message if crash else report.longrepr).strip().partition("\n")[0][:160]
    own = crash is not None and (ROOT / crash.path).is_relative_to(ROOT / "tests")
    return f"in the test: {said}" if own and not (_REFUSED.match(said) or said.startswith(_OWN)) else said


_OPTIONS: Final = (
    *("-q", "-p", "no:lakewarden", "-p", "no:cacheprovider", "--assert=plain"),
    *(f"--timeout={LIMIT}", "-o", "timeout_func_only=true"),
)


def main(arguments: list[str]) -> int:
    plugin = Plugin()
    chosen = arguments if any(not each.startswith("-") for each in arguments) else [*arguments, *promised()]
    sys.meta_path.insert(0, _Finder())
    status = pytest.main(
        [*_OPTIONS, *chosen],
        plugins=[plugin],
    )
    return int(status) or (1 if plugin.loose or plugin.broken else 0)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
