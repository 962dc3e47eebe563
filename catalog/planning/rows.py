"""Builds the Arrow table of a plan's files.

One row a file: data files first, then the delete files that apply to them. The columns are those of
docs/plan-format.md, "Files".

Nothing of a column's bounds, counts or sizes is in it, nor key metadata.

`partition` tells of those columns alone that the scan reads or filters by. A partition field made from
another column is left out of the object, so that a plan shows nothing of a column that nobody was asked
about; a field that is there and null is a partition of nulls. A field whose column was dropped is there only
in plans of snapshots that still have the column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.envelope.key_metadata_columns import Bytes, Form
from catalog.iceberg.manifests import ManifestListEntry
from catalog.keyring.keyring import ScanKeys
from policy.errors import EncryptionPolicyViolation
from policy.location.spelling import respelled

#: The content of delete files.
POSITION_DELETES: Final = 1
EQUALITY_DELETES: Final = 2
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
    .append(pa.field("equality_ids", pa.list_(pa.int32())))
)
_KEY: Final = pa.struct(
    [("key_name", pa.string()), ("field_ids", pa.list_(pa.int32())), ("wrapped", pa.binary())]
)


class Partitions(Protocol):
    """What a plan shows of partitions."""

    def texts(self, partitions: pa.StructArray, listed: ManifestListEntry) -> pa.Array:
        """Return each row's partition as JSON."""


def empty_rows() -> pa.Table:
    """Return a table without files."""
    return _PLANNED.empty_table()


def planned_rows(entries: pa.Table, listed: ManifestListEntry, shown: Partitions) -> pa.Table:
    """Convert manifest entries to rows of a plan, without keys and deletes.

    Args:
        entries: entries of one manifest, with inherited numbers.
        listed: the manifest.
        shown: what of their partitions is shown.

    Raises:
        MetadataInvalid: the partition values are not those of the manifest's spec.
    """
    count = entries.num_rows
    carried = [_typed(entries[field.name], field.type) for field in _CARRIED]
    spec_ids = pa.array([listed.partition_spec_id] * count, pa.int32())
    partitions = shown.texts(entries["partition"].combine_chunks(), listed)
    deletes = pa.nulls(count, pa.list_(pa.int32()))
    return pa.table([*carried, spec_ids, partitions, deletes, _compared(entries)], schema=_PLANNED)


def _typed(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)


def _compared(entries: pa.Table) -> pa.Array:
    """Return what each equality delete compares; null for other files, whatever their entries say."""
    kind = pa.list_(pa.int32())
    said = entries["equality_ids"].cast(kind)
    if said.null_count == len(said):
        return said
    return pc.if_else(pc.equal(entries["content"], EQUALITY_DELETES), said, pa.scalar(None, kind))


def with_keys(planned: pa.Table, forms: Sequence[Form], keys: ScanKeys | None) -> pa.Table:
    """Add locations, and replace key metadata by algorithm, footer and data keys.

    Key metadata was checked against the epoch of its file, so that what it states is what the epoch says.

    Args:
        planned: the rows.
        forms: those that are encrypted, by the form of their key metadata.
        keys: their released keys under the scan's key; None if no file is encrypted.
    """
    form_of = _form_of(planned.num_rows, forms)
    algorithms = pa.array([form.metadata.algorithm.value for form in forms], pa.string())
    footers = pa.array([form.metadata.footer.value for form in forms], pa.string())
    by_column = pa.array([len(form.metadata.entries) > 1 for form in forms], pa.bool_())
    added = {
        "location": respelled(planned["file_path"]),
        "algorithm": algorithms.take(form_of),
        "footer": footers.take(form_of),
        "column_keys": by_column.take(form_of),
        "digest": _digests(planned.num_rows, forms, Form.file_digests),
        "footer_digest": _digests(planned.num_rows, forms, Form.footer_digests),
        "keys": _keys(form_of, keys),
    }
    kept = planned.drop_columns("key_metadata")
    return pa.table([*kept.columns, *added.values()], names=[*kept.column_names, *added])


def require_formats(planned: pa.Table, forms: Sequence[Form], table: str) -> None:
    """Check that each algorithm fits the file format in the manifest.

    Raises:
        EncryptionPolicyViolation: it is not.
    """
    for form in forms:
        said = planned["file_format"].take(pa.array(form.rows))
        expected = form.metadata.algorithm.file_format.upper()
        other = pc.index(pc.equal(pc.utf8_upper(said), expected), False).as_py()
        if other >= 0:
            raise EncryptionPolicyViolation(
                f"The manifest lists a file as {said[other].as_py()}, but it is encrypted with "
                f"{form.metadata.algorithm}.",
                table=table,
                path=planned["file_path"][int(form.rows[other])].as_py(),
                rule="file-format",
                hint="Restore the table's metadata with `lakewarden table restore`.",
            )


def _digests(count: int, forms: Sequence[Form], kind: Callable[[Form], Bytes | None]) -> pa.Array:
    """Return the digests of one kind, one per file; null if the key metadata has none."""
    found: list[bytes | None] = [None] * count
    for form in forms:
        digests = kind(form)
        if digests is not None:
            for row, digest in zip(form.rows, digests, strict=True):
                found[row] = digest.tobytes()
    return pa.array(found, pa.binary())


def _form_of(count: int, forms: Sequence[Form]) -> pa.Array:
    """Return the index of each row's form; null for a file in plaintext."""
    places = np.full(count, -1, np.int32)
    for place, form in enumerate(forms):
        places[form.rows] = place
    return pa.array(places, mask=places < 0)


def _keys(form_of: pa.Array, keys: ScanKeys | None) -> pa.Array:
    """Return the keys of each file: their names, which are the same for most files, and their bytes."""
    if keys is None:
        return pa.nulls(len(form_of), pa.list_(_KEY))
    wrapped, label = keys.wrapped, pa.array(keys.wrapped.label)
    names = pa.array([each.key_name for each in wrapped.labels], pa.string())
    field_ids = pa.array([list(each.field_ids) for each in wrapped.labels], _KEY.field("field_ids").type)
    columns = {"key_name": names.take(label), "field_ids": field_ids.take(label), "wrapped": wrapped.wrapped}
    structs = pa.StructArray.from_arrays([columns[field.name] for field in _KEY], fields=list(_KEY))
    offsets = pa.array(wrapped.offsets, pa.int32())
    return pa.ListArray.from_arrays(offsets, structs, type=pa.list_(_KEY), mask=form_of.is_null())
