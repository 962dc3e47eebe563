"""JSON that means one thing.

A name given twice in an object, `NaN` and the infinities, nesting beyond a bound, bytes that are not UTF-8:
two readers may understand such a text differently, so it is refused (RFC 8259, sections 4, 6 and 9).

Depth and number of elements are counted in one linear pass that stops at the bound, before anything is built:
what a text costs in memory and time goes by its elements rather than by its bytes.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from itertools import accumulate
from json import JSONDecoder
from typing import Final, NoReturn, TypeAlias

from policy.errors import InvalidInput, RequestInvalid

MAX_DEPTH: Final = 64

#: A name in an object, or a position in a list.
PathStep: TypeAlias = str | int

#: How brackets change the depth.
_STEPS: Final = {"[": 1, "{": 1, "]": -1, "}": -1}
_BRACKET: Final = re.compile(r"[][{}]")
#: Characters that are counted without a pause.
_PIECE: Final = 1 << 15
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DECODER: Final = JSONDecoder()
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL)


_MEND: Final = "Correct the text there. JSON has no comments and no trailing commas."
_ENCODE: Final = "Save the text in UTF-8."
_ONCE: Final = "Use each name once in an object."


class _Ambiguous(ValueError):
    """Raised inside the decoder; never leaves this module."""


class _Repeated(ValueError):
    """The same, for a name that comes twice in one object."""


class _TooMany(ValueError):
    """The same, for a text of more elements than are read."""


def parse(
    data: bytes | str,
    *,
    what: str,
    error: type[InvalidInput] = RequestInvalid,
    max_elements: int | None = None,
    pause: Callable[[], None] | None = None,
) -> object:
    """Parse a JSON text strictly.

    Args:
        data: the text; bytes are UTF-8.
        what: what the text is, as the subject of the message: ``The request body``.
        error: the class to raise.
        max_elements: how many values, names and containers are read; any number by default.
        pause: is called for each object.

    Raises:
        InvalidInput: as `error`, with the position where the decoder knows it.
    """
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        _check_bounds(text, max_elements, pause or _no_pause)
        return json.loads(
            text, object_pairs_hook=_pausing(pause), parse_constant=_no_constant, parse_float=_finite
        )
    except UnicodeDecodeError as problem:
        raise error(
            f"{what} is not UTF-8: byte {problem.start} does not decode.", rule="json", hint=_ENCODE
        ) from problem
    except json.JSONDecodeError as problem:
        raise error(
            f"{what} is not JSON: {problem.msg} at line {problem.lineno}, column {problem.colno}.",
            rule="json",
            hint=_MEND,
        ) from problem
    except _Repeated as problem:
        raise error(f"{what} is ambiguous: {_repetition(text)}.", rule="json", hint=_ONCE) from problem
    except _TooMany as problem:
        raise error(
            f"{what} has more than {max_elements} values, names and containers.",
            rule="json-elements",
            hint="Split the request.",
        ) from problem
    except _Ambiguous as problem:
        raise error(f"{what} is ambiguous: {problem}.", rule="json", hint=_MEND) from problem
    except ValueError as problem:
        raise error(f"{what} contains a number that is too long.", rule="json", hint=_MEND) from problem


def line_of(text: str, path: tuple[PathStep, ...]) -> int:
    """The line, counted from 1, of the value at `path`; of its nearest parent if the path does not exist.

    Args:
        text: a JSON text that parses.
        path: names and list positions from the top.
    """
    # The decoder gives values without positions; the text is walked once more, only along the path.
    start = _skip_space(text, 0)
    for step in path:
        inner = _child(text, start, step)
        if inner is None:
            break
        start = inner
    return text.count("\n", 0, start) + 1


def _child(text: str, start: int, wanted: PathStep) -> int | None:
    """Where the member or element `wanted` of the container at `start` begins."""
    if text[start] != ("{" if isinstance(wanted, str) else "["):
        return None
    at = _skip_space(text, start + 1)
    position = 0
    while text[at] not in "]}":
        name: PathStep = position
        if isinstance(wanted, str):
            name, at = _DECODER.raw_decode(text, at)
            at = _skip_space(text, _skip_space(text, at) + 1)
        if name == wanted:
            return at
        _, at = _DECODER.raw_decode(text, at)
        at = _skip_space(text, at)
        if text[at] == ",":
            at = _skip_space(text, at + 1)
        position += 1
    return None


def _skip_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _pausing(
    pause: Callable[[], None] | None,
) -> Callable[[list[tuple[str, object]]], dict[str, object]]:
    if pause is None:
        return _unique

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        pause()
        return _unique(pairs)

    return unique


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Repeated
    return found


def _repetition(text: str) -> str:
    """Which name comes twice, and in which line; `text` is JSON at least up to the end of that object."""
    names: list[set[object] | None] = []
    name_next = False
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark in ("{", "["):
            names.append(set() if mark == "{" else None)
        elif mark in ("}", "]"):
            names.pop()
        elif name_next and (seen := names[-1]) is not None:
            name = json.loads(mark)
            if name in seen:
                line = text.count("\n", 0, token.start()) + 1
                return f"the name {name[:80]!r} occurs twice in one object, the second time in line {line}"
            seen.add(name)
        name_next = mark == "{" or (mark == "," and names[-1] is not None)
    raise AssertionError("no name is given twice")


def _no_constant(name: str) -> NoReturn:
    raise _Ambiguous(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _Ambiguous(f"{text[:20]} is not a JSON number of 64 bits")
    return number


def _no_pause() -> None:
    """Go on at once."""


def _check_bounds(text: str, max_elements: int | None, pause: Callable[[], None]) -> None:
    """Count brackets and separators outside of strings, before the recursive decoder meets them.

    Each element but the first of a container stands behind a separator, the first behind a bracket. Up to the
    place where a text is no JSON, strings end here where they end for the decoder, which stops there.
    """
    opened = text.count("[") + text.count("{")
    most = sys.maxsize if max_elements is None else max_elements
    if opened <= MAX_DEPTH and opened + text.count(",") + text.count(":") <= most:
        return
    depth = elements = quotes = 0
    for piece in _pieces(text):
        pause()
        parts = piece.replace(r"\\", "").replace(r"\"", "").split('"')
        outside = "".join(parts[quotes % 2 :: 2])
        depths = list(accumulate(map(_STEPS.__getitem__, _BRACKET.findall(outside)), initial=depth))
        if max(depths) > MAX_DEPTH:
            raise _Ambiguous(f"it nests deeper than {MAX_DEPTH} levels")
        depth = depths[-1]
        elements += sum(map(outside.count, "[{,:"))
        quotes += len(parts) - 1
        # Strings without a separator between them are no JSON, but would be counted to the end.
        if elements > most or (quotes + 1) // 2 > most + 1:
            raise _TooMany


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces that do not end within an escape."""
    start = 0
    while start < len(text):
        end = start + _PIECE
        while end < len(text) and text[end - 1] == "\\":
            end += 1
        yield text[start:end]
        start = end
