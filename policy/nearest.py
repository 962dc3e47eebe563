"""Finds the known name that a user may have meant by an unknown one, for hints of errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice
from typing import Final

#: Names that are compared, and characters of each: the search is quadratic in their length.
_COMPARED: Final = 2_000
_LONGEST: Final = 100
_SHOWN: Final = 20


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that suggests the nearest of the known names, and a blank; empty if none is near.

    Args:
        name: the unknown name.
        known: the names that exist; the first 2,000 are compared.
    """
    folded = {each.casefold()[:_LONGEST]: each for each in islice(known, _COMPARED)}
    found = difflib.get_close_matches(name.casefold()[:_LONGEST], folded, n=1)
    return f"Did you mean {folded[found[0]]!r}? " if found else ""


def listed(names: Iterable[str]) -> str:
    """The first 20 names with commas between them, and dots if there are more."""
    first = list(islice(names, _SHOWN + 1))
    return ", ".join(first[:_SHOWN]) + (", …" if len(first) > _SHOWN else "")
