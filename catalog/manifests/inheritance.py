"""What manifest entries inherit from the list (Iceberg specification, "Sequence Number Inheritance").

Rules:

- A null snapshot id is that of the manifest's snapshot.
- A null sequence number of an added file is the manifest's. Other files must have theirs, except in
  manifests of version 1, which the list gives the sequence number 0: there every number is 0.
- A manifest lists what its list says: data or deletes, under the same partition spec.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from catalog.manifests.malformed import Malformed, naming
from catalog.manifests.manifest import DecodedManifest
from catalog.manifests.manifest_list import ManifestListEntry

_ADDED: Final = 1


def inherit(decoded: DecodedManifest, entry: ManifestListEntry) -> pa.Table:
    """The entries of a manifest with what they inherit from its entry in the manifest list.

    Raises:
        MetadataInvalid: manifest and list contradict each other, or a number that must be there is not.
    """
    with naming(entry.manifest_path, "The manifest"):
        _check_agreement(decoded, entry)
        entries = decoded.entries
        may_inherit = pc.or_(pc.equal(entries["status"], _ADDED), pa.scalar(entry.sequence_number == 0))
        number = pa.scalar(entry.sequence_number, pa.int64())
        changed = {
            "snapshot_id": entries["snapshot_id"].fill_null(entry.added_snapshot_id),
            "sequence_number": _inherited(entries["sequence_number"], may_inherit, number),
            "file_sequence_number": _inherited(entries["file_sequence_number"], may_inherit, number),
        }
        if changed["sequence_number"].null_count:
            raise Malformed("sequence-number", "a file that was not added by it has no sequence number")
        for name, column in changed.items():
            entries = entries.set_column(entries.schema.get_field_index(name), name, column)
        return entries


def _inherited(numbers: pa.ChunkedArray, may: pa.ChunkedArray, number: pa.Scalar) -> pa.ChunkedArray:
    return pc.if_else(pc.and_(pc.is_null(numbers), may), number, numbers)


def _check_agreement(decoded: DecodedManifest, entry: ManifestListEntry) -> None:
    header = decoded.header
    if header.content != entry.content:
        raise Malformed("content", "it lists data where its list says deletes, or the other way round")
    if header.partition_spec_id not in (None, entry.partition_spec_id):
        raise Malformed("partition-spec", "it has another partition spec than its list says")
