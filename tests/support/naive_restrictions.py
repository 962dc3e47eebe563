"""Row filters and masks, one value after the other: what readers of restricted tables are compared with.

It follows the specifications in their own steps, so that it shares nothing with the readers. Values are
plain: days, microseconds and nanoseconds are numbers since 1970, UUIDs and binaries are bytes.

Sources: Iceberg REST specification, ``ReadRestrictions``; Iceberg table specification, "JSON single-value
serialization"; Apache Hive, ``GenericUDFMask``, ``GenericUDFMaskShowFirstN``, ``GenericUDFMaskShowLastN``;
Apache Ranger, service definition of Hive, transformers of the mask types.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
import unicodedata
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import UUID

DIRECTORY: Final = Path(__file__).parents[1] / "vectors" / "read-restrictions"

_CYCLE: Final = 400, 146_097  # years, days
_DAY: Final = {"timestamp": 86_400_000_000, "timestamp_ns": 86_400_000_000_000}
_MOMENT: Final = re.compile(
    r"(?:(?P<year>[+-]?\d{4,})-(?P<month>\d\d)-(?P<day>\d\d))?T?(?P<time>[\d:.]*)(?:\+00:00)?"
)
_INT_BITS: Final = {"int": 32, "long": 64}


def vectors(name: str) -> dict[str, Any]:
    """The vectors of a file: ``masks`` or ``filters``."""
    loaded: dict[str, Any] = json.loads((DIRECTORY / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970 of a day of the proleptic Gregorian calendar, of any year."""
    cycles, rest = divmod(year - 1, _CYCLE[0])
    return cycles * _CYCLE[1] + date(rest + 1, month, day).toordinal() - date(1970, 1, 1).toordinal()


def day_of(days: int) -> tuple[int, int, int]:
    """Year, month and day of days since 1970."""
    cycles, rest = divmod(days + date(1970, 1, 1).toordinal() - 1, _CYCLE[1])
    found = date.fromordinal(rest + 1)
    return found.year + cycles * _CYCLE[0], found.month, found.day


def value_of(kind: Any, said: Any) -> Any:
    """The plain value of one in Iceberg's JSON form; floats can also be NaN or infinite, as texts."""
    if said is None:
        return None
    if isinstance(kind, dict):
        return _nested_of(kind, said)
    if kind == "float":
        return struct.unpack("<f", struct.pack("<f", float(said)))[0]
    if kind == "double":
        return float(said)
    if kind.startswith("decimal"):
        return Decimal(said)
    if kind == "uuid":
        return UUID(said).bytes
    if kind == "binary" or kind.startswith("fixed"):
        return bytes.fromhex(said)
    if kind == "date":
        return _days(_parts(said))
    if kind == "time":
        return _within(_parts(said)["time"], 6)
    if kind.startswith("timestamp"):
        digits = 9 if kind.endswith("_ns") else 6
        found = _parts(said)
        return _days(found) * 86_400 * 10**digits + _within(found["time"], digits)
    return said


def _nested_of(kind: Mapping[str, Any], said: Any) -> Any:
    if kind["type"] == "list":
        return [value_of(kind["element"], each) for each in said]
    if kind["type"] == "map":
        keys = [value_of(kind["key"], each) for each in said["keys"]]
        return list(zip(keys, [value_of(kind["value"], each) for each in said["values"]], strict=True))
    return {each["id"]: value_of(each["type"], said.get(str(each["id"]))) for each in kind["fields"]}


def _parts(said: str) -> dict[str, str]:
    found = _MOMENT.fullmatch(said)
    assert found is not None, said
    return found.groupdict()


def _days(found: Mapping[str, str]) -> int:
    return days_of(int(found["year"]), int(found["month"]), int(found["day"]))


def _within(time: str, digits: int) -> int:
    hours, minutes, seconds = time.split(":")
    whole, _, fraction = seconds.partition(".")
    return ((int(hours) * 60 + int(minutes)) * 60 + int(whole)) * 10**digits + int(
        fraction.ljust(digits, "0")
    )


def masked(action: str, kind: Any, value: Any, salt: bytes = b"") -> Any:
    """What is shown in the place of a value; the salt is that of the query."""
    if value is None or action == "replace-with-null":
        return None
    if action == "mask-to-fixed-value":
        return _fixed(kind)
    if action == "mask-alphanum":
        return _redacted(value)
    if action == "show-first-4":
        return value if len(value) <= 4 else value[:4] + _redacted(value[4:])
    if action == "show-last-4":
        return value if len(value) <= 4 else _redacted(value[:-4]) + value[-4:]
    if action in ("truncate-to-year", "truncate-to-month"):
        return _truncated(kind, value, months=action == "truncate-to-month")
    if action in ("sha-256-global", "sha-256-query-local"):
        return _hashed(kind, value, salt if action == "sha-256-query-local" else b"")
    return _hive(action, kind, value)


def _fixed(kind: Any) -> Any:
    if isinstance(kind, dict):
        assert kind["type"] in ("list", "map"), kind
        return []
    if kind.startswith("decimal"):
        return Decimal((0, (0,), -int(kind.rstrip(")").partition(",")[2])))
    if kind.startswith("fixed"):
        return bytes(int(kind[6:-1]))
    zero: dict[str, Any] = {"boolean": False, "float": 0.0, "double": 0.0, "string": "XXXXXXXX"}
    return {**zero, "uuid": bytes(16), "binary": b""}.get(kind, 0)


def _redacted(text: str) -> str:
    return "".join("n" if each in "0123456789" else each if each in "(),.-@" else "x" for each in text)


def _truncated(kind: str, value: int, *, months: bool) -> int:
    day = 1 if kind == "date" else _DAY[kind.replace("tz", "")]
    year, month, _ = day_of(value // day)
    first = days_of(year, month if months else 1, 1) * day
    return max(first, -(2 ** (31 if kind == "date" else 63)))


def _hashed(kind: str, value: Any, salt: bytes) -> Any:
    if kind in _INT_BITS:
        length = _INT_BITS[kind] // 8
        digest = hashlib.sha256(salt + value.to_bytes(length, "little", signed=True)).digest()
        return int.from_bytes(digest[:length], "little", signed=True)
    found = hashlib.sha256(salt + (value if kind == "binary" else value.encode()))
    return found.digest() if kind == "binary" else found.hexdigest()


def _hive(action: str, kind: str, value: Any) -> Any:
    if kind == "date":
        return days_of(0, 1, 1)
    if kind in _INT_BITS:
        return _hive_number(action, value, _INT_BITS[kind])
    return _hive_text(action, value)


def _hive_text(action: str, text: str) -> str:
    raw = text.encode("utf-16-le")
    units = [raw[at : at + 2] for at in range(0, len(raw), 2)]
    shown = {"hive-show-first-4": range(4), "hive-show-last-4": range(len(units) - 4, len(units))}.get(
        action, ()
    )
    marks = (
        {"Lu": "X", "Ll": "x", "Nd": "n"} if action == "hive-mask" else dict.fromkeys(("Lu", "Ll", "Nd"), "x")
    )
    out = b""
    for at, unit in enumerate(units):
        character = chr(int.from_bytes(unit, "little"))
        mark = None if at in shown else marks.get(unicodedata.category(character))
        out += unit if mark is None else mark.encode("utf-16-le")
    return out.decode("utf-16-le")


def _hive_number(action: str, value: int, bits: int) -> int:
    if value == 0:
        return 1 if action in ("hive-mask", "hive-date-show-year") else 0
    left = _java(-value if value < 0 else value, bits)
    count = len(str(abs(left)))
    result = 0
    for place in range(count):
        # As Java's: the remainder has the sign of the number.
        digit = int(math.copysign(abs(left) % 10, left))
        left = int(math.copysign(1, left)) * (abs(left) // 10)
        first = action == "hive-show-first-4" and place >= count - 4
        last = action == "hive-show-last-4" and place < 4
        result = _java(result + (digit if first or last else 1) * 10**place, bits)
    return _java(-result if value < 0 else result, bits)


def _java(value: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half


def kept(condition: Any, kinds: Mapping[int, str], row: Mapping[int, Any]) -> bool:
    """Whether a row filter, as plans say it, is true for a row.

    Args:
        condition: the filter.
        kinds: the types of columns by field id.
        row: their plain values; a field of a struct is None where the struct is.
    """
    return _truth(condition, kinds, row) is True


def _truth(condition: Any, kinds: Mapping[int, str], row: Mapping[int, Any]) -> bool | None:
    if isinstance(condition, bool):
        return condition
    kind = condition["type"]
    if kind in ("and", "or"):
        sides = [_truth(condition[side], kinds, row) for side in ("left", "right")]
        decisive = kind == "or"
        return decisive if decisive in sides else None if None in sides else not decisive
    field_id = (condition.get("child") or condition.get("left"))["id"]
    value = row[field_id]
    if kind in ("is-null", "not-null"):
        return (value is None) is (kind == "is-null")
    if kind in ("is-nan", "not-nan"):
        return (isinstance(value, float) and math.isnan(value)) is (kind == "is-nan")
    if value is None:
        return None
    if kind in ("in", "not-in"):
        found = [_order(value, value_of(kinds[field_id], each)) == 0 for each in condition["values"]]
        return any(found) is (kind == "in")
    return _compared(kind, value, value_of(kinds[field_id], condition["right"]["value"]))


def _compared(kind: str, value: Any, other: Any) -> bool:
    if kind in ("starts-with", "not-starts-with"):
        return bool(value[: len(other)] == other) is (kind == "starts-with")
    order = _order(value, other)
    return {
        "eq": order == 0,
        "not-eq": order != 0,
        "lt": order < 0,
        "lt-eq": order <= 0,
        "gt": order > 0,
        "gt-eq": order >= 0,
    }[kind]


def _order(value: Any, other: Any) -> int:
    """As in Spark: NaN equals itself and is above all numbers, the zeros are equal, texts are UTF-8."""
    nan = [isinstance(each, float) and math.isnan(each) for each in (value, other)]
    if any(nan):
        return nan[0] - nan[1]
    one, two = (each.encode() if isinstance(each, str) else each for each in (value, other))
    return (one > two) - (one < two)
