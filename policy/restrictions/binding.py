"""Makes a row filter a `Predicate`: columns by field id, typed literals, and constants for user and date.

- A column is found by its name in the table's current schema, in any letter case, and compared as the type
  that it has in the schema that is read.
- A literal has to be a value of the column's type, exactly. Nothing is rounded and nothing is cast, but a
  text to a date or timestamp, and a date to the beginning of its day.
- A timestamp with a time zone is compared with literals that have one, since Spark reads others in the zone
  of the session. Today is the date in UTC.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

from policy.principal import PUBLIC
from policy.restrictions.columns import NESTED, SchemaField, TableColumns
from policy.restrictions.conditions import (
    Column,
    Condition,
    Day,
    Every,
    Inverted,
    Listed,
    Member,
    Moment,
    Nan,
    Null,
    Number,
    Operand,
    Related,
    RowFilter,
    Some,
    Text,
    Today,
    Truth,
    User,
)
from policy.restrictions.dates import day_of, later, moment_of, refused
from policy.restrictions.predicate import (
    Compare,
    Comparison,
    Constant,
    In,
    IsNan,
    IsNull,
    Literal,
    Not,
    Predicate,
    Value,
    all_of,
    any_of,
)

_DECIMAL: Final = re.compile(r"decimal\((\d+), ?(\d+)\)")
_FLOATING: Final = frozenset({"float", "double"})
_RANGES: Final = {"int": 31, "long": 63}
_STARTS: Final = frozenset({Comparison.STARTS_WITH, Comparison.NOT_STARTS_WITH})
_EQUAL: Final = frozenset({Comparison.EQ, Comparison.NOT_EQ})
_FOLDED: Final[dict[Comparison, Callable[[Any, Any], bool]]] = {
    Comparison.EQ: eq,
    Comparison.NOT_EQ: ne,
    Comparison.LT: lt,
    Comparison.LT_EQ: le,
    Comparison.GT: gt,
    Comparison.GT_EQ: ge,
    Comparison.STARTS_WITH: str.startswith,
}


@dataclass(frozen=True, slots=True)
class Asker:
    """What a filter can ask of the user.

    Attributes:
        user: the user's name.
        groups: the user's groups.
        today: the date in UTC.
    """

    user: str
    groups: frozenset[str]
    today: date


def bind(
    row_filter: RowFilter,
    asker: Asker,
    columns: TableColumns,
    read: TableColumns | None = None,
    *,
    table: tuple[str, ...] = (),
) -> Predicate:
    """The filter for one user of one table.

    Args:
        row_filter: the filter.
        asker: the user.
        columns: the table's current schema.
        read: the schema that is read with; by default the current one.
        table: the table's database and name; before a name, Spark takes them for the table's.

    Raises:
        PolicyInvalid: the table has no such column, or one of another type.
    """
    return _Binder(asker, columns, read or columns, table).bind(row_filter.condition)


class _Binder:
    def __init__(
        self, asker: Asker, columns: TableColumns, read: TableColumns, table: tuple[str, ...]
    ) -> None:
        self._asker = asker
        self._columns = columns
        self._read = read
        self._qualifiers = {tuple(map(str.lower, each)) for each in (table, table[-1:]) if each}

    def bind(self, condition: Condition) -> Predicate:
        match condition:
            case Truth(value):
                return Constant(value)
            case Member(group):
                return Constant(group == PUBLIC or group in self._asker.groups)
            case Column():
                return self._flag(condition)
            case Null(column):
                return IsNull(self._field(column).field_id)
            case Nan(column):
                return self._nan(column)
            case Inverted(child):
                bound = self.bind(child)
                return Constant(not bound.value) if isinstance(bound, Constant) else Not(bound)
            case Every(parts):
                return all_of(*map(self.bind, parts))
            case Some(parts):
                return any_of(*map(self.bind, parts))
            case Listed():
                return self._listed(condition)
        return self._related(condition)

    def _flag(self, column: Column) -> Predicate:
        field = self._field(column)
        if field.type != "boolean":
            raise refused(f"the column {column} has the type {field.type}, and is no condition")
        return Compare(Comparison.EQ, field.field_id, Literal("boolean", True))

    def _nan(self, column: Column) -> Predicate:
        field = self._field(column)
        if field.type not in _FLOATING:
            raise refused(f"isnan takes floating-point columns, and {column} has the type {field.type}")
        return IsNan(field.field_id)

    def _listed(self, listed: Listed) -> Predicate:
        if not isinstance(listed.operand, Column):
            equal = (Related(Comparison.EQ, listed.operand, each) for each in listed.among)
            return any_of(*map(self._related, equal))
        field = self._field(listed.operand)
        literals = dict.fromkeys(self._literal(field, Comparison.EQ, each) for each in listed.among)
        return In(field.field_id, tuple(literals))

    def _related(self, related: Related) -> Predicate:
        comparison, left, right = related.comparison, related.left, related.right
        if isinstance(left, Column):
            field = self._field(left)
            return Compare(comparison, field.field_id, self._literal(field, comparison, right))
        ours, theirs = self._constant(left), self._constant(right)
        if type(ours) is not type(theirs) or _zoned(ours) != _zoned(theirs):
            raise refused(f"it compares {_shown(ours)} with {_shown(theirs)}, of another type")
        return Constant(_FOLDED[comparison](ours, theirs))

    def _constant(self, operand: Operand) -> Any:
        """A constant as a value of Python."""
        match operand:
            case User(word):
                self._require_no_column(word)
                return self._asker.user
            case Today(steps, word):
                self._require_no_column(word)
                return later(self._asker.today, steps)
            case Text(value) | Number(value) | Day(value) | Truth(value) | Moment(value):
                return value
        raise AssertionError(operand)

    def _require_no_column(self, word: str | None) -> None:
        """Refuse a function without parentheses that a column has the name of: in Spark it is the column."""
        if word is not None and self._columns.find((word,)):
            raise refused(f"{word} is a column of the table", f"Write {word}(), or `{word}` for the column.")

    def _require_unqualified(self, column: Column) -> None:
        """Refuse a field of a struct that for Spark is a column behind the table's name."""
        for length in (1, 2):
            qualifier, rest = tuple(map(str.lower, column.path[:length])), column.path[length:]
            if qualifier in self._qualifiers and self._columns.find(rest):
                raise refused(f"{column} is the column {'.'.join(rest)} of the table, too")

    def _field(self, column: Column) -> SchemaField:
        found = self._columns.find(column.path)
        self._require_unqualified(column)
        if not found:
            raise refused(f"the column {column} does not exist", "Use the names in the table's schema.")
        if len(found) > 1:
            raise refused(f"several columns are called {column}, in different letter case")
        field = self._read.by_id.get(found[0].field_id)
        if field is None:
            raise refused(
                f"the column {column} does not exist in the schema of the snapshot",
                "Read the snapshot by the current schema.",
            )
        if field.repeated or field.type in NESTED:
            raise refused(f"{column} is not a single value in each row")
        return field

    def _literal(self, field: SchemaField, comparison: Comparison, operand: Operand) -> Literal:
        value = self._constant(operand)
        if isinstance(operand, Number) and operand.double and field.type not in _FLOATING:
            raise refused(
                f"Spark compares the column {field.name} with {_shown(value)} as doubles",
                "Write the number without an exponent.",
            )
        found = _value_of(field.type, value)
        if found is None:
            raise refused(f"{_shown(value)} is not a value of the column {field.name}, type {field.type}")
        if comparison in _STARTS and field.type != "string":
            raise refused(f"the column {field.name} has the type {field.type}, and begins with no string")
        if isinstance(found, bool) and comparison not in _EQUAL:
            raise refused(f"the column {field.name} is compared with TRUE or FALSE, but not by =")
        return Literal(field.type, found)


def _zoned(value: object) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _shown(value: object) -> str:
    return repr(str(value)[:60])


def _value_of(kind: str, value: object) -> Value | None:
    """A constant as a value of a type; None if the type does not have it."""
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if kind == "string":
        return value if isinstance(value, str) else None
    if isinstance(value, Decimal):
        return _number_of(kind, value)
    if kind == "date":
        return _date_of(value)
    if kind.startswith("timestamp"):
        return _moment_of(value, zoned=kind.startswith("timestamptz"))
    return None


def _number_of(kind: str, value: Decimal) -> Value | None:
    if kind in _RANGES:
        bound = 2 ** _RANGES[kind]
        return int(value) if -bound <= value < bound and value == value.to_integral_value() else None
    if kind in _FLOATING:
        return _float_of(kind, value)
    match = _DECIMAL.fullmatch(kind)
    if match is None:
        return None
    return _decimal_of(value, *map(int, match.groups()))


def _decimal_of(value: Decimal, precision: int, scale: int) -> Decimal | None:
    """A number with so many digits behind the point; Python's own arithmetic would round it."""
    sign, digits, exponent = value.as_tuple()
    shift = int(exponent) + scale
    whole = int("".join(map(str, digits)))
    whole, rest = (whole * 10**shift, 0) if shift >= 0 else divmod(whole, 10**-shift)
    shown = str(whole)
    if rest or len(shown) > precision:
        return None
    return Decimal((sign, tuple(map(int, shown)), -scale))


def _float_of(kind: str, value: Decimal) -> float | None:
    """A number as Spark compares it: the nearest one of a double, and of a float only that very number."""
    found = float(value) + 0.0
    if not math.isfinite(found):
        return None
    if kind == "float":
        try:
            exact = Decimal(struct.unpack("<f", struct.pack("<f", found))[0])
        except OverflowError:
            return None
        return found if exact == value else None
    return found


def _date_of(value: object) -> date | None:
    if isinstance(value, str):
        return day_of(value)
    return value if isinstance(value, date) and not isinstance(value, datetime) else None


def _moment_of(value: object, *, zoned: bool) -> datetime | None:
    if isinstance(value, str):
        value = moment_of(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime.combine(value, time(), UTC if zoned else None)
    if not isinstance(value, datetime) or (value.tzinfo is not None) != zoned:
        return None
    try:
        return value.astimezone(UTC) if zoned else value
    except OverflowError as error:
        raise refused(f"the timestamp {_shown(value)} is before the year 1 or after 9999 in UTC") from error
