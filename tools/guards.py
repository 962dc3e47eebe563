"""Shows that each test which the threat model names fails when its guard is removed.

Usage: python tools/guards.py [pytest arguments], such as tests/attacks or -k spellings; without a path, every
test that docs/threat-model.md names under "What is promised".

This is a pytest plugin. While it is loaded, every `raise` of a `LakewardenError` in the product is a
guard that can be switched off. Each test runs once as it is, which tells the guards that refuse something
in it, then once more for each of these without it. A test is held by a guard if it then fails by one of
its own assertions, or because something is refused for another reason. One that breaks otherwise (the
code behind the guard could not go on) is held weakly. A guard that refuses nothing in this process needs
a line in tests/guards.toml: the function that it is (`off`, which then returns `gives` at once). So does
a test without a guard, with the reason (`control`).

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
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
PROMISES: Final = ROOT / "docs" / "threat-model.md"
TABLE: Final = ROOT / "tests" / "guards.toml"
PACKAGES: Final = ("policy", "catalog", "spark_ext")
_NAMED: Final = re.compile(r"`(tests/[\w/]+\.py::test_\w+)`")
_STANDS: Final = "__guard_stands__"
#: How many proofs are enough for a test with many cases.
CASES: Final = 3
#: How the errors begin by which a test says that something is not as it should be: its own assertions, and
#: refusals for another reason than the one that it names.
_OWN: Final = ("AssertionError", "assert ", "Failed", "policy.errors.", "catalog.errors.")


@dataclass
class Switches:
    """Which guards refused something in the test that runs, and which one is off."""

    seen: dict[str, None] = field(default_factory=dict)
    off: str | None = None

    def stands(self, place: str, error: object) -> bool:
        """Whether the `raise` at `place` is carried out."""
        from policy.errors import LakewardenError

        if not isinstance(error, LakewardenError):
            return True
        self.seen[place] = None
        return place != self.off


SWITCHES: Final = Switches()


class _Switchable(ast.NodeTransformer):
    """Puts `if stands(place, error):` before each `raise error`."""

    def __init__(self, file: str) -> None:
        self._file = file

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        if node.exc is None:
            return node
        error = ast.Name("__guard_error__", ast.Load())
        asked = ast.Call(
            ast.Name(_STANDS, ast.Load()), [ast.Constant(f"{self._file}:{node.lineno}"), error], []
        )
        made = ast.Assign([ast.Name("__guard_error__", ast.Store())], node.exc)
        raised = ast.If(asked, [ast.Raise(error, node.cause)], [])
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
    """A line of tests/guards.toml: a function that returns at once.

    Attributes:
        off: the function, as `catalog.seals:check_digest` or `module:Class.method`.
        gives: what it returns, a Python expression.
        tests: the tests that fail then.
    """

    off: str
    gives: str
    tests: tuple[str, ...]

    @contextmanager
    def removed(self) -> Iterator[None]:
        module, _, name = self.off.partition(":")
        holder: Any = importlib.import_module(module)
        *path, last = name.split(".")
        for part in path:
            holder = getattr(holder, part)
        getattr(holder, last)  # a name that is not there is an error, not a guard that is off
        with unittest.mock.patch.object(holder, last, lambda *_, **__: eval(self.gives)):
            yield


def table() -> tuple[list[Removal], dict[str, str]]:
    """The removals and the controls of tests/guards.toml."""
    read = tomllib.loads(TABLE.read_text())
    removals = [
        Removal(each["off"], each.get("gives", "None"), tuple(each["tests"]))
        for each in read.get("guard", [])
    ]
    return removals, {each["test"]: each["reason"] for each in read.get("control", [])}


def promised() -> list[str]:
    """The tests that the threat model names under "What is promised"."""
    text = PROMISES.read_text().partition("\n## What is promised\n")[2].partition("\n## ")[0]
    return sorted(set(_NAMED.findall(text)))


class _Sibling:
    """What pytest takes for a test beside this one: it ends this one's own fixtures and keeps shared ones."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item

    def listchain(self) -> list[Any]:
        return [*self._item.listchain()[:-1], self]


class Plugin:
    """Runs each test with all guards, then without one after the other."""

    def __init__(self) -> None:
        self.removals, self.controls = table()
        self.held: dict[str, list[str]] = {}
        self.weakly: dict[str, list[str]] = {}
        self.broken: list[str] = []
        self.tried: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        test = item.nodeid.partition("[")[0]
        self.tried.add(test)
        if len(self.held.get(test, ())) >= CASES:
            return True
        SWITCHES.seen.clear()
        if self._failure(item) is not None:
            self.broken.append(item.nodeid)
            return True
        places = list(SWITCHES.seen)
        for place in places:
            SWITCHES.off = place
            self._note(test, place, self._failure(item))
        SWITCHES.off = None
        for removal in self.removals:
            if test in removal.tests:
                with removal.removed():
                    self._note(test, removal.off, self._failure(item))
        reporter = item.config.pluginmanager.get_plugin("terminalreporter")
        reporter.write_line(f"{len(self.tried)}: {test}: {self._verdict(test)}")
        return True

    def _note(self, test: str, guard: str, failure: str | None) -> None:
        if failure is not None:
            kept = self.held if failure.startswith(_OWN) else self.weakly
            kept.setdefault(test, []).append(f"{guard} ({failure})")

    def _failure(self, item: pytest.Item) -> str | None:
        """The kind of error by which the test fails now; none if it passes."""
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
            # Nothing that a fixture made is used by the next run, beside what lasts for the session.
            call_and_report(item, "teardown", log=False, nextitem=_Sibling(item))
        return kind[0] if kind else None

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        loose = [each for each in sorted(self.tried) if not self._is_held(each)]
        for each in self.broken:
            terminalreporter.write_line(f"fails with its guards in place: {each}")
        for each in loose:
            terminalreporter.write_line(f"{each}: {self._verdict(each)}")
        terminalreporter.write_line(
            f"{len(self.tried)} tests, {len(self.held)} held, {len(loose)} not, {len(self.broken)} broken"
        )
        self.loose = loose

    def _verdict(self, test: str) -> str:
        if self._is_held(test):
            return f"held by {self.held.get(test, ['a control'])[0]}"
        weakly = ", ".join(dict.fromkeys(self.weakly.get(test, [])))
        return f"held weakly by {weakly}" if weakly else "held by no guard"

    def _is_held(self, test: str) -> bool:
        return test in self.held or test in self.controls


def _kind(report: Any) -> str:
    """The first line of the error."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longrepr).strip().partition("\n")[0][:160]


def main(arguments: list[str]) -> int:
    plugin = Plugin()
    chosen = arguments if any(not each.startswith("-") for each in arguments) else [*arguments, *promised()]
    sys.meta_path.insert(0, _Finder())
    status = pytest.main(
        ["-q", "-p", "no:lakewarden", "-p", "no:cacheprovider", "--timeout=0", "--assert=plain", *chosen],
        plugins=[plugin],
    )
    return int(status) or (1 if plugin.loose or plugin.broken else 0)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
