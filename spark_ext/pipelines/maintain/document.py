"""Reads the policy of maintenance: which tasks which tables have, how, and how often.

    tables:
      - match: 'sales.*,!sales.tmp_*'
        window: '22:00-06:00 Europe/Berlin'
        compact: {every: '1d', target-size: '512MiB'}
        expire: {every: '1d', age: '30d', keep: '10'}
        orphans: {every: '7d', age: '7d'}
      - match: '*'
        manifests: {every: '30d'}

- The first entry that matches a table applies, and no other one. Settings that it leaves out are those of the
  table's properties, or the defaults of the procedures.
- Every value is a text; see `policy.testing.strict_yaml`. An unknown field, and a value that is not valid, is
  refused with file, line and field.
- No field names a location or a file: tasks find files by the table alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final

from catalog.settings.catalog import MIN_AGE_OF_GARBAGE_S
from policy.fields import Field
from policy.testing.strict_yaml import parse as parse_yaml
from spark_ext.pipelines.budget import Window
from spark_ext.pipelines.lake import Patterns

RULE: Final = "maintenance-policy"

_DURATION: Final = re.compile(r"([1-9][0-9]{0,5})([smhdw])", re.ASCII)
#: Ages are counted back from now, and must not come to a time before 1970.
_LONGEST: Final = timedelta(days=50 * 365)
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SIZE: Final = re.compile(r"([1-9][0-9]{0,8})(KiB|MiB|GiB|TiB)", re.ASCII)
_SIZES: Final = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_LARGEST: Final = 2**63 - 1
_COUNT: Final = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_SHARE: Final = re.compile(r"0\.(?!0+$)[0-9]{1,6}|1", re.ASCII)


class Kind(StrEnum):
    """A task; of one table they are done in this order."""

    COMPACT = "compact"
    POSITION_DELETES = "position-deletes"
    MANIFESTS = "manifests"
    EXPIRE = "expire"
    ORPHANS = "orphans"


@dataclass(frozen=True, slots=True)
class Task:
    """A task of a table.

    Attributes:
        kind: what is done.
        every: how often, in seconds.
        settings: how, by the names of the document; sizes in bytes and ages in seconds.
    """

    kind: Kind
    every: int
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """The tasks of the tables that patterns match, and when they begin; None for any time."""

    patterns: Patterns
    tasks: tuple[Task, ...]
    window: Window | None = None


@dataclass(frozen=True, slots=True)
class MaintenancePolicy:
    """All entries, in the order of the document."""

    entries: tuple[Entry, ...]

    def entry(self, table: str) -> Entry | None:
        """Return the entry of a table: the first one that matches; None if there is none."""
        return next((each for each in self.entries if each.patterns.match(table)), None)


def parse_policy(file: str, data: bytes) -> MaintenancePolicy:
    """Parse a document.

    Args:
        file: its name, for messages.
        data: its content.

    Raises:
        RequestInvalid: naming file, line, column and field of the first thing that is wrong.
    """
    top = parse_yaml(file, data, RULE).members(frozenset({"tables"}))
    return MaintenancePolicy(tuple(_entry(each) for each in top.required("tables").elements()))


def _entry(given: Field) -> Entry:
    given.members(frozenset({"match", "window", *Kind}))
    tasks = tuple(_task(kind, given[kind]) for kind in Kind if given[kind].given)
    if not tasks:
        raise given.invalid("the entry has no task.", f"Add one of: {', '.join(Kind)}.")
    window = given["window"].optional_line()
    with given.required("match").located():
        patterns = Patterns(given["match"].line_of_text())
    with given["window"].located():
        return Entry(patterns, tasks, None if window is None else Window.parse(window))


def _task(kind: Kind, given: Field) -> Task:
    readers = _SETTINGS[kind]
    given.members(frozenset({"every", *readers}))
    settings = {name: read(given[name]) for name, read in readers.items() if given[name].given}
    if "sort-order" in settings and settings.get("strategy") != "sort":
        raise given["sort-order"].invalid("the strategy does not sort.", "Set strategy: sort.")
    return Task(kind, _seconds(given.required("every")), settings)


def _seconds(given: Field) -> int:
    found = _DURATION.fullmatch(given.line_of_text())
    if found is None:
        raise given.invalid(
            f"{given.value!r:.40} is not a duration.", "Write a duration such as '12h' or '7d'."
        )
    seconds = int(found[1]) * _UNITS[found[2]]
    if seconds > _LONGEST.total_seconds():
        raise given.invalid(f"{given.value!r:.40} is too long.", f"Give at most '{_LONGEST.days}d'.")
    return seconds


def _age(given: Field) -> str:
    return str(_seconds(given))


def _old_age(given: Field) -> str:
    if _seconds(given) < MIN_AGE_OF_GARBAGE_S:
        least = timedelta(seconds=MIN_AGE_OF_GARBAGE_S).days
        raise given.invalid("younger files can be in use.", f"Give at least '{least}d'.")
    return str(_seconds(given))


def _size(given: Field) -> str:
    found = _SIZE.fullmatch(given.line_of_text())
    if found is None:
        raise given.invalid(f"{given.value!r:.40} is not a size.", "Write a size such as '512MiB'.")
    size = int(found[1]) * _SIZES[found[2]]
    if size > _LARGEST:
        raise given.invalid(f"{given.value!r:.40} is too large.", "Give a size below '8388608TiB'.")
    return str(size)


def _matching(pattern: re.Pattern[str], what: str) -> Callable[[Field], str]:
    def read(given: Field) -> str:
        text = given.line_of_text()
        if pattern.fullmatch(text) is None:
            raise given.invalid(f"{text!r:.40} is not {what}.")
        return text

    return read


_count = _matching(_COUNT, "a whole number from 1")
_share = _matching(_SHARE, "a number above 0, at most 1")


def _strategy(given: Field) -> str:
    return given.choice("binpack", "sort")


#: By task, its settings and how each is read.
_SETTINGS: Final[Mapping[Kind, Mapping[str, Callable[[Field], str]]]] = {
    Kind.COMPACT: {
        "target-size": _size,
        "group-size": _size,
        "min-input-files": _count,
        "delete-files": _count,
        "delete-ratio": _share,
        "strategy": _strategy,
        "sort-order": Field.line_of_text,
        "where": Field.line_of_text,
    },
    Kind.POSITION_DELETES: {"target-size": _size, "min-input-files": _count, "where": Field.line_of_text},
    Kind.MANIFESTS: {},
    Kind.EXPIRE: {"age": _age, "keep": _count},
    Kind.ORPHANS: {"age": _old_age},
}
