"""Strict reading of typed fields out of a parsed policy document.

Rules:
- Every object has a closed set of names; another name is refused, because a misspelt denial would deny
  nothing.
- A value has its type or is refused; nothing is converted. `null` means the same as leaving the name out, as
  it does for Ranger.
- A refusal names the document, the line and the field: ``policies[3].policyItems[0].accesses[1].type``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from policy.errors import PolicyInvalid
from policy.ranger.positions import PathStep, line_of

MAX_LIST_LENGTH: Final = 100_000
MAX_TEXT_LENGTH: Final = 4096

_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Field:
    """A value in a document, with the way to it.

    Attributes:
        document: name of the document.
        text: the whole document.
        path: names and list positions from the top.
        value: what the JSON decoder gave.
    """

    document: str
    text: str
    path: tuple[PathStep, ...]
    value: object

    @property
    def name(self) -> str:
        """The path as people write it; empty at the top."""
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return "".join(steps).removeprefix(".")

    @property
    def given(self) -> bool:
        """Whether there is a value other than `null`."""
        return self.value is not None

    def invalid(self, problem: str, hint: str | None = None) -> PolicyInvalid:
        """The refusal of this field, to be raised."""
        place = f"{self.document}, line {line_of(self.text, self.path)}"
        where = f"{place}, {self.name}" if self.path else place
        return PolicyInvalid(f"{where}: {problem}", rule="policy-document", hint=hint)

    def members(self, known: frozenset[str]) -> Members:
        """The fields of an object that has no other names than `known`."""
        if not isinstance(self.value, dict):
            raise self.invalid(f"expected an object, got {_kind(self.value)}.")
        for name in self.value:
            if name not in known:
                raise self._child(name).invalid(
                    f"unknown field {name[:80]!r}.", f"Use one of: {', '.join(sorted(known))}."
                )
        return Members(self)

    def names(self) -> tuple[str, ...]:
        """The names of an object whose names are data."""
        if not isinstance(self.value, dict):
            raise self.invalid(f"expected an object, got {_kind(self.value)}.")
        return tuple(self.value)

    def member(self, name: str) -> Field:
        """The field `name` of an object; its value is None where it is left out."""
        return self._child(name)

    def elements(self) -> Iterator[Field]:
        """The elements of a list; none for a list that is left out."""
        if self.value is None:
            return
        if not isinstance(self.value, list):
            raise self.invalid(f"expected a list, got {_kind(self.value)}.")
        if len(self.value) > MAX_LIST_LENGTH:
            raise self.invalid(
                f"the list has {len(self.value)} elements, but at most {MAX_LIST_LENGTH} are allowed."
            )
        for position, element in enumerate(self.value):
            yield Field(self.document, self.text, (*self.path, position), element)

    def string(self) -> str:
        """A text that is not empty, not over-long, and has no control characters."""
        if not isinstance(self.value, str):
            raise self.invalid(f"expected a string, got {_kind(self.value)}.")
        if not self.value.strip():
            raise self.invalid("the string is empty.")
        if len(self.value) > MAX_TEXT_LENGTH:
            raise self.invalid(
                f"the string has {len(self.value)} characters, but at most {MAX_TEXT_LENGTH} are allowed."
            )
        if _UNPRINTABLE.search(self.value):
            raise self.invalid("the string contains a control character or a lone surrogate.")
        return self.value

    def optional_string(self) -> str | None:
        """A text; None where it is left out or blank."""
        if self.value is None or (isinstance(self.value, str) and not self.value.strip()):
            return None
        return self.string()

    def expression(self) -> str | None:
        """A text in another language, kept as it is; None where it is left out or blank."""
        self.remark()
        return self.value if isinstance(self.value, str) and self.value.strip() else None

    def remark(self) -> None:
        """Check a text that has no effect, such as a description."""
        if self.value is not None and not isinstance(self.value, str):
            raise self.invalid(f"expected a string, got {_kind(self.value)}.")

    def boolean(self, default: bool) -> bool:
        """`true` or `false`; `default` where it is left out."""
        if self.value is None:
            return default
        if not isinstance(self.value, bool):
            raise self.invalid(f"expected true or false, got {_kind(self.value)}.")
        return self.value

    def integer(self) -> int | None:
        """A whole number; None where it is left out."""
        if self.value is None:
            return None
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.invalid(f"expected an integer, got {_kind(self.value)}.")
        return self.value

    def strings(self) -> tuple[str, ...]:
        """The texts of a list, each as in `string`."""
        return tuple(element.string() for element in self.elements())

    def _child(self, name: str) -> Field:
        value = self.value.get(name) if isinstance(self.value, dict) else None
        return Field(self.document, self.text, (*self.path, name), value)


@dataclass(frozen=True, slots=True)
class Members:
    """The fields of an object whose names were checked."""

    owner: Field

    def __getitem__(self, name: str) -> Field:
        return self.owner.member(name)


def _kind(value: object) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "null"
    words = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "an integer"}
    return words.get(type(value), "a floating-point number")
