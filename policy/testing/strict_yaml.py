"""YAML that means one thing.

Rules:
- A file is one document of mappings, lists and texts. There are no numbers, truth values, dates or nulls, and
  no anchors, aliases, tags, merge keys and directives.
- What some reader of YAML takes for something else than a text is refused unless it stands in quotes: ``no``,
  ``on``, ``null``, ``.inf``, and whatever begins with a digit, a sign, a tilde or an equals sign, or with a
  dot and a digit (``1e3``, ``012``, ``2030-01-31``, ``.5``).
- A name is given once in a mapping. A list or mapping that is empty would be without effect, and is refused.
- Each refusal names file, line, column and field.

Source: YAML 1.1 and 1.2, which differ in what is a number or a truth value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

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

from policy.errors import InvalidInput, RequestInvalid
from policy.fields import Document, Field
from policy.location.segments import forbidden_character
from policy.strict_json import PathStep

MAX_SIZE: Final = 1024 * 1024
"""Largest file, in bytes."""

MAX_DEPTH: Final = 8
"""How deep lists and mappings nest at most."""

_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", ".nan", ".inf"})
_SURPRISE: Final = re.compile(r"[-+=~0-9]|<<|\.[0-9]|\.[0-9._]*$")
_BLANKS: Final = str.maketrans(dict.fromkeys("\r\n\t", " "))

_Path: TypeAlias = tuple[PathStep, ...]
_Place: TypeAlias = tuple[int, int]


def parse(file: str, data: bytes, rule: str = "policy-test") -> Field:
    """The one document in a file.

    Args:
        file: its name, for messages.
        data: its content, in UTF-8.
        rule: the rule of refusals.

    Raises:
        RequestInvalid: naming line, column and field.
    """
    source = Document(file, lambda _: (1, 1), RequestInvalid, rule)
    if len(data) > MAX_SIZE:
        raise _at(source, (1, 1)).invalid(f"the file has more than {MAX_SIZE} bytes.", "Split it.")
    text = _text_of(source, data)
    try:
        return _Reader(source, yaml.parse(text, Loader=yaml.SafeLoader)).document()
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise _at(source, place).invalid(f"this is not YAML: {problem.problem}.") from problem
    except (yaml.YAMLError, ValueError, OverflowError) as problem:
        # Also PyYAML's own arithmetic, on escapes and versions that are no numbers a machine has.
        raise _at(source, (1, 1)).invalid("the file has an invalid escape or number.") from problem


def _text_of(source: Document, data: bytes) -> str:
    """The text, which shows all that it holds to those who read the file."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise _at(source, (line, 1)).invalid(f"byte {problem.start} is not UTF-8.") from problem
    hidden = forbidden_character(text.translate(_BLANKS))
    if hidden is not None:
        at = text.index(chr(int(hidden.removeprefix("U+"), 16)))
        place = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        raise _at(source, place).invalid(
            f"the file contains the invisible character {hidden}.", "Write it as an escape."
        )
    return text


def _at(source: Document, place: _Place, path: _Path = (), value: object = None) -> Field:
    """A value at a place of a file."""
    return Field(replace(source, place=lambda _: place), path, value)


@dataclass
class _Reader:
    """Builds values from events, which come one after the other and cost no more than their text.

    Attributes:
        source: the file.
        events: the events that are left.
        places: line and column where a value, or its name, begins, by path.
    """

    source: Document
    events: Iterator[Event]
    places: dict[_Path, _Place] = field(default_factory=dict)

    def document(self) -> Field:
        """The only document."""
        next(self.events)
        start = next(self.events)
        if isinstance(start, StreamEndEvent):
            raise _at(self.source, (1, 1)).invalid("the file is empty.", "Add cases, or remove the file.")
        if isinstance(start, DocumentStartEvent) and (start.version or start.tags):
            raise self._invalid(start, (), "directives are not supported.")
        value = self._value(next(self.events), ())
        next(self.events)
        after = next(self.events)
        if not isinstance(after, StreamEndEvent):
            raise self._invalid(after, (), "the file contains a second document.", "Move it to another file.")
        top = _at(self.source, self.places[()], (), value)
        return replace(top, document=replace(top.document, place=self._place))

    def _place(self, path: _Path) -> _Place:
        while path not in self.places:
            path = path[:-1]
        return self.places[path]

    def _value(self, event: Event, path: _Path) -> object:
        self._check(event, path)
        self.places.setdefault(path, _place_of(event))
        if isinstance(event, ScalarEvent):
            return self._text(event, path)
        is_mapping = isinstance(event, MappingStartEvent)
        value = dict(self._members(path)) if is_mapping else list(self._elements(path))
        if not value:
            kind = "object" if is_mapping else "list"
            raise _at(self.source, self.places[path], path).invalid(
                f"the {kind} is empty.", "Omit the field."
            )
        return value

    def _check(self, event: Event, path: _Path) -> None:
        if isinstance(event, AliasEvent) or (isinstance(event, NodeEvent) and event.anchor is not None):
            raise self._invalid(
                event, path, "anchors and aliases are not supported.", "Write the value in full."
            )
        if isinstance(event, ScalarEvent | CollectionStartEvent) and event.tag is not None:
            raise self._invalid(
                event,
                path,
                "tags are not supported.",
                "Remove the part that begins with an exclamation mark.",
            )
        if len(path) > MAX_DEPTH:
            raise self._invalid(event, path, f"values are nested deeper than {MAX_DEPTH} levels.")

    def _elements(self, path: _Path) -> Iterator[object]:
        position = 0
        while not isinstance(event := next(self.events), SequenceEndEvent):
            yield self._value(event, (*path, position))
            position += 1

    def _members(self, path: _Path) -> Iterator[tuple[str, object]]:
        seen: set[str] = set()
        while isinstance(event := next(self.events), NodeEvent):
            self._check(event, path)
            if not isinstance(event, ScalarEvent):
                raise self._invalid(event, path, "a field name must be a string.")
            key = _at(self.source, _place_of(event), path, self._text(event, path))
            name = key.line_of_text()
            if name in seen:
                raise key.invalid(f"the field {name[:80]!r} occurs twice.")
            seen.add(name)
            self.places[*path, name] = _place_of(event)
            yield name, self._value(next(self.events), (*path, name))

    def _text(self, event: ScalarEvent, path: _Path) -> str:
        value = str(event.value)
        plain = event.style is None
        if plain and not value:
            raise self._invalid(event, path, "the value is missing.", "Add a value, or omit the field.")
        if plain and (value.lower() in _WORDS or _SURPRISE.match(value)):
            raise self._invalid(
                event, path, f"{value[:80]!r} is not a string to every YAML parser.", "Quote the value."
            )
        return value

    def _invalid(self, event: Event, path: _Path, problem: str, hint: str | None = None) -> InvalidInput:
        return _at(self.source, _place_of(event), path).invalid(problem, hint)


def _place_of(event: Event) -> _Place:
    mark = event.start_mark
    return (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
