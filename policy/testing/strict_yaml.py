"""YAML that means one thing.

Rules:
- A file is one document of mappings, lists and texts. There are no numbers, truth values, dates or nulls, and
  no anchors, aliases, tags, merge keys and directives.
- What some reader of YAML takes for something else than a text is refused unless it stands in quotes: ``no``,
  ``on``, ``null``, ``.inf``, and whatever begins with a digit, a sign, a tilde or an equals sign, or with a
  dot and a digit (``1e3``, ``012``, ``2030-01-31``, ``.5``).
- A name is given once in a mapping. Each refusal names file, line, column and field.

Source: YAML 1.1 and 1.2, which differ in what is a number or a truth value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NoReturn, TypeAlias

import yaml
from yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)

from policy.errors import RequestInvalid
from policy.location.segments import forbidden_character

MAX_SIZE: Final = 1024 * 1024
"""Largest file, in bytes."""

MAX_DEPTH: Final = 8
"""How deep lists and mappings nest at most."""

MAX_TEXT: Final = 64 * 1024
"""Longest text, in characters."""

_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", ".nan", ".inf"})
_SURPRISE: Final = re.compile(r"[-+=~0-9]|<<|\.[0-9]|\.[0-9._]*$")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_BLANKS: Final = str.maketrans(dict.fromkeys("\r\n\t", " "))

Step: TypeAlias = str | int


@dataclass(frozen=True, slots=True)
class Node:
    """A value in a file, with its place.

    Attributes:
        file: name of the file.
        line: line where it, or its name, begins; from 1.
        column: column of that, from 1.
        path: names and list positions from the top.
        value: a text, a list, or a mapping by name.
    """

    file: str
    line: int
    column: int
    path: tuple[Step, ...]
    value: str | tuple[Node, ...] | Mapping[str, Node]

    def invalid(self, problem: str, hint: str | None = None) -> RequestInvalid:
        """The refusal of this value, to be raised."""
        return _invalid(self.file, self.line, self.column, problem, hint, self.path)

    def fields(self, *known: str) -> Mapping[str, Node]:
        """The members of a mapping that has no other names than `known`."""
        members = self.members()
        for name, node in members.items():
            if name not in known:
                raise node.invalid("unknown field.", f"Use one of: {', '.join(sorted(known))}.")
        return members

    def members(self) -> Mapping[str, Node]:
        """The members of a mapping whose names are data; at least one."""
        if not isinstance(self.value, Mapping):
            raise self.invalid(f"expected a mapping, got {self._kind}.")
        if not self.value:
            raise self.invalid("the mapping is empty.", "Omit the field.")
        return self.value

    def elements(self) -> tuple[Node, ...]:
        """The elements of a list; at least one."""
        if not isinstance(self.value, tuple):
            raise self.invalid(f"expected a list, got {self._kind}.")
        if not self.value:
            raise self.invalid("the list is empty.", "Omit the field.")
        return self.value

    def text(self) -> str:
        """A text that is not blank; whatever is invisible in it is written as an escape in double quotes."""
        if not isinstance(self.value, str):
            raise self.invalid(f"expected a string, got {self._kind}.")
        if not self.value.strip():
            raise self.invalid("the string is empty.", "Omit the field.")
        if len(self.value) > MAX_TEXT or _SURROGATE.search(self.value):
            raise self.invalid(f"the string has more than {MAX_TEXT} characters, or a lone surrogate.")
        return self.value

    def line_of_text(self) -> str:
        """A text of one line that is not blank and shows all that it holds."""
        found = self.text()
        if (forbidden := forbidden_character(found)) is not None:
            raise self.invalid(f"the character {forbidden} is not allowed.")
        return found

    def texts(self) -> tuple[str, ...]:
        """The texts of a list, each once."""
        found = tuple(node.line_of_text() for node in self.elements())
        for position, node in enumerate(self.elements()):
            if found[position] in found[:position]:
                raise node.invalid(f"{found[position]!r} is listed twice.")
        return found

    def choice(self, *known: str) -> str:
        """One of some words."""
        found = self.line_of_text()
        if found not in known:
            raise self.invalid(f"{found[:80]!r} is not one of {', '.join(known)}.")
        return found

    @property
    def _kind(self) -> str:
        if isinstance(self.value, str):
            return "a string"
        return "a list" if isinstance(self.value, tuple) else "a mapping"


def parse(file: str, data: bytes) -> Node:
    """The one document in a file.

    Args:
        file: its name, for messages.
        data: its content, in UTF-8.

    Raises:
        RequestInvalid: naming line, column and field.
    """
    if len(data) > MAX_SIZE:
        raise _invalid(file, 1, 1, f"the file has more than {MAX_SIZE} bytes.", "Split it.")
    text = _text_of(file, data)
    try:
        return _Reader(file, yaml.parse(text, Loader=yaml.SafeLoader)).document()
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise _invalid(file, line, column, f"this is not YAML: {problem.problem}.") from problem
    except (yaml.YAMLError, ValueError, OverflowError) as problem:
        # Also PyYAML's own arithmetic, on escapes and versions that are no numbers a machine has.
        raise _invalid(file, 1, 1, "the file has an invalid escape or number.") from problem


def _text_of(file: str, data: bytes) -> str:
    """The text, which shows all that it holds to those who read the file."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise _invalid(file, line, 1, f"byte {problem.start} is not UTF-8.") from problem
    hidden = forbidden_character(text.translate(_BLANKS))
    if hidden is not None:
        at = text.index(chr(int(hidden.removeprefix("U+"), 16)))
        raise _invalid(
            file,
            *_place(text, at),
            f"the file contains the invisible character {hidden}.",
            "Write it as an escape.",
        )
    return text


def _place(text: str, at: int) -> tuple[int, int]:
    """Line and column of a character."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def _invalid(
    file: str, line: int, column: int, problem: str, hint: str | None = None, path: tuple[Step, ...] = ()
) -> RequestInvalid:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step[:80]}" for step in path)
    field = "".join(steps).removeprefix(".")
    said = f"{field}: {problem}" if field else problem
    return RequestInvalid(f"{file}, line {line}, column {column}: {said}", rule="policy-test", hint=hint)


@dataclass
class _Reader:
    """Builds nodes from events, which come one after the other and cost no more than their text."""

    file: str
    events: Iterator[Event]

    def document(self) -> Node:
        """The only document."""
        next(self.events)
        start = next(self.events)
        if isinstance(start, StreamEndEvent):
            raise _invalid(self.file, 1, 1, "the file is empty.", "Add cases, or remove the file.")
        if isinstance(start, DocumentStartEvent) and (start.version or start.tags):
            self._refuse(start, (), "directives are not supported.")
        found = self._node(next(self.events), ())
        next(self.events)
        after = next(self.events)
        if not isinstance(after, StreamEndEvent):
            self._refuse(after, (), "the file contains a second document.", "Move it to another file.")
        return found

    def _node(self, event: Event, path: tuple[Step, ...]) -> Node:
        if isinstance(event, AliasEvent) or (isinstance(event, NodeEvent) and event.anchor is not None):
            self._refuse(event, path, "anchors and aliases are not supported.", "Write the value in full.")
        if isinstance(event, ScalarEvent | CollectionStartEvent) and event.tag is not None:
            self._refuse(
                event,
                path,
                "tags are not supported.",
                "Remove the part that begins with an exclamation mark.",
            )
        if len(path) > MAX_DEPTH:
            self._refuse(event, path, f"values are nested deeper than {MAX_DEPTH} levels.")
        value: str | tuple[Node, ...] | Mapping[str, Node]
        if isinstance(event, ScalarEvent):
            value = self._text(event, path)
        elif isinstance(event, MappingStartEvent):
            value = dict(self._members(path))
        else:
            value = tuple(self._elements(path))
        return Node(self.file, *_place_of(event), path, value)

    def _elements(self, path: tuple[Step, ...]) -> Iterator[Node]:
        position = 0
        while not isinstance(event := next(self.events), SequenceEndEvent):
            yield self._node(event, (*path, position))
            position += 1

    def _members(self, path: tuple[Step, ...]) -> Iterator[tuple[str, Node]]:
        seen: set[str] = set()
        while isinstance(event := next(self.events), NodeEvent):
            if not isinstance(event, ScalarEvent):
                self._refuse(event, path, "a field name must be a string.")
            key = self._node(event, path)
            name = key.line_of_text()
            if name in seen:
                raise key.invalid(f"the field {name[:80]!r} occurs twice.")
            seen.add(name)
            value = self._node(next(self.events), (*path, name))
            yield name, replace(value, line=key.line, column=key.column)

    def _text(self, event: ScalarEvent, path: tuple[Step, ...]) -> str:
        value = str(event.value)
        plain = event.style is None
        if plain and not value:
            self._refuse(event, path, "the value is missing.", "Add a value, or omit the field.")
        if plain and (value.lower() in _WORDS or _SURPRISE.match(value)):
            self._refuse(
                event,
                path,
                f"{value[:80]!r} is not a string to every YAML parser.",
                "Quote the value.",
            )
        return value

    def _refuse(
        self, event: Event, path: tuple[Step, ...], problem: str, hint: str | None = None
    ) -> NoReturn:
        raise _invalid(self.file, *_place_of(event), problem, hint, path)


def _place_of(event: Event) -> tuple[int, int]:
    mark = event.start_mark
    return (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
