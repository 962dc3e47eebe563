"""Finds ids and times in view metadata that other readers cannot store, or that leave no room for later ones.

Source: Iceberg view specification, format version 1: ids are `int`, times are milliseconds since 1970.
"""

from __future__ import annotations

import itertools
from typing import Final

from pyiceberg.view.metadata import ViewMetadata

_LARGEST_INT: Final = 2**31 - 1
#: How far a time can be after the catalog's, or before that of the entry before it, as in tables.
_CLOCK_SKEW_MS: Final = 60_000


def wrong_id(metadata: ViewMetadata) -> str | None:
    """Return what is wrong with an id of a schema, version or field; None if nothing is."""
    ids = [
        metadata.current_version_id,
        *(each.version_id for each in metadata.versions),
        *(each.schema_id for each in metadata.schemas),
        *(field_id for each in metadata.schemas for field_id in each.field_ids),
    ]
    wrong = next((each for each in ids if not 0 <= each <= _LARGEST_INT), None)
    return None if wrong is None else f"the id {wrong} is not from 0 to {_LARGEST_INT}"


def wrong_time(metadata: ViewMetadata, now_ms: int) -> str | None:
    """Return what is wrong with the time of a version or of an entry of the log; None if nothing is.

    Args:
        metadata: of the view.
        now_ms: the time in milliseconds.
    """
    log = [each.timestamp_ms for each in metadata.version_log]
    times = [*log, *(each.timestamp_ms for each in metadata.versions)]
    wrong = next((each for each in times if not 0 <= each <= now_ms + _CLOCK_SKEW_MS), None)
    if wrong is not None:
        return f"the time {wrong} is before 1970, or after the catalog's time, {now_ms}"
    steps = itertools.pairwise(log)
    back = next((after for before, after in steps if after < before - _CLOCK_SKEW_MS), None)
    return None if back is None else f"the log is not in the order of time at {back}"
