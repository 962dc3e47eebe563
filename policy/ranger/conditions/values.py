"""Values in the expressions of conditions, and how JavaScript compares them.

Rules:
- What JavaScript does is done where it leaves no doubt about what an author means: texts are compared with
  texts, numbers with numbers, and a text in plain decimal notation with a number by its value.
- What it would convert otherwise is unknown, and so is what tells ``null`` and ``undefined`` apart.
- What is or could be an error to JavaScript (an attribute of nothing, a function that a value does not have)
  makes all of the condition unknown, as `Undecided`. To Ranger it is false, which would lift a denial.

Source: ECMA-262, IsLooselyEqual, IsStrictlyEqual and IsLessThan.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from policy.ranger.conditions.truth import Truth, Unknown, any_of

_DECIMAL: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?")
#: What every object of JavaScript has; an attribute of the name would be told from it by Ranger alone.
_INHERITED: Final = frozenset(
    {
        "constructor",
        "hasOwnProperty",
        "isPrototypeOf",
        "propertyIsEnumerable",
        "toLocaleString",
        "toString",
        "valueOf",
    }
)


class Undecided(Exception):
    """A condition that is unknown as a whole; its text is the reason."""


@dataclass(frozen=True, slots=True)
class Record:
    """An object.

    Attributes:
        entries: its values by name.
        missing: the value of every other name.
    """

    entries: Mapping[str, Value]
    missing: Value = None


Value: TypeAlias = "str | float | bool | tuple[Value, ...] | Record | Unknown | None"
"""A value. None is ``null`` and ``undefined``; a number is a double."""


def truthy(value: Value) -> Truth:
    """The value as an operand of ``!``, ``&&``, ``||`` and ``if``."""
    if isinstance(value, Unknown):
        return value
    return True if isinstance(value, tuple | Record) else bool(value)


def outcome(value: Value) -> Truth:
    """The value as the result of a condition.

    Raises:
        Undecided: it is neither true nor false, but JavaScript would take it as true, and Ranger as false.
    """
    found = truthy(value)
    if found is True and not isinstance(value, bool):
        raise Undecided("its result is a value and not true or false")
    return found


def equals(one: Value, other: Value) -> Truth:
    """``one == other``."""
    if isinstance(one, str) and isinstance(other, float):
        one, other = other, one
    if isinstance(one, float) and isinstance(other, str) and _DECIMAL.fullmatch(other):
        return one == float(other)
    if one is None and other is None:
        return True
    return same(one, other)


def same(one: Value, other: Value) -> Truth:
    """``one === other``."""
    for each in (one, other):
        if isinstance(each, Unknown):
            return each
    if one is None and other is None:
        return Unknown("it tells null and undefined apart")
    if one is None or other is None:
        return False
    if type(one) is type(other) and isinstance(one, str | float | bool):
        return one == other
    return Unknown("it compares values of different types")


def less(one: Value, other: Value) -> Truth:
    """``one < other``."""
    for each in (one, other):
        if isinstance(each, Unknown):
            return each
    if isinstance(one, str) and isinstance(other, str):
        return utf16(one) < utf16(other)
    left, right = _number(one), _number(other)
    if left is None or right is None:
        return Unknown("it orders values of different types")
    return left < right


def _number(value: Value) -> float | None:
    """A number, or a text in plain decimal notation as one; None for anything else."""
    if isinstance(value, str):
        return float(value) if _DECIMAL.fullmatch(value) else None
    return value if isinstance(value, float) else None


def utf16(text: str) -> bytes:
    """The order of texts in JavaScript and Java."""
    return text.encode("utf-16-be", "surrogatepass")


def member(value: Value, name: Value) -> Value:
    """``value.name``, ``value['name']``."""
    for each in (value, name):
        if isinstance(each, Unknown):
            # It could be nothing, which has no attributes.
            raise Undecided(each.reason)
    if not isinstance(name, str) or name in _INHERITED or name.startswith("__"):
        raise Undecided("it looks up something other than an attribute by its name")
    if isinstance(value, Record):
        return value.entries.get(name, value.missing)
    if name == "length" and isinstance(value, str | tuple):
        return len(utf16(value)) / 2 if isinstance(value, str) else float(len(value))
    raise Undecided(f"it looks up {name!r} of {_what(value)}")


def call(value: Value, name: str, arguments: tuple[Value, ...]) -> Value:
    """``value.name(arguments)``."""
    if isinstance(value, Unknown):
        raise Undecided(value.reason)
    if isinstance(value, tuple) and len(arguments) == 1:
        return _of_list(value, name, arguments[0])
    if isinstance(value, str):
        return _of_text(value, name, arguments)
    raise _no_function(value, name)


def _of_list(value: tuple[Value, ...], name: str, sought: Value) -> Value:
    if name == "includes":
        return any_of(same(each, sought) for each in value)
    if name == "indexOf":
        return _position(value, sought)
    if isinstance(sought, Unknown):
        raise Undecided(sought.reason)
    if name == "intersects" and (sought is None or isinstance(sought, tuple)):
        return _intersects(value, sought or ())
    raise _no_function(value, name)


def _of_text(value: str, name: str, arguments: tuple[Value, ...]) -> Value:
    sought = arguments[0] if len(arguments) == 1 else None
    if isinstance(sought, Unknown):
        return sought
    if name == "indexOf" and isinstance(sought, str):
        place = value.find(sought)
        return float(place if place < 0 else len(utf16(value[:place])) // 2)
    if name == "split" and isinstance(sought, str) and sought:
        return tuple(value.split(sought))
    if name in ("toLowerCase", "toUpperCase") and not arguments and value.isascii():
        return value.lower() if name == "toLowerCase" else value.upper()
    raise _no_function(value, name)


def _no_function(value: Value, name: str) -> Undecided:
    return Undecided(f"it calls {name}() of {_what(value)}")


def _intersects(one: tuple[Value, ...], other: tuple[Value, ...]) -> Truth:
    if all(isinstance(each, str) for each in (*one, *other)):
        # Lists of texts can be long: an attribute that was split.
        return not frozenset(one).isdisjoint(other)
    return any_of(same(each, theirs) for each in one for theirs in other)


def _position(value: tuple[Value, ...], sought: Value) -> Value:
    for place, each in enumerate(value):
        found = same(each, sought)
        if found is not False:
            return float(place) if found is True else found
    return -1.0


def _what(value: Value) -> str:
    if value is None:
        return "nothing"
    words = {str: "a text", bool: "true or false", tuple: "a list", Record: "an object"}
    return words.get(type(value), "a number")
