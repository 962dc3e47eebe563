"""Shows what a row filter and masks make of a sample row, for policy tests.

Values are texts in Iceberg's JSON single-value form without quotes; None is NULL. Readers do not use this:
they have implementations of their own, which the vectors of tests/vectors/read-restrictions hold to the same
answers.

Source: Iceberg table specification, "JSON single-value serialization"; for masks, see
`policy.restrictions.actions`.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
import unicodedata
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Final
from uuid import UUID

from policy.errors import RequestInvalid
from policy.restrictions.actions import MaskAction
from policy.restrictions.predicate import (
    And,
    Compare,
    Comparison,
    Constant,
    In,
    IsNan,
    IsNull,
    Not,
    NotNan,
    NotNull,
    Or,
    Predicate,
    Value,
)

_BITS: Final = {"int": 32, "long": 64}
_KEPT: Final = frozenset("(),.-@")
_EPOCH: Final = "1970-01-01"
_MIDNIGHT: Final = "T00:00:00.000000"
#: Hive's constant for dates: the first day of the year 0.
_HIVE_DATE: Final = "0000-01-01"


def require_type(column_type: str) -> None:
    """Check that a type has sample values: a primitive type, as Iceberg writes it.

    Raises:
        RequestInvalid: it is none.
    """
    if not _TYPE.fullmatch(column_type):
        raise RequestInvalid(
            f"{column_type[:80]!r} is not a type of Iceberg that holds a single value.",
            rule="sample",
            hint=f"Use one of: {', '.join(sorted(_READ))}, such as decimal(9,2) or fixed[16].",
        )


def value_of(column_type: str, text: str) -> Value | None:
    """Read a sample value of a primitive type.

    Raises:
        RequestInvalid: it is none of that type, or the type has no samples.
    """
    require_type(column_type)
    kind = column_type.partition("(")[0].partition("[")[0]
    try:
        value = _READ[kind](text)
    except (ValueError, InvalidOperation, OverflowError):
        value = None
    in_range = kind not in _BITS or (isinstance(value, int) and _wrapped(value, _BITS[kind]) == value)
    if value is None or not in_range:
        raise RequestInvalid(f"{text[:80]!r} is not a value of the type {column_type}.", rule="sample")
    return value


def kept(predicate: Predicate, row: Mapping[int, Value | None]) -> bool:
    """Whether a row filter keeps a row: whether it is true, neither false nor NULL.

    Args:
        predicate: the filter.
        row: values by field id; what is left out is NULL.
    """
    return _truth(predicate, row) is True


def _truth(predicate: Predicate, row: Mapping[int, Value | None]) -> bool | None:
    match predicate:
        case Constant(truth):
            return truth
        case Not(child):
            inner = _truth(child, row)
            return None if inner is None else not inner
        case And(parts):
            return _joined([_truth(part, row) for part in parts], decisive=False)
        case Or(parts):
            return _joined([_truth(part, row) for part in parts], decisive=True)
        case IsNull(field_id):
            return row.get(field_id) is None
        case NotNull(field_id):
            return row.get(field_id) is not None
    value = row.get(predicate.field_id)
    match predicate:
        case IsNan():
            return _is_nan(value)
        case NotNan():
            return not _is_nan(value)
    if value is None:
        return None
    match predicate:
        case In(_, literals, negated):
            return any(_holds(Comparison.EQ, value, each.value) for each in literals) is not negated
        case Compare(comparison, _, literal):
            return _holds(comparison, value, literal.value)
    raise AssertionError(predicate)


def _joined(truths: list[bool | None], *, decisive: bool) -> bool | None:
    if decisive in truths:
        return decisive
    return None if None in truths else not decisive


def _is_nan(value: Value | None) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _holds(comparison: Comparison, value: Value, literal: Value) -> bool:
    if comparison in (Comparison.STARTS_WITH, Comparison.NOT_STARTS_WITH):
        return str(value).startswith(str(literal)) is (comparison is Comparison.STARTS_WITH)
    if isinstance(value, str):
        # By code points, as UTF-8 bytes are ordered.
        order = (value > str(literal)) - (value < str(literal))
    elif _is_nan(value):
        order = 1
    else:
        order = (value > literal) - (value < literal)  # type: ignore[operator]
    return _ORDERS[comparison](order)


_ORDERS: Final[Mapping[Comparison, Callable[[int], bool]]] = {
    Comparison.EQ: lambda order: order == 0,
    Comparison.NOT_EQ: lambda order: order != 0,
    Comparison.LT: lambda order: order < 0,
    Comparison.LT_EQ: lambda order: order <= 0,
    Comparison.GT: lambda order: order > 0,
    Comparison.GT_EQ: lambda order: order >= 0,
}


def masked(action: MaskAction, column_type: str, text: str | None) -> str | None:
    """What is shown in the place of a value.

    Args:
        action: the mask.
        column_type: a primitive type that the action takes.
        text: the value; None for NULL.

    Raises:
        RequestInvalid: the result is another one for each query, so that no sample can show it.
    """
    if text is None or action is MaskAction.REPLACE_WITH_NULL:
        return None
    if action is MaskAction.MASK_TO_FIXED_VALUE:
        return _fixed(column_type)
    if action is MaskAction.SHA_256_QUERY_LOCAL:
        raise RequestInvalid(f"The result of {action} differs from query to query.", rule="sample")
    if action is MaskAction.SHA_256_GLOBAL:
        return _hashed(column_type, text)
    if action in (MaskAction.TRUNCATE_TO_YEAR, MaskAction.TRUNCATE_TO_MONTH):
        return _truncated(column_type, text, months=action is MaskAction.TRUNCATE_TO_MONTH)
    if column_type in _BITS:
        return str(_hive_number(action, int(text), _BITS[column_type]))
    return _HIVE_DATE if column_type == "date" else _TEXTS[action](text)


def _fixed(column_type: str) -> str:
    name, _, arguments = column_type.rstrip(")]").replace("[", "(").partition("(")
    if name == "decimal":
        return format(Decimal(0).scaleb(-int(arguments.split(",")[1])), "f")
    return "00" * int(arguments) if name == "fixed" else _FIXED[name]


_FIXED: Final = {
    "boolean": "false",
    "int": "0",
    "long": "0",
    "float": "0.0",
    "double": "0.0",
    "string": "XXXXXXXX",
    "date": _EPOCH,
    "time": "00:00:00.000000",
    "timestamp": _EPOCH + _MIDNIGHT,
    "timestamptz": f"{_EPOCH}{_MIDNIGHT}+00:00",
    "uuid": str(UUID(int=0)),
    "binary": "",
}


def _truncated(column_type: str, text: str, *, months: bool) -> str:
    day = f"{text[:7] if months else text[:4] + '-01'}-01"
    if column_type == "date":
        return day
    return day + _MIDNIGHT + ("+00:00" if column_type == "timestamptz" else "")


def _hashed(column_type: str, text: str) -> str:
    if column_type in _BITS:
        length = _BITS[column_type] // 8
        digest = hashlib.sha256(int(text).to_bytes(length, "little", signed=True)).digest()
        return str(int.from_bytes(digest[:length], "little", signed=True))
    data = bytes.fromhex(text) if column_type == "binary" else text.encode()
    digest_text = hashlib.sha256(data).hexdigest()
    return digest_text.upper() if column_type == "binary" else digest_text


def _alphanum(text: str) -> str:
    return "".join("n" if "0" <= each <= "9" else each if each in _KEPT else "x" for each in text)


def _hive(text: str, upper: str = "x", digit: str = "x") -> str:
    """Hive's mask of characters; it takes code points beyond U+FFFF for none of letter and digit."""
    shown = {"Lu": upper, "Ll": "x", "Nd": digit}
    return "".join(each if each > "\uffff" else shown.get(unicodedata.category(each), each) for each in text)


def _units(text: str) -> int:
    """Hive counts UTF-16 code units."""
    return len(text.encode("utf-16-le")) // 2


def _hive_first(text: str) -> str:
    end = next((at for at in range(len(text) + 1) if _units(text[:at]) >= 4), len(text))
    return text[:end] + _hive(text[end:])


def _hive_last(text: str) -> str:
    begin = next((at for at in range(len(text), -1, -1) if _units(text[at:]) >= 4), 0)
    return _hive(text[:begin]) + text[begin:]


def _hive_number(action: MaskAction, value: int, bits: int) -> int:
    """Hive's mask of a number: its digits are 1, but for those that are shown."""
    smallest = value == -(2 ** (bits - 1))
    digits = [int(each) for each in reversed(str(abs(value)))] if value else []
    if smallest:
        # Java's negation leaves the smallest number negative, and so each of its digits.
        digits = [-each for each in digits]
    if not digits and action is not MaskAction.HIVE_SHOW_LAST_4:
        return 0 if action is MaskAction.HIVE_SHOW_FIRST_4 else 1
    shown = range(0)
    if action is MaskAction.HIVE_SHOW_FIRST_4:
        shown = range(max(len(digits) - 4, 0), len(digits))
    elif action is MaskAction.HIVE_SHOW_LAST_4:
        shown = range(4)
    if len(shown) >= len(digits) and action is MaskAction.HIVE_SHOW_FIRST_4:
        return value
    made = sum((each if at in shown else 1) * 10**at for at, each in enumerate(digits))
    return _wrapped(-made if value < 0 else made, bits)


def _wrapped(value: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half


_TEXTS: Final[Mapping[MaskAction, Callable[[str], str]]] = {
    MaskAction.MASK_ALPHANUM: _alphanum,
    MaskAction.SHOW_FIRST_4: lambda text: text[:4] + _alphanum(text[4:]),
    MaskAction.SHOW_LAST_4: lambda text: _alphanum(text[:-4]) + text[-4:],
    MaskAction.HIVE_MASK: lambda text: _hive(text, "X", "n"),
    MaskAction.HIVE_SHOW_FIRST_4: _hive_first,
    MaskAction.HIVE_SHOW_LAST_4: _hive_last,
    MaskAction.HIVE_DATE_SHOW_YEAR: _hive,
}


def _boolean(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text)


def _single(text: str) -> float:
    return float(struct.unpack("<f", struct.pack("<f", float(text)))[0])


def _timestamp(text: str) -> datetime | None:
    value = datetime.fromisoformat(text)
    return value if value.tzinfo is None else None


def _with_zone(text: str) -> datetime | None:
    value = datetime.fromisoformat(text)
    return value if value.tzinfo == UTC else None


_READ: Final[Mapping[str, Callable[[str], Value | None]]] = {
    "boolean": _boolean,
    "int": int,
    "long": int,
    "float": _single,
    "double": float,
    "decimal": Decimal,
    "string": str,
    "date": date.fromisoformat,
    "time": lambda text: time.fromisoformat(text).isoformat("microseconds"),
    "timestamp": _timestamp,
    "timestamptz": _with_zone,
    "uuid": lambda text: str(UUID(text)),
    "binary": lambda text: bytes.fromhex(text).hex().upper(),
    "fixed": lambda text: bytes.fromhex(text).hex().upper(),
}
_TYPE: Final = re.compile(
    "|".join(sorted(_READ.keys() - {"decimal", "fixed"}))
    + r"|decimal\([1-9]\d?, ?\d{1,2}\)|fixed\[[1-9]\d{0,3}\]"
)
