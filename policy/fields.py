"""Reads typed values out of a decoded document, JSON or YAML.

Rules:
- Every object has a closed set of names; another name is refused, because a misspelt denial would deny
  nothing.
- A value has its type or is refused; nothing is converted. `null` means the same as leaving the name out, as
  it does for Ranger.
- A refusal names the document, the place and the field:
  ``lake.json, line 31, policies[3].policyItems[0].accesses[1].type``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from policy import strict_json
from policy.errors import InvalidInput, PolicyInvalid
from policy.location.segments import forbidden_character
from policy.strict_json import PathStep, line_of

MAX_LIST_LENGTH: Final = 100_000
MAX_STRING_LENGTH: Final = 4096

MAX_TEXT_LENGTH: Final = 64 * 1024
"""Longest text in another language, such as SQL, in characters."""

_MAX_NAME_SHOWN: Final = 80
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Document:
    """A decoded text, as its refusals name it.

    Attributes:
        name: its name.
        place: line, or line and column, from 1, of the value at a path; of its nearest parent if there is
            none.
        error: the class of a refusal.
        rule: the rule of a refusal.
    """

    name: str
    place: Callable[[tuple[PathStep, ...]], tuple[int, ...]]
    error: type[InvalidInput]
    rule: str


@dataclass(frozen=True, slots=True)
class Field:
    """A value in a document, with the way to it.

    Attributes:
        document: the document.
        path: names and list positions from the top.
        value: what the decoder gave.
    """

    document: Document
    path: tuple[PathStep, ...]
    value: object

    def __getitem__(self, name: str) -> Field:
        """The field `name` of an object; its value is None where it is left out."""
        value = self.value.get(name) if isinstance(self.value, dict) else None
        return Field(self.document, (*self.path, name), value)

    @property
    def line(self) -> int:
        """The line where it begins, from 1."""
        return self.document.place(self.path)[0]

    @property
    def given(self) -> bool:
        """Whether there is a value other than `null`."""
        return self.value is not None

    def invalid(self, problem: str, hint: str | None = None) -> InvalidInput:
        """The refusal of this field, to be raised."""
        place = zip(("line", "column"), self.document.place(self.path), strict=False)
        where = [self.document.name, *(f"{word} {number}" for word, number in place)]
        if self.path:
            where.append(_shown(self.path))
        return self.document.error(f"{', '.join(where)}: {problem}", rule=self.document.rule, hint=hint)

    @contextmanager
    def located(self) -> Iterator[None]:
        """Refuse this field for what the rules of names, patterns and requests refuse inside of the block."""
        try:
            yield
        except InvalidInput as problem:
            if problem.rule == self.document.rule:
                raise
            raise self.invalid(problem.message, problem.hint) from problem
        except ValueError as problem:
            raise self.invalid(f"{problem}.") from problem

    def members(self, known: frozenset[str]) -> Field:
        """This object, which has no other names than `known`."""
        for name in self.names():
            if name not in known:
                raise self[name].invalid(
                    f"unknown field {name[:_MAX_NAME_SHOWN]!r}.", f"Use one of: {', '.join(sorted(known))}."
                )
        return self

    def names(self) -> tuple[str, ...]:
        """The names of an object."""
        if not isinstance(self.value, dict):
            raise self._expected("an object")
        return tuple(self.value)

    def required(self, name: str) -> Field:
        """The field `name` of an object, which must not be left out."""
        if not self[name].given:
            raise self.invalid(f"the field {name} is missing.", "Add it.")
        return self[name]

    def elements(self) -> Iterator[Field]:
        """The elements of a list; none for a list that is left out."""
        if self.value is None:
            return
        if not isinstance(self.value, list):
            raise self._expected("a list")
        if len(self.value) > MAX_LIST_LENGTH:
            raise self.invalid(
                f"the list has {len(self.value)} elements, but at most {MAX_LIST_LENGTH} are allowed."
            )
        for position, element in enumerate(self.value):
            yield Field(self.document, (*self.path, position), element)

    def text(self, max_length: int = MAX_TEXT_LENGTH) -> str:
        """A text that is not blank and not over-long; lines and invisible characters are part of it."""
        if not isinstance(self.value, str):
            raise self._expected("a string")
        if not self.value.strip():
            raise self.invalid("the string is empty.")
        if len(self.value) > max_length:
            raise self.invalid(
                f"the string has {len(self.value)} characters, but at most {max_length} are allowed."
            )
        if _SURROGATE.search(self.value):
            raise self.invalid("the string contains a lone surrogate.")
        return self.value

    def line_of_text(self) -> str:
        """A text of one line that shows all that it holds."""
        found = self.text()
        if (forbidden := forbidden_character(found)) is not None:
            raise self.invalid(f"the character {forbidden} is not allowed.")
        return found

    def optional_line(self) -> str | None:
        """A text as in `line_of_text`; None where it is left out."""
        return self.line_of_text() if self.given else None

    def lines(self) -> tuple[str, ...]:
        """The texts of a list, as in `line_of_text`, each once."""
        found: list[str] = []
        for element in self.elements():
            if element.line_of_text() in found:
                raise element.invalid(f"{element.value!r} is listed twice.")
            found.append(element.line_of_text())
        return tuple(found)

    def choice(self, *known: str) -> str:
        """One of some words."""
        found = self.line_of_text()
        if found not in known:
            raise self.invalid(f"{found[:_MAX_NAME_SHOWN]!r} is not one of {', '.join(known)}.")
        return found

    def string(self) -> str:
        """A text without control characters, of at most `MAX_STRING_LENGTH` characters."""
        found = self.text(MAX_STRING_LENGTH)
        if _CONTROL.search(found):
            raise self.invalid("the string contains a control character.")
        return found

    def optional_string(self) -> str | None:
        """A text as in `string`; None where it is left out or blank."""
        return None if self._is_blank() else self.string()

    def strings(self) -> tuple[str, ...]:
        """The texts of a list, each as in `string`."""
        return tuple(element.string() for element in self.elements())

    def expression(self) -> str | None:
        """A text in another language, kept as it is; None where it is left out or blank."""
        self.remark()
        return None if self._is_blank() else str(self.value)

    def remark(self) -> None:
        """Check a text that has no effect, such as a description."""
        if not isinstance(self.value, str | None):
            raise self._expected("a string")

    def boolean(self, default: bool) -> bool:
        """`true` or `false`; `default` where it is left out."""
        if self.value is None:
            return default
        if not isinstance(self.value, bool):
            raise self._expected("true or false")
        return self.value

    def integer(self) -> int | None:
        """A whole number; None where it is left out."""
        if self.value is None:
            return None
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self._expected("an integer")
        return self.value

    def _is_blank(self) -> bool:
        return self.value is None or (isinstance(self.value, str) and not self.value.strip())

    def _expected(self, kind: str) -> InvalidInput:
        return self.invalid(f"expected {kind}, got {_kind(self.value)}.")


def of_json(
    name: str,
    data: bytes | str,
    *,
    what: str,
    max_size: int,
    pause: Callable[[], None] | None = None,
) -> Field:
    """A policy document in JSON.

    Args:
        name: its name, for messages.
        data: its content; bytes are UTF-8.
        what: what it is, as the subject of a message.
        max_size: the largest content, in bytes (in characters, where text is given).
        pause: is called for each object, so that others can use the interpreter meanwhile.

    Raises:
        PolicyInvalid: it is too large, or not strict JSON.
    """
    if len(data) > max_size:
        raise PolicyInvalid(
            f"{name}: the document has {len(data)} bytes, but at most {max_size} are allowed.",
            rule="policy-document",
            hint="Split it into several documents.",
        )
    value = strict_json.parse(data, what=f"{what} {name}", error=PolicyInvalid, pause=pause)
    text = data.decode("utf-8") if isinstance(data, bytes) else data
    place = Document(name, lambda path: (line_of(text, path),), PolicyInvalid, "policy-document")
    return Field(place, (), value)


def _shown(path: tuple[PathStep, ...]) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step[:_MAX_NAME_SHOWN]}" for step in path)
    return "".join(steps).removeprefix(".")


def _kind(value: object) -> str:
    """What a value is, in words."""
    if value is None:
        return "null"
    words = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "an integer"}
    return words.get(type(value), "a floating-point number")
