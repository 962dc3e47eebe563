"""Checks the entries of a manifest (Iceberg table specification, "Manifests")."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from catalog.iceberg.avro.malformed import Malformed
from catalog.iceberg.manifests.manifest_list import ManifestContent

_REQUIRED: Final = ("status", "content", "file_path", "file_format", "record_count", "file_size_in_bytes")
_NOT_NEGATIVE: Final = (
    "sequence_number",
    "file_sequence_number",
    "record_count",
    "file_size_in_bytes",
    "sort_order_id",
    "first_row_id",
    "content_offset",
    "content_size_in_bytes",
)
_LISTS: Final = ("split_offsets", "equality_ids")
_COUNTS: Final = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_STATUSES: Final = (0, 1, 2)
_CONTENTS: Final = {ManifestContent.DATA: (0, 0), ManifestContent.DELETES: (1, 2)}
_EQUALITY_DELETES: Final = 2
_FORMATS: Final = frozenset({"AVRO", "ORC", "PARQUET", "PUFFIN"})


def check_entries(entries: pa.Table, content: ManifestContent) -> None:
    """Check the entries of a manifest of data or of deletes.

    Raises:
        Malformed: an entry breaks a rule.
    """
    for name in _REQUIRED:
        if entries[name].null_count:
            raise Malformed("required", f"an entry lacks {name}")
    _check_range(entries["status"], (_STATUSES[0], _STATUSES[-1]), "status")
    _check_range(entries["content"], _CONTENTS[content], "content")
    for name in _NOT_NEGATIVE:
        _check_range(entries[name], (0, None), name)
    for name in _LISTS:
        _check_range(pc.list_flatten(entries[name]), (0, None), name)
    if pc.any(pc.equal(pc.binary_length(entries["file_path"]), 0)).as_py():
        raise Malformed("required", "an entry has an empty file_path")
    unknown = {str(name).upper() for name in entries["file_format"].unique().to_pylist()} - _FORMATS
    if unknown:
        raise Malformed("file-format", f"an entry has an unknown file format: {min(unknown)[:40]!r}")
    equality = pc.equal(entries["content"], _EQUALITY_DELETES)
    if pc.any(pc.and_(equality, pc.is_null(entries["equality_ids"]))).as_py():
        raise Malformed("required", "an equality delete file has no equality_ids")


def check_statistics(statistics: pa.Table) -> None:
    """Check that no column count or size is negative.

    Raises:
        Malformed: a number is negative.
    """
    for name in _COUNTS:
        for chunk in statistics[name].chunks:
            _check_range(chunk.items, (0, None), name)


def _check_range(values: pa.Array | pa.ChunkedArray, allowed: tuple[int, int | None], name: str) -> None:
    found = pc.min_max(values).as_py()
    low, high = allowed
    if found["min"] is None:
        return
    if found["min"] < low or (high is not None and found["max"] > high):
        raise Malformed("range", f"an entry has a value of {name} that the specification does not permit")
