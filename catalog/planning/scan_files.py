"""Lists the files of a scan, pruned by its filter, with the delete files that apply to them.

Every plan of rows is made here, for engines (`catalog.planning.plan`) and for standard clients
(`catalog.planning.standard`). Every path in an opened manifest is checked, whether its file is pruned or not.
A manifest is not opened if the filter leaves out all of it, and its paths are known to be allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot

from catalog.iceberg.manifests import ManifestContent, ManifestListEntry
from catalog.planning.deletes import Deletes
from catalog.planning.gathering import Gathered, data_of, deletes_of, naming_manifest
from catalog.planning.prune import Pruner
from catalog.planning.request import ScanRequest
from catalog.planning.rewriting import those_of
from catalog.planning.rows import Partitions, empty_rows, planned_rows
from catalog.planning.sealed import SealedPruner
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import SnapshotReader
from catalog.snapshot_checks.entries import ADDED, DELETED


class Statistics(Protocol):
    """Takes the statistics of planned files."""

    def add(self, files: Gathered, kept: pa.BooleanArray) -> None:
        """Add the kept entries of manifests, in the order of the plan's rows."""


class ScanFiles:
    """The files of one scan.

    Args:
        reader: opens manifests.
        table: the table.
        schema: the schema that it is read with.
        request: what is read.
        shown: what of partitions the plan shows.
        pruner: the filter.
        sealed: prunes by sealed bounds, too; None to use no keys.
        statistics: takes the statistics of the planned files.
    """

    def __init__(
        self,
        reader: SnapshotReader,
        table: LoadedTable,
        schema: Schema,
        request: ScanRequest,
        shown: Partitions,
        pruner: Pruner,
        sealed: SealedPruner | None = None,
        statistics: Statistics | None = None,
    ) -> None:
        self._reader = reader
        self._table = table
        self._schema = schema
        self._request = request
        self._shown = shown
        self._pruner = pruner
        self._sealed = sealed
        self._statistics = statistics

    def listed(self, sources: Sequence[Snapshot]) -> list[ManifestListEntry]:
        """List the manifests of snapshots; of appends, the data manifests that they added."""
        listed = [(each, its) for its in sources for each in self._reader.manifests(self._table, its)]
        if not self._request.is_incremental:
            return [each for each, _ in listed]
        return [
            each
            for each, its in listed
            if each.content is ManifestContent.DATA and each.added_snapshot_id == its.snapshot_id
        ]

    def data(self, listed: Sequence[ManifestListEntry]) -> list[ManifestListEntry]:
        """Return those manifests that can list data files with matching rows."""
        return [
            each
            for each in listed
            if each.content is ManifestContent.DATA and self._pruner.keeps_manifest(each)
        ]

    def rows(
        self,
        sources: Sequence[Snapshot],
        listed: Sequence[ManifestListEntry],
        data: Sequence[ManifestListEntry],
    ) -> tuple[pa.Table, frozenset[int]]:
        """Return the planned rows, and the columns that equality deletes of the snapshot compare.

        Args:
            sources: the snapshots that are read.
            listed: their manifests.
            data: those whose data files are planned.
        """
        deletes = [each for each in listed if each.content is ManifestContent.DELETES]
        opened = deletes_of(self._reader, self._table, deletes)
        applied = Deletes(opened, self._table, self._schema, self._shown) if deletes else None
        appended = pa.array([each.snapshot_id for each in sources], pa.int64())

        def kept(files: Gathered) -> pa.Table:
            return self._kept(files, appended, applied)

        # Files that are chosen by path are not pruned.
        keeps = self._pruner.keeps_ranges if self._request.files is None and self._pruner.prunes else None
        opened_data = data_of(self._reader, self._table, data, keeps)
        parts = [naming_manifest(kept, each) for each in opened_data]
        files = pa.concat_tables([empty_rows(), *parts])
        compared = applied.compared if applied else frozenset()
        if self._request.files is not None:
            files = those_of(files, self._request.files, self._table)
        return applied.append_to(files) if applied else files, compared

    def _kept(self, files: Gathered, appended: pa.Array, applied: Deletes | None) -> pa.Table:
        """Return the files that can hold matching rows, or all files if they are chosen by path."""
        whole = self._request.files is not None
        mask = pc.not_equal(files.entries["status"], DELETED)
        if self._request.is_incremental:
            mask = pc.equal(files.entries["status"], ADDED)
            mask = pc.and_(mask, pc.is_in(files.entries["snapshot_id"], value_set=appended))
        spec_id, path = files.listed.partition_spec_id, files.listed.manifest_path
        if not whole:
            mask = pc.and_(mask, self._pruner.keeps(files.decoded, spec_id, path=path))
            mask = self._sealed.keeps(files, mask) if self._sealed else mask
        if self._statistics is not None:
            self._statistics.add(files, mask)
        rows = planned_rows(files.entries.filter(mask), files.listed, self._shown)
        if applied is None:
            return rows
        numbers = pc.indices_nonzero(mask).to_pylist()
        return applied.attach(rows, files.decoded, spec_id, numbers, by_statistics=not whole)
