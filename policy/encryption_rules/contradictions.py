"""Rules that nothing can satisfy together.

A contradiction is reported where a table (or a column) exists in thought that both rules are about and that
must be encrypted: such a witness is looked for among names that the patterns of both share. So a report is
never wrong; a contradiction of patterns that share names in a way that is not tried here, or of three rules,
is not reported, and a table that falls under it is refused when it is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, product
from typing import Final

from policy.encryption.specification import EncryptionSpec, Mechanism
from policy.encryption_rules.model import Column, ColumnName, Demands, Rule, TableFacts
from policy.encryption_rules.names import KeyPatterns, is_literal
from policy.letter_case import fold

#: Most pairs of patterns that are looked at for one level of two rules, and most names that are tried of it.
_MAX_PAIRS: Final = 2_000
_MAX_NAMES: Final = 16
_FILLER: Final = "zq"


def self_conflict(demands: Demands) -> str | None:
    """Why one rule cannot be satisfied, as a clause; None if it can."""
    if demands.column_key and not demands.must_encrypt:
        return "a column with a column key is always encrypted, so columnKey requires mustEncrypt"
    return None


def conflict(first: Rule, second: Rule) -> str | None:
    """Why nothing can satisfy two rules, or one rule given twice, as a clause; None if something can."""
    both = first.demands.plus(second.demands)
    problem = _unsatisfiable(both, first, second) if both.must_encrypt else None
    return problem if problem is not None and _share_something(first, second) else None


def _unsatisfiable(both: Demands, first: Rule, second: Rule) -> str | None:
    if not both.algorithms:
        return "they allow no common algorithm"
    if _disjoint(both.master_keys):
        return "they allow no common master key"
    wide = [rule for rule in (first, second) if not rule.has_columns]
    only = {keys.only for rule in wide for keys in rule.demands.master_keys} - {None}
    if both.column_key and only:
        return (
            f"they allow only the master key {min(map(str, only))!r}, so no other key is left for the column"
        )
    return None


def _disjoint(key_sets: Iterable[KeyPatterns]) -> bool:
    sets = tuple(key_sets)
    return len(sets) == 2 and not any(
        common(one, other) is not None for one, other in product(sets[0].values, sets[1].values)
    )


def _share_something(first: Rule, second: Rule) -> bool:
    """Whether there is a table, and a column of it, that both rules are about."""
    names = product(
        _names(first.area.databases.values, second.area.databases.values),
        _names(first.area.tables.values, second.area.tables.values),
        _names(_column_values(first), _column_values(second)),
    )
    return any(_both_about(first, second, *each) for each in names)


def _both_about(first: Rule, second: Rule, database: str, table: str, column: str) -> bool:
    name = ColumnName(column, column)
    spec = EncryptionSpec(Mechanism.PLAINTEXT)
    facts = TableFacts(database, table, (Column(1, (name,)),), spec)
    return all(rule.is_about(facts) and any(rule.columns_of(facts)) for rule in (first, second))


def _column_values(rule: Rule) -> tuple[str, ...]:
    if not rule.has_columns:
        return ("*",)
    areas = [rule.area, *rule.tagged]
    return tuple(value for area in areas if area.columns is not None for value in area.columns.values)


def _names(first: tuple[str, ...], second: tuple[str, ...]) -> list[str]:
    """Names that a pattern of each side has."""
    pairs = islice(product(first, second), _MAX_PAIRS)
    found = (name for one, other in pairs for name in _shared(fold(one), fold(other)))
    return list(islice(dict.fromkeys(found), _MAX_NAMES))


def _shared(one: str, other: str) -> Iterator[str]:
    """Texts that two patterns may both match, for the caller to try."""
    shortest = common(one, other)
    if shortest is None:
        return
    yield shortest or _FILLER
    for pattern in (one, other):
        yield pattern.replace("*", _FILLER).replace("?", _FILLER[0])


def common(one: str, other: str) -> str | None:
    """A short text that both patterns match; None if there is none.

    Args:
        one, other: texts in which ``*`` stands for any run of characters and ``?`` for one.
    """
    if is_literal(one) and is_literal(other):
        return one if one == other else None
    # By position in both patterns, from the end: what both rests match. Only the row before is needed.
    below: list[str | None] = [None] * (len(other) + 1)
    for i in range(len(one), -1, -1):
        row: list[str | None] = [None] * (len(other) + 1)
        for j in range(len(other), -1, -1):
            row[j] = _step(one[i : i + 1], other[j : j + 1], row, below, j)
        below = row
    return below[0]


def _step(a: str, b: str, row: list[str | None], below: list[str | None], j: int) -> str | None:
    """What the rests match that begin with `a` and `b`, either of which may be the end."""
    if not a and not b:
        return ""
    if a == "*":
        return _shorter(below[j], _led(b, row, j) if b else None)
    if b == "*":
        return _shorter(row[j + 1], _put(a, below[j]) if a else None)
    if not a or not b or (a != b and "?" not in (a, b)):
        return None
    return _put(b if a == "?" else a, below[j + 1])


def _led(b: str, row: list[str | None], j: int) -> str | None:
    """A star on one side takes what the other side begins with."""
    return row[j + 1] if b == "*" else _put(b, row[j + 1])


def _put(character: str, rest: str | None) -> str | None:
    return None if rest is None else (_FILLER[0] if character == "?" else character) + rest


def _shorter(one: str | None, other: str | None) -> str | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other, key=len)
