"""Masks of texts, whole columns at a time.

- The actions of the Iceberg REST specification go by code points: by the bytes of UTF-8 that begin one.
- Hive's go by units of UTF-16. The two units of a code point beyond U+FFFF are neither letters nor digits.

Sources: Iceberg REST specification, ``MaskAlphanum``, ``ShowFirst4``, ``ShowLast4``; Apache Hive,
``GenericUDFMask``, ``GenericUDFMaskShowFirstN``, ``GenericUDFMaskShowLastN``.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catalog.client.errors import damaged
from policy.restrictions.actions import MaskAction

_SHOWN: Final = 4
_BMP: Final = 1 << 16
#: What stands for the first byte of a code point.
_REDACTED: Final = np.frombuffer(
    bytes(
        ord("n") if each in b"0123456789" else each if each in b"(),.-@" else ord("x") for each in range(256)
    ),
    np.uint8,
)

Array = npt.NDArray[Any]


def redacted(action: MaskAction, texts: pa.StringArray) -> pa.StringArray:
    """Texts behind ``mask-alphanum``, ``show-first-4`` or ``show-last-4``.

    Raises:
        DataFileDamaged: a text that is not UTF-8: any number of its bytes would be one code point.
    """
    starts, data = _bytes_of(texts)
    begins = (data & 0xC0) != 0x80
    counted = np.concatenate(([0], np.cumsum(begins)))
    lengths = np.diff(starts)
    places = counted[1:] - 1 - np.repeat(counted[starts[:-1]], lengths)
    points = np.repeat(np.diff(counted[starts]), lengths)
    shown = _shown(
        places, points, first=action is MaskAction.SHOW_FIRST_4, last=action is MaskAction.SHOW_LAST_4
    )
    left = shown | begins
    kept = np.concatenate(([0], np.cumsum(left)))[starts]
    return _texts(kept, np.where(shown, data, _REDACTED[data])[left], texts)


def hive(action: MaskAction, texts: pa.StringArray) -> pa.StringArray:
    """Texts behind one of Hive's masks.

    Raises:
        DataFileDamaged: a text that is not UTF-8.
    """
    starts, data = _bytes_of(texts)
    points = np.frombuffer(data.tobytes().decode().encode("utf-32-le"), np.uint32)
    rows = np.concatenate(([0], np.cumsum((data & 0xC0) != 0x80)))[starts]
    units = np.concatenate(([0], np.cumsum(np.where(points < _BMP, 1, 2))))
    lengths = np.diff(rows)
    places = units[:-1] - np.repeat(units[rows[:-1]], lengths)
    total = np.repeat(np.diff(units[rows]), lengths)
    shown = _shown(
        places,
        total,
        first=action is MaskAction.HIVE_SHOW_FIRST_4,
        last=action is MaskAction.HIVE_SHOW_LAST_4,
    )
    marks = _marks(whole=action is MaskAction.HIVE_MASK)
    masked = np.where(shown | (points >= _BMP), points, marks[points % _BMP]).astype("<u4")
    widths = 1 + (masked >= 0x80).astype(np.int64) + (masked >= 0x800) + (masked >= _BMP)
    ends = np.concatenate(([0], np.cumsum(widths)))[rows]
    encoded = masked.tobytes().decode("utf-32-le").encode()
    return _texts(ends, np.frombuffer(encoded, np.uint8), texts)


def _shown(places: Array, total: Array, *, first: bool, last: bool) -> Array:
    """Which places of texts are shown; a text that is no longer than that is shown whole."""
    if first:
        return np.asarray(places < _SHOWN)
    return np.asarray(places >= total - _SHOWN) if last else np.zeros(len(places), bool)


@lru_cache(maxsize=2)
def _marks(*, whole: bool) -> Array:
    """By unit what stands for it; only a `whole` mask tells capitals, small letters and digits apart."""
    marks = {"Lu": "X", "Ll": "x", "Nd": "n"} if whole else dict.fromkeys(("Lu", "Ll", "Nd"), "x")
    categories = (unicodedata.category(chr(each)) for each in range(_BMP))
    return np.array(
        [ord(marks[each]) if each in marks else at for at, each in enumerate(categories)], np.uint32
    )


def _bytes_of(texts: pa.StringArray) -> tuple[Array, Array]:
    """Where texts begin and end, and their bytes.

    Raises:
        DataFileDamaged: a text that is not UTF-8.
    """
    if texts.null_count:
        texts = pc.fill_null(texts, "")
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        raise damaged("A text of the file is not UTF-8.", "column-type") from error
    _, offsets, data = texts.buffers()
    if not len(texts) or offsets is None:
        return np.zeros(len(texts) + 1, np.int64), np.zeros(0, np.uint8)
    starts = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    held = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return starts - starts[0], held[starts[0] : starts[-1]]


def _texts(starts: Array, data: Array, given: pa.StringArray) -> pa.StringArray:
    """Texts of bytes, null where those that were given are."""
    if starts[-1] > np.iinfo(np.int32).max:
        raise damaged("The texts of a row group are too large to be masked.", "column-type")
    buffers = [None, pa.py_buffer(starts.astype(np.int32).tobytes()), pa.py_buffer(data.tobytes())]
    made = pa.Array.from_buffers(pa.string(), len(given), buffers)
    return pc.if_else(given.is_valid(), made, pa.scalar(None, pa.string())) if given.null_count else made
