"""Finds the delete files that apply to data files (Iceberg table specification, "Scan Planning").

It uses pyiceberg's index of position deletes. Equality deletes and deletion vectors are refused, because no
reader of plans applies them yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus
from pyiceberg.table.delete_file_index import PATH_FIELD_ID, DeleteFileIndex

from catalog.iceberg.manifests import DecodedManifest, data_files
from catalog.iceberg.partition_values import ShownPartitions
from catalog.planning.rows import planned_rows
from catalog.reading.snapshots import OpenManifest
from catalog.snapshot_checks.entries import DELETED
from policy.errors import MetadataInvalid, NotSupportedYet

_POSITION = 1


class Deletes:
    """The position deletes of a snapshot.

    Args:
        manifests: its delete manifests.
        shown: what of partitions the plan shows.
        table: dotted name, for errors.

    Raises:
        NotSupportedYet: an equality delete or a deletion vector.
        MetadataInvalid: bounds of paths that are no text, or partition values that are not of their spec.
    """

    def __init__(self, manifests: Iterable[OpenManifest], shown: ShownPartitions, table: str) -> None:
        self._shown = shown
        self._index = DeleteFileIndex()
        self._rows: list[pa.Table] = []
        #: A path can be listed twice, once for each file that it deletes from.
        self._numbers: dict[str, int] = {}
        self._count = count()
        for manifest in manifests:
            self._add(manifest, table)

    def attach(self, files: pa.Table, decoded: DecodedManifest, spec_id: int, rows: list[int]) -> pa.Table:
        """Find the deletes that apply to data files.

        Args:
            files: planned rows of data files.
            decoded: the manifest that they come from.
            spec_id: its partition spec.
            rows: their row numbers in it.
        """
        found = data_files(decoded, rows, spec_id)
        numbers = files["sequence_number"].to_pylist()
        applying = [self._applying(each, number) for each, number in zip(found, numbers, strict=True)]
        column = pa.array([each or None for each in applying], pa.list_(pa.int32()))
        return files.set_column(files.schema.get_field_index("deletes"), "deletes", column)

    def append_to(self, files: pa.Table) -> pa.Table:
        """Append the delete files to the plan's rows. The numbers in `deletes` are their row numbers."""
        start = files.num_rows
        shifted = [
            None if each is None else [number + start for number in each]
            for each in files["deletes"].to_pylist()
        ]
        column = pa.array(shifted, pa.list_(pa.int32()))
        files = files.set_column(files.schema.get_field_index("deletes"), "deletes", column)
        return pa.concat_tables([files, *self._rows])

    def apply_to(self, file: DataFile, sequence_number: int) -> bool:
        """Return whether a delete file applies to a data file.

        Args:
            file: the data file.
            sequence_number: its data sequence number.
        """
        return bool(self._applying(file, sequence_number))

    def _applying(self, file: DataFile, sequence_number: int) -> list[int]:
        deletes = self._index.for_data_file(sequence_number, file, file.partition)
        return sorted({self._numbers[each.file_path] for each in deletes})

    def _add(self, manifest: OpenManifest, table: str) -> None:
        live = pc.not_equal(manifest.entries["status"], DELETED)
        numbers = pc.indices_nonzero(live).to_pylist()
        entries = manifest.entries.filter(live)
        formats = set(entries["file_format"].to_pylist())
        if "PUFFIN" in formats or set(entries["content"].to_pylist()) - {_POSITION}:
            raise NotSupportedYet(
                "The table has equality deletes or deletion vectors. Scan plans do not support them yet.",
                table=table,
                rule="deletes",
                hint="Compact the table with an engine that applies them.",
            )
        for file, number in zip(
            data_files(manifest.decoded, numbers, manifest.listed.partition_spec_id),
            entries["sequence_number"].to_pylist(),
            strict=True,
        ):
            _check_path_bounds(file, manifest)
            self._numbers[file.file_path] = next(self._count)
            entry = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=None,
                sequence_number=number,
                file_sequence_number=number,
                data_file=file,
            )
            self._index.add_delete_file(entry, file.partition)
        self._rows.append(planned_rows(entries, manifest.listed, self._shown))


def _check_path_bounds(file: DataFile, manifest: OpenManifest) -> None:
    """Check that bounds of paths are text: the index compares them as text, and fails otherwise."""
    for bounds in (file.lower_bounds, file.upper_bounds):
        try:
            (bounds or {}).get(PATH_FIELD_ID, b"").decode("utf-8")
        except UnicodeDecodeError as problem:
            raise MetadataInvalid(
                "A delete file has path bounds that are not UTF-8.",
                path=manifest.listed.manifest_path,
                rule="deletes",
            ) from problem
