"""Writes the statistics of single files for standard clients, of the columns that they ask for.

The statistics are those of the manifest; those in key metadata of encrypted files are not opened. Bounds are
texts in hexadecimal of their single-value bytes, as Iceberg's Java library reads and writes them.

Source: Iceberg REST specification, `CountMap` and `ValueMap`; Apache Iceberg's `ContentFileParser`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from catalog.iceberg.manifests import FieldStatistics
from catalog.planning.gathering import Gathered

_COUNTS: Final = {
    "value-counts": "value_counts",
    "null-value-counts": "null_counts",
    "nan-value-counts": "nan_counts",
}
_BOUNDS: Final = {"lower-bounds": "lower", "upper-bounds": "upper"}


class FileStatistics:
    """Takes the statistics of files while a plan is made.

    Args:
        field_ids: the columns.
    """

    def __init__(self, field_ids: frozenset[int]) -> None:
        self._field_ids = field_ids
        #: The JSON members of each file, in the order of the plan's rows.
        self.members: list[Mapping[str, object]] = []

    def add(self, files: Gathered, kept: pa.BooleanArray) -> None:
        """Add the kept entries of manifests."""
        rows = pa.array(np.flatnonzero(np.asarray(kept)))
        found = sorted(files.decoded.stats(self._field_ids).items())
        members: list[dict[str, object]] = [{} for _ in range(len(rows))]
        for name, part in (_COUNTS | _BOUNDS).items():
            columns = [(field_id, _values(each, part, rows)) for field_id, each in found]
            for place, member in enumerate(members):
                pairs = [(field_id, values[place]) for field_id, values in columns]
                known = [(field_id, value) for field_id, value in pairs if value is not None]
                if known:
                    keys, values = zip(*known, strict=True)
                    member[name] = {"keys": keys, "values": values}
        self.members += members


def _values(statistics: FieldStatistics, part: str, rows: pa.Array) -> list[object]:
    values = getattr(statistics, part).take(rows).to_pylist()
    return [each.hex().upper() if isinstance(each, bytes) else each for each in values]
