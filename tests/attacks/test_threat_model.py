"""The threat model promises only what a test holds."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
_DEFINED = re.compile(r"^ *def (test_\w+)\(", re.MULTILINE)


def _promises() -> list[str]:
    """The list items under "What is promised"."""
    text = (_ROOT / "docs" / "threat-model.md").read_text()
    promised = text.partition("\n## What is promised\n")[2].partition("\n## ")[0]
    return [line for line in promised.splitlines() if line.startswith("- ")]


@cache
def _functions(path: str) -> set[str]:
    return set(_DEFINED.findall((_ROOT / path).read_text()))


def test_every_promise_names_a_test() -> None:
    promises = _promises()
    assert promises
    assert [promise for promise in promises if not _NAMED.search(promise)] == []


def test_every_test_that_is_named_exists() -> None:
    named = {match.groups() for promise in _promises() for match in _NAMED.finditer(promise)}
    assert [f"{path}::{name}" for path, name in sorted(named) if name not in _functions(path)] == []


def test_every_guard_that_can_be_switched_off_is_there() -> None:
    table = tomllib.loads((_ROOT / "tests" / "guards.toml").read_text())
    named = {name for guard in table["guard"] for name in _listed(guard["off"])}
    assert len(named) > 20
    assert [name for name in sorted(named) if not _exists(name)] == []


def _listed(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names


def _exists(name: str) -> bool:
    module, _, path = name.partition(":")
    try:
        attrgetter(path)(import_module(module))
    except (ModuleNotFoundError, AttributeError):
        return False
    return True
