"""Finds the delete files that apply to data files (Iceberg table specification, "Scan Planning").

It uses pyiceberg's index of position deletes; `equality_deletes` finds equality deletes. Deletion vectors are
refused, because tables of format version 3 are not read yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table.delete_file_index import PATH_FIELD_ID, DeleteFileIndex
from pyiceberg.typedef import Record

from catalog.iceberg.manifests import DecodedManifest, data_files
from catalog.iceberg.partition_keys import partition_of
from catalog.planning.equality_deletes import EqualityColumns, EqualityDeletes
from catalog.planning.rows import (
    EQUALITY_DELETES,
    POSITION_DELETES,
    Partitions,
    empty_rows,
    planned_rows,
)
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import OpenManifest
from catalog.snapshot_checks.entries import DELETED
from policy.errors import MetadataInvalid, NotSupportedYet


class Deletes:
    """The delete files of a snapshot.

    Args:
        manifests: its delete manifests.
        table: the table.
        schema: the schema of the scan.
        shown: what of partitions the plan shows.

    Raises:
        NotSupportedYet: a deletion vector.
        MetadataInvalid: bounds of paths that are no text, partition values that are not of their spec, or
            columns to compare that no schema has.
    """

    def __init__(
        self, manifests: Iterable[OpenManifest], table: LoadedTable, schema: Schema, shown: Partitions
    ) -> None:
        self._shown = shown
        self._index = DeleteFileIndex()
        self._equality = EqualityDeletes(EqualityColumns(table, schema), table.metadata.specs())
        self._rows: list[pa.Table] = []
        #: A path can be listed twice, once for each file that it deletes from.
        self._numbers: dict[str, int] = {}
        self._count = count()
        for manifest in manifests:
            self._add(manifest, table.name)

    @property
    def compared(self) -> frozenset[int]:
        """Return the columns that an equality delete of the snapshot compares, whether it applies or not."""
        return self._equality.field_ids

    def attach(
        self,
        files: pa.Table,
        decoded: DecodedManifest,
        spec_id: int,
        rows: list[int],
        *,
        by_statistics: bool = True,
    ) -> pa.Table:
        """Find the deletes that apply to data files.

        Args:
            files: planned rows of data files.
            decoded: the manifest that they come from.
            spec_id: its partition spec.
            rows: their row numbers in it.
            by_statistics: whether equality deletes are left out where statistics show that they delete
                nothing.
        """
        found = data_files(decoded, rows, spec_id)
        numbers = files["sequence_number"].to_pylist()
        positions = [self._applying(each, number) for each, number in zip(found, numbers, strict=True)]
        if by_statistics:
            equal = self._equality.pruned(found, numbers, decoded, rows)
        else:
            equal = [self._equality.applying(*each) for each in zip(found, numbers, strict=True)]
        applying = [sorted({*one, *other}) for one, other in zip(positions, equal, strict=True)]
        column = pa.array([each or None for each in applying], pa.list_(pa.int32()))
        return files.set_column(files.schema.get_field_index("deletes"), "deletes", column)

    def append_to(self, files: pa.Table) -> pa.Table:
        """Append the delete files that apply to the plan's rows. `deletes` has their row numbers then."""
        deletes = files["deletes"].combine_chunks()
        held = np.asarray(deletes.flatten())
        used = np.unique(held)
        numbers = pa.array(files.num_rows + np.searchsorted(used, held), pa.int32())
        lengths = np.asarray(pc.fill_null(pc.list_value_length(deletes), 0))
        offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
        column = pa.ListArray.from_arrays(offsets, numbers, mask=deletes.is_null())
        files = files.set_column(files.schema.get_field_index("deletes"), "deletes", column)
        return pa.concat_tables([files, self.files.take(pa.array(used))])

    @property
    def files(self) -> pa.Table:
        """Return the delete files as rows of a plan."""
        return pa.concat_tables([empty_rows(), *self._rows])

    def paths_of(self, files: pa.Table) -> list[list[str]]:
        """Return the paths of the delete files that `attach` found for each row."""
        paths = [path for each in self._rows for path in each["file_path"].to_pylist()]
        return [[paths[number] for number in each or ()] for each in files["deletes"].to_pylist()]

    def apply_to(self, file: DataFile, sequence_number: int) -> bool:
        """Return whether a delete file applies to a data file, whatever statistics say.

        Args:
            file: the data file.
            sequence_number: its data sequence number.
        """
        return bool(self._applying(file, sequence_number) or self._equality.applying(file, sequence_number))

    def _applying(self, file: DataFile, sequence_number: int) -> list[int]:
        deletes = self._index.for_data_file(sequence_number, file, _partition(file))
        return sorted({self._numbers[each.file_path] for each in deletes})

    def _add(self, manifest: OpenManifest, table: str) -> None:
        live = pc.not_equal(manifest.entries["status"], DELETED)
        numbers = pc.indices_nonzero(live).to_pylist()
        entries = manifest.entries.filter(live)
        formats = set(entries["file_format"].to_pylist())
        if "PUFFIN" in formats or set(entries["content"].to_pylist()) - {POSITION_DELETES, EQUALITY_DELETES}:
            raise NotSupportedYet(
                "The table has deletion vectors. They are not supported before format version 3.",
                table=table,
                rule="deletes",
                hint="Compact the table with an engine that applies them.",
            )
        for file, number in zip(
            data_files(manifest.decoded, numbers, manifest.listed.partition_spec_id),
            entries["sequence_number"].to_pylist(),
            strict=True,
        ):
            row = next(self._count)
            if file.content == EQUALITY_DELETES:
                self._equality.add(row, file, number)
            else:
                self._add_positions(row, file, number, manifest)
        self._rows.append(planned_rows(entries, manifest.listed, self._shown))

    def _add_positions(self, row: int, file: DataFile, sequence_number: int, manifest: OpenManifest) -> None:
        _check_path_bounds(file, manifest)
        self._numbers[file.file_path] = row
        entry = ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=None,
            sequence_number=sequence_number,
            file_sequence_number=sequence_number,
            data_file=file,
        )
        self._index.add_delete_file(entry, _partition(file))


def _partition(file: DataFile) -> Record:
    """Return what the index compares: two records with NaN are never equal."""
    return Record(partition_of(file)[1])


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
