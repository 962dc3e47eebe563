"""Tells whether files are in the same partition.

NaN equals NaN, and 0.0 is not -0.0, as in Iceberg Java.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from pyiceberg.manifest import DataFile


def partition_of(file: DataFile) -> tuple[int, str]:
    """Return the partition spec of a file and a text that is equal for equal partitions of this spec."""
    return file.spec_id, key_of(file.partition[place] for place in range(len(file.partition)))


def key_of(values: Iterable[Any]) -> str:
    """Return a text that is equal for equal partition values.

    Args:
        values: in the order of the spec, as manifests store them.
    """
    return repr([_exact(each) for each in values])


def _exact(value: Any) -> Any:
    if isinstance(value, Decimal):
        return Fraction(value)
    if not isinstance(value, float):
        return value
    return "nan" if math.isnan(value) else struct.pack(">d", value)
