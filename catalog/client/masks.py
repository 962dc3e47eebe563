"""Masks of columns, as the catalog's plans name them. NULL stays NULL, and types stay the same.

Sources: Iceberg REST specification, ``ReadRestrictions``; Apache Hive, ``GenericUDFMask`` and its like, with
the arguments that Apache Ranger gives them. tests/vectors/read-restrictions holds what each action makes.
"""

from __future__ import annotations

import hashlib
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catalog.client import text_masks
from policy.errors import NotSupportedYet
from policy.restrictions.actions import MaskAction

_HIVE_DAY: Final = -719_528  # 0000-01-01, Hive's constant
_FIXED_TEXT: Final = "XXXXXXXX"
_DAY_US: Final = 86_400_000_000
_SHOWN: Final = 4
_OF_TEXTS: Final = frozenset({MaskAction.MASK_ALPHANUM, MaskAction.SHOW_FIRST_4, MaskAction.SHOW_LAST_4})
_TRUNCATED: Final = {MaskAction.TRUNCATE_TO_YEAR: "Y", MaskAction.TRUNCATE_TO_MONTH: "M"}
_HASHED: Final = frozenset({MaskAction.SHA_256_GLOBAL, MaskAction.SHA_256_QUERY_LOCAL})
_HIVE: Final = frozenset(each for each in MaskAction if not each.of_iceberg)

Numbers = npt.NDArray[Any]


def masked(action: MaskAction, values: pa.Array, salt: bytes) -> pa.Array:
    """The values of a column behind a mask.

    Args:
        action: the mask.
        values: of a type that it takes.
        salt: the query's.

    Raises:
        NotSupportedYet: a mask, or a type, that is not known here.
    """
    kind = values.type
    if action is MaskAction.REPLACE_WITH_NULL:
        return pa.nulls(len(values), kind)
    if action is MaskAction.MASK_TO_FIXED_VALUE:
        return _fixed(values)
    if action in _OF_TEXTS and pa.types.is_string(kind):
        return text_masks.redacted(action, values)
    if action in _TRUNCATED and (pa.types.is_date32(kind) or pa.types.is_timestamp(kind)):
        return _truncated(_TRUNCATED[action], values)
    if action in _HASHED:
        return _hashed(values, salt if action is MaskAction.SHA_256_QUERY_LOCAL else b"")
    if action in _HIVE:
        return _hive(action, values)
    raise _unknown(action, kind)


def _unknown(action: MaskAction, kind: pa.DataType) -> NotSupportedYet:
    return NotSupportedYet(
        f"The mask {action} of values of the type {kind} is not supported.",
        rule="read-restrictions",
        hint="Install the client of the catalog's release.",
    )


def _fixed(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        places = pa.array(np.zeros(len(values) + 1, np.int32))
        if pa.types.is_list(kind):
            none = pa.array([], kind.value_type)
            return pa.ListArray.from_arrays(places, none, type=kind, mask=values.is_null())
        none = [pa.array([], each) for each in (kind.key_type, kind.item_type)]
        return pa.MapArray.from_arrays(places, *none, type=kind, mask=values.is_null())
    return pc.if_else(values.is_valid(), _constant(kind), pa.scalar(None, kind))


def _constant(kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_string(kind):
        return pa.scalar(_FIXED_TEXT, kind)
    if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind):
        return pa.scalar(bytes(kind.byte_width), kind)
    if pa.types.is_binary(kind):
        return pa.scalar(b"", kind)
    if pa.types.is_boolean(kind):
        return pa.scalar(False, kind)
    if pa.types.is_floating(kind):
        return pa.scalar(0.0, kind)
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(0), kind)
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return pa.scalar(0, kind)
    raise _unknown(MaskAction.MASK_TO_FIXED_VALUE, kind)


def _numbers(values: pa.Array) -> Numbers:
    """The numbers behind values, 0 for NULL."""
    stored = pa.int32() if values.type.bit_width == pa.int32().bit_width else pa.int64()
    found: Numbers = pc.fill_null(values.view(stored), 0).to_numpy().astype(np.int64)
    return found


def _of_numbers(made: Numbers, given: pa.Array) -> pa.Array:
    """Values of numbers, NULL where those that were given are."""
    stored = np.int32 if given.type.bit_width == pa.int32().bit_width else np.int64
    gone = given.is_null().to_numpy(zero_copy_only=False)
    return pa.array(made.astype(stored), mask=gone).view(given.type)


def _truncated(unit: str, values: pa.Array) -> pa.Array:
    """The first moment of years or months, in UTC; the first of the type where it does not have that."""
    numbers = _numbers(values)
    if pa.types.is_date32(values.type):
        return _of_numbers(np.maximum(_first_days(numbers, unit), np.iinfo(np.int32).min), values)
    days = _first_days(numbers // _DAY_US, unit)
    least = np.iinfo(np.int64).min
    return _of_numbers(np.where(days < -(-least // _DAY_US), least, days * _DAY_US), values)


def _first_days(days: Numbers, unit: str) -> Numbers:
    found: Numbers = days.astype("datetime64[D]").astype(f"datetime64[{unit}]").astype("datetime64[D]")
    return found.astype(np.int64)


def _hashed(values: pa.Array, salt: bytes) -> pa.Array:
    begun = hashlib.sha256(salt)

    def digest(data: bytes) -> Any:
        found = begun.copy()
        found.update(data)
        return found

    kind = values.type
    if pa.types.is_string(kind):
        texts = (each.as_buffer() for each in values)
        return pa.array([None if each is None else digest(each).hexdigest() for each in texts], kind)
    if pa.types.is_binary(kind):
        held = (each.as_buffer() for each in values)
        return pa.array([None if each is None else digest(each).digest() for each in held], kind)
    if pa.types.is_int32(kind) or pa.types.is_int64(kind):
        length = kind.bit_width // 8
        data = _numbers(values).astype(f"<i{length}").tobytes()
        digests = b"".join(
            digest(data[at : at + length]).digest()[:length] for at in range(0, len(data), length)
        )
        return _of_numbers(np.frombuffer(digests, f"<i{length}"), values)
    raise _unknown(MaskAction.SHA_256_GLOBAL, kind)


def _hive(action: MaskAction, values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_string(kind):
        return text_masks.hive(action, values)
    if pa.types.is_date32(kind) and action is not MaskAction.HIVE_DATE_SHOW_YEAR:
        return _of_numbers(np.full(len(values), _HIVE_DAY), values)
    if pa.types.is_int32(kind) or pa.types.is_int64(kind):
        return _of_numbers(_hive_numbers(action, _numbers(values), kind.bit_width), values)
    raise _unknown(action, kind)


def _hive_numbers(action: MaskAction, numbers: Numbers, bits: int) -> Numbers:
    """Numbers whose digits are 1, but for those that are shown; they overflow as in Java."""
    width = np.int32 if bits == np.iinfo(np.int32).bits else np.int64
    numbers = numbers.astype(width)
    ten = width(10)
    with np.errstate(over="ignore"):
        left = np.where(numbers < 0, -numbers, numbers)
        made: Numbers = np.zeros(len(numbers), width)
        digits = _digits(left)
        for place in range(int(digits.max(initial=0))):
            digit = np.fmod(left, ten)
            left = (left - digit) // ten
            shown = (
                place >= digits - _SHOWN
                if action is MaskAction.HIVE_SHOW_FIRST_4
                else np.full(len(numbers), action is MaskAction.HIVE_SHOW_LAST_4 and place < _SHOWN)
            )
            step: Numbers = np.where(shown, digit, width(1)) * width(10**place)
            made = np.where(place < digits, made + step, made)
        made = np.where(numbers < 0, -made, made)
    if action in (MaskAction.HIVE_SHOW_FIRST_4, MaskAction.HIVE_SHOW_LAST_4):
        return made
    return np.where(numbers == 0, width(1), made)


def _digits(left: Numbers) -> Numbers:
    """How many decimal digits numbers have; 0 has none."""
    count = np.zeros(len(left), np.int64)
    while left.any():
        count += left != 0
        left = (left - np.fmod(left, left.dtype.type(10))) // left.dtype.type(10)
    return count
