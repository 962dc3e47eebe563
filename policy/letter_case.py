"""Compares names without regard to letter case."""

from __future__ import annotations


def fold(text: str) -> str:
    """`text` for comparison without regard to letter case, character by character (so never longer)."""
    return text.lower() if text.isascii() else "".join(map(_fold_one, text))


def _fold_one(character: str) -> str:
    upper = character.upper()
    one = upper if len(upper) == 1 else character
    lower = one.lower()
    return lower if len(lower) == 1 else one
