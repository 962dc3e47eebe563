"""The files of a plan as Arrow.

One row a file: data files first, then the delete files that apply to them.

| column | type | meaning |
|---|---|---|
| `content` | int8 | 0 data, 1 position deletes |
| `file_path`, `file_format` | string | where and what it is |
| `spec_id` | int32 | its partition spec |
| `partition` | string | its partition values by field name, a JSON object in Iceberg's single-value form |
| `record_count`, `file_size_in_bytes` | int64 | rows, bytes |
| `sequence_number`, `file_sequence_number` | int64 | the age of its rows, and of the file |
| `split_offsets` | list of int64 | where it may be split |
| `sort_order_id` | int32 | how it is sorted |
| `deletes` | list of int32 | the rows of this table that delete from it |
| `algorithm` | string | how the regime of the file encrypts it; null for plaintext |
| `column_keys` | bool | whether groups of columns have keys of their own; null for plaintext |
| `keys` | list of struct | released data keys under the scan's key: `key_name`, `field_ids`, `wrapped` |

Nothing of a column's bounds, counts or sizes is in it, nor key metadata.

`partition` tells of those columns alone that the scan reads or filters by. A partition field made from
another column is left out of the object, so that a plan shows nothing of a column that nobody was asked
about; a field that is there and null is a partition of nulls. A field whose column was dropped is there only
in plans of snapshots that still have the column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from catalog.keyring import ScanKeys
from catalog.keys.key_metadata import KeyEntry
from catalog.keys.scan_keys import ScanFile
from catalog.keys.transport import label_of
from catalog.manifests import ManifestListEntry
from catalog.partition_values import ShownPartitions

_CARRIED: Final = pa.schema(
    [
        ("content", pa.int8()),
        ("file_path", pa.string()),
        ("file_format", pa.string()),
        ("record_count", pa.int64()),
        ("file_size_in_bytes", pa.int64()),
        ("sequence_number", pa.int64()),
        ("file_sequence_number", pa.int64()),
        ("split_offsets", pa.list_(pa.int64())),
        ("sort_order_id", pa.int32()),
        ("key_metadata", pa.binary()),
    ]
)
_PLANNED: Final = (
    _CARRIED.append(pa.field("spec_id", pa.int32()))
    .append(pa.field("partition", pa.string()))
    .append(pa.field("deletes", pa.list_(pa.int32())))
)
_KEY: Final = pa.struct(
    [("key_name", pa.string()), ("field_ids", pa.list_(pa.int32())), ("wrapped", pa.binary())]
)


def empty_rows() -> pa.Table:
    """No file."""
    return _PLANNED.empty_table()


def planned_rows(entries: pa.Table, listed: ManifestListEntry, shown: ShownPartitions) -> pa.Table:
    """Manifest entries as rows of a plan, before keys and deletes.

    Args:
        entries: entries of one manifest, with inherited numbers.
        listed: the manifest.
        shown: what of their partitions is shown.

    Raises:
        MetadataInvalid: the partition values are not those of the manifest's spec.
    """
    count = entries.num_rows
    rows = entries.select(_CARRIED.names).cast(_CARRIED)
    spec_ids = pa.array([listed.partition_spec_id] * count, pa.int32())
    partitions = shown.texts(entries["partition"].combine_chunks(), listed)
    return (
        rows.append_column("spec_id", spec_ids)
        .append_column("partition", partitions)
        .append_column("deletes", pa.nulls(count, pa.list_(pa.int32())))
    )


def with_keys(planned: pa.Table, files: Sequence[ScanFile | None], keys: ScanKeys | None) -> pa.Table:
    """The rows of a plan with algorithm and data keys in place of key metadata.

    Key metadata was held against the regime of its file, so that what it states is what the regime says.

    Args:
        planned: the rows.
        files: of each row the keys that are released; None for a file in plaintext.
        keys: the same keys under the scan's key; None if no file is encrypted.
    """
    algorithms = [None if each is None else each.key_metadata.algorithm.value for each in files]
    by_column = [None if each is None else len(each.key_metadata.entries) > 1 for each in files]
    return (
        planned.drop_columns("key_metadata")
        .append_column("algorithm", pa.array(algorithms, pa.string()))
        .append_column("column_keys", pa.array(by_column, pa.bool_()))
        .append_column("keys", _keys(files, keys.wrapped if keys else ()))
    )


def _keys(files: Sequence[ScanFile | None], wrapped: Sequence[tuple[bytes, ...]]) -> pa.Array:
    """The keys of each file: what they are called, which is the same for most files, and their bytes."""
    if not wrapped:
        return pa.nulls(len(files), pa.list_(_KEY))
    offsets = np.zeros(len(files) + 1, np.int32)
    np.cumsum([len(each) for each in wrapped], out=offsets[1:])
    bindings = [entry.binding for file in files if file is not None for entry in file.entries]
    encoded = pa.array(bindings, pa.binary()).dictionary_encode()
    labels = [label_of(KeyEntry(binding, b"")) for binding in encoded.dictionary.to_pylist()]
    names = pa.array([label.key_name for label in labels], pa.string()).take(encoded.indices)
    field_ids = pa.array([list(label.field_ids) for label in labels], _KEY.field("field_ids").type)
    data_keys = pa.array([dek for each in wrapped for dek in each], pa.binary())
    columns = {"key_name": names, "field_ids": field_ids.take(encoded.indices), "wrapped": data_keys}
    keys = pa.StructArray.from_arrays([columns[field.name] for field in _KEY], fields=list(_KEY))
    missing = pa.array([file is None for file in files], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets), keys, type=pa.list_(_KEY), mask=missing)
