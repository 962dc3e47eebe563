"""Checks the entries of a new, decoded manifest, without I/O.

- New snapshots take the next sequence numbers; new manifests and files carry those of their snapshot.
- A manifest names files, not directories, inside of the allowed locations.
- Partition values are of the types of the manifest's spec.
- No entry contains a bound, a count or a size of a column that its file encrypts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import VoidTransform

from catalog.base.errors import CommitConflict
from catalog.iceberg.manifests import ManifestContent
from catalog.iceberg.manifests.shown_statistics import shown_fields
from catalog.iceberg.manifests.statistics import bounded_fields, described_fields
from catalog.iceberg.manifests.statuses import ADDED as ADDED
from catalog.iceberg.manifests.statuses import DELETED as DELETED
from catalog.iceberg.manifests.statuses import EXISTING as EXISTING
from catalog.iceberg.manifests.statuses import alive as alive
from catalog.iceberg.manifests.statuses import newly_added as newly_added
from catalog.iceberg.metadata import ROW_IDS_VERSION, SEQUENCE_NUMBERS_VERSION, last_sequence_number
from catalog.iceberg.partition_values import ShownPartitions
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import OpenManifest, refuse_outside
from policy.encryption.encrypted_columns import protected_fields
from policy.errors import EncryptionPolicyViolation, MetadataInvalid, MetadataTampered

_DATA: Final = 0
_OF_DELETE_FILES: Final = ("referenced_data_file", "content_offset", "content_size_in_bytes")


def check_paths(table: LoadedTable, entries: pa.Table) -> None:
    paths = entries["file_path"]
    refuse_outside(table.governed.allowed, paths, table.name, "files")
    directories = paths.filter(pc.ends_with(paths, "/"))
    if len(directories):
        raise MetadataInvalid(
            "A manifest entry names a directory instead of a file.",
            table=table.name,
            path=directories[0].as_py(),
            rule="file-path",
        )


def check_fields(table: LoadedTable, added: pa.Table) -> None:
    """Check that no data file has fields of delete files or of version 3, which writers do not carry over."""
    data = added.filter(pc.equal(added["content"], _DATA))
    told = [data[name] for name in _OF_DELETE_FILES]
    if table.metadata.format_version < ROW_IDS_VERSION:
        told.append(added["first_row_id"])
    if any(each.null_count < len(each) for each in told):
        raise MetadataInvalid(
            "A new manifest has an entry with fields that its kind of file and format version do not have.",
            table=table.name,
            rule="file-fields",
            hint=f"Remove {', '.join(_OF_DELETE_FILES)} and first_row_id.",
        )


def check_orders(added: pa.Table, renumbered: Collection[int], table: str) -> None:
    """Refuse files that state a sort order by an id that is another order's in the table."""
    stated = pc.is_in(added["sort_order_id"], value_set=pa.array(sorted(renumbered), pa.int32()))
    if pc.any(stated).as_py():
        raise CommitConflict(
            "An added file states a sort order by an id that another commit took for another order.",
            table=table,
            rule="sort-order-id",
            hint="Load the table, and write the files again.",
        )


def check_spec(table: LoadedTable, metadata: TableMetadata, manifest: OpenManifest) -> None:
    """Refuse files added to an encrypted table under an older partition spec.

    The older spec can have a partition field of a column that is now encrypted. A delete file has the spec of
    its data files, so it can have an older one without such a field.
    """
    spec_id = manifest.listed.partition_spec_id
    if not table.governed.spec.encrypts or spec_id == metadata.default_spec_id:
        return
    deletes = manifest.listed.content is ManifestContent.DELETES
    if not deletes or _shows_encrypted(table, metadata.specs()[spec_id]):
        raise MetadataTampered(
            "A new manifest adds files under a partition spec that is not the one in force.",
            table=table.name,
            path=manifest.listed.manifest_path,
            rule="new-manifest",
        )


def _shows_encrypted(table: LoadedTable, spec: PartitionSpec) -> bool:
    """Return whether partition values of a spec are made of an encrypted column, and are not to be shown."""
    epoch = table.governed.epochs.current
    if table.governed.spec.shows_partitions:
        return False
    hidden = protected_fields(epoch.spec, epoch.columns)
    sources = {each.source_id for each in spec.fields if not isinstance(each.transform, VoidTransform)}
    return bool(sources) and (hidden is None or not hidden.isdisjoint(sources))


def check_growth(table: LoadedTable, metadata: TableMetadata, brought: Sequence[Snapshot]) -> None:
    """Check that new snapshots take the next sequence numbers, one each: epochs depend on them.

    In a table that was never encrypted, a snapshot without a parent can have an older number: REPLACE TABLE
    sends its snapshot again unchanged. In format version 1, every number is 0.
    """
    first = last_sequence_number(table.metadata) + 1
    free = [each for each in brought if not _may_be_stale(table, each, first)]
    numbers = sorted(snapshot.sequence_number or 0 for snapshot in free)
    numbered = metadata.format_version >= SEQUENCE_NUMBERS_VERSION
    if numbers and 0 < numbers[0] < first:
        raise CommitConflict(
            f"A new snapshot has the sequence number {numbers[0]}, but {first - 1} is already assigned.",
            table=table.name,
            rule="sequence-number",
            hint="Load the table and commit again.",
        )
    if numbers != (list(range(first, first + len(numbers))) if numbered else [0] * len(numbers)):
        raise MetadataTampered(
            "A new snapshot does not have the next sequence number.",
            table=table.name,
            rule="sequence-number",
            hint="Load the table and commit again.",
        )


def _may_be_stale(table: LoadedTable, snapshot: Snapshot, first: int) -> bool:
    parentless = snapshot.parent_snapshot_id is None and not table.governed.ever_encrypted
    return parentless and 0 < (snapshot.sequence_number or 0) < first


def check_numbers(added: pa.Table, snapshot: Snapshot, table: str) -> None:
    """Check that an added file belongs to this snapshot; only a rewrite keeps older sequence numbers."""
    if added.num_rows == 0:
        return
    number = snapshot.sequence_number or 0
    of_snapshot = pc.and_(
        pc.equal(added["snapshot_id"], snapshot.snapshot_id), pc.equal(added["file_sequence_number"], number)
    )
    data_age = pc.and_(
        pc.less_equal(added["sequence_number"], number), pc.greater_equal(added["sequence_number"], 0)
    )
    if not pc.all(pc.fill_null(pc.and_(of_snapshot, data_age), False)).as_py():
        raise MetadataTampered(
            "A new manifest adds a file with another snapshot id or sequence number than its snapshot.",
            table=table,
            snapshot=snapshot.snapshot_id,
            rule="new-file",
        )


def check_no_statistics(table: LoadedTable, manifest: OpenManifest) -> None:
    """Check that no entry has statistics of a column that its file encrypts.

    This applies to added, carried over and removed files. Bounds are values. Counts and sizes reveal how many
    values are null, how long they are, and how often they are repeated.
    """
    _refuse_shown(table, manifest, described_fields, "statistics")


def check_no_bounds(table: LoadedTable, manifest: OpenManifest) -> None:
    """Check that no entry has a bound of an encrypted column; a sealed entry can keep its counts."""
    _refuse_shown(table, manifest, bounded_fields, "bounds")


def _refuse_shown(
    table: LoadedTable, manifest: OpenManifest, fields: Callable[[pa.Table], frozenset[int]], what: str
) -> None:
    shown = shown_fields(manifest.entries, manifest.decoded.statistics, table.governed.epochs, fields)
    if shown:
        raise EncryptionPolicyViolation(
            f"A manifest contains plaintext {what} of encrypted columns (field {min(shown)}).",
            table=table.name,
            path=manifest.listed.manifest_path,
            rule="plaintext-bounds",
            hint="Write encrypted tables with the Spark plugin or the Python client.",
        )


def check_partitions(manifest: OpenManifest, metadata: TableMetadata) -> None:
    """Check that every partition value can be shown as a value of its field's type.

    Raises:
        MetadataInvalid: a value has another type, or the manifest lacks a field of its spec.
    """
    schema = metadata.schema()
    shown = ShownPartitions(metadata.specs(), schema, frozenset(schema.field_ids))
    shown.texts(manifest.entries["partition"].combine_chunks(), manifest.listed)
