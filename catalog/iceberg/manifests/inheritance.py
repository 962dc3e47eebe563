"""Values that manifest entries inherit from the list (Iceberg specification, "Sequence Number Inheritance").

Rules:

- A null snapshot id becomes that of the manifest's snapshot.
- A null sequence number of an added file becomes the manifest's. Other files must have their own, except in
  manifests of version 1, whose sequence number in the list is 0: there every number is 0.
- A manifest agrees with its list: data or deletes, under the same partition spec.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.iceberg.avro.malformed import Malformed, naming
from catalog.iceberg.manifests.manifest import DecodedManifest, ManifestHeader
from catalog.iceberg.manifests.manifest_list import ManifestListEntry

_ADDED: Final = 1


def inherit(decoded: DecodedManifest, entry: ManifestListEntry) -> pa.Table:
    """Return the entries of a manifest with values inherited from its entry in the manifest list.

    Raises:
        MetadataInvalid: manifest and list contradict each other, or a required number is missing.
    """
    check_agreement(decoded.header, entry)
    with naming(entry.manifest_path, "The manifest"):
        return _numbered(
            decoded.entries,
            pa.scalar(entry.sequence_number, pa.int64()),
            pa.scalar(entry.added_snapshot_id, pa.int64()),
        )


def inherit_each(entries: pa.Table, listed: Sequence[tuple[ManifestListEntry, int]]) -> pa.Table:
    """Return the entries of several manifests at once with inherited values.

    Args:
        entries: the entries of all manifests, one manifest after the other.
        listed: the list's record of each manifest, and its number of entries; each manifest agrees with its
            record.

    Raises:
        MetadataInvalid: a required number is missing; the error names the first manifest.
    """
    counts = [count for _, count in listed]
    sequence_numbers, snapshot_ids = (
        pa.array(np.repeat(np.array(numbers, np.int64), counts))
        for numbers in zip(
            *((each.sequence_number, each.added_snapshot_id) for each, _ in listed), strict=True
        )
    )
    with naming(listed[0][0].manifest_path, "The manifest"):
        return _numbered(entries, sequence_numbers, snapshot_ids)


def _numbered(
    entries: pa.Table, sequence_number: pa.Scalar | pa.Array, snapshot_id: pa.Scalar | pa.Array
) -> pa.Table:
    """Fill in missing numbers from the manifest, or from each row's own manifest.

    Raises:
        Malformed: a required number is missing.
    """
    may_inherit = pc.or_(pc.equal(entries["status"], _ADDED), pc.equal(sequence_number, 0))
    changed = {
        "snapshot_id": pc.coalesce(entries["snapshot_id"], snapshot_id),
        "sequence_number": _inherited(entries["sequence_number"], may_inherit, sequence_number),
        "file_sequence_number": _inherited(entries["file_sequence_number"], may_inherit, sequence_number),
    }
    if changed["sequence_number"].null_count:
        raise Malformed("sequence-number", "a file that this manifest did not add has no sequence number")
    for name, column in changed.items():
        entries = entries.set_column(entries.schema.get_field_index(name), name, column)
    return entries


def _inherited(
    numbers: pa.ChunkedArray, may: pa.ChunkedArray, number: pa.Scalar | pa.Array
) -> pa.ChunkedArray:
    return pc.if_else(pc.and_(pc.is_null(numbers), may), number, numbers)


def check_agreement(header: ManifestHeader, entry: ManifestListEntry) -> None:
    """Compare a manifest's header with its entry in the manifest list.

    Raises:
        MetadataInvalid: they contradict each other.
    """
    with naming(entry.manifest_path, "The manifest"):
        if header.content != entry.content:
            raise Malformed("content", "its content (data or deletes) differs from the manifest list")
        if header.partition_spec_id not in (None, entry.partition_spec_id):
            raise Malformed("partition-spec", "its partition spec differs from the manifest list")
