"""Decides which files of a manifest have rows in the scope of a commit: those of a filter, or of partitions.

- A file can have rows in a filter's scope unless its partition, its bounds or its encrypted bounds show
  otherwise. All of its rows are in the scope if it can have no row of the filter's complement.
- Partitions are compared with the partition spec. So a file of an earlier spec is in no partition of the
  current one, as in Iceberg. If the table is not partitioned, every file is in the scope.

Source: Apache Iceberg's `InclusiveMetricsEvaluator`, `StrictMetricsEvaluator` and `ReplacePartitions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import VoidTransform

from catalog.iceberg.bounds import Mask
from catalog.iceberg.complement import complements
from catalog.iceberg.manifests import ManifestContent, ManifestListEntry
from catalog.iceberg.manifests.rows import partition_rows
from catalog.iceberg.partition_keys import key_of, partition_of
from catalog.keyring.keyring import Keyring
from catalog.planning.gathering import Gathered
from catalog.planning.prune import Pruner
from catalog.planning.sealed import SealedPruner
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import OpenManifest
from catalog.snapshot_checks.entries import DELETED


@dataclass(frozen=True, slots=True)
class Files:
    """Some files of a manifest.

    Attributes:
        manifest: the manifest.
        chosen: one flag an entry.
    """

    manifest: OpenManifest
    chosen: Mask

    @classmethod
    def live(cls, manifest: OpenManifest) -> Files:
        """Return the live files of a manifest."""
        return cls(manifest, np.asarray(pc.not_equal(manifest.entries["status"], DELETED)))

    @property
    def is_data(self) -> bool:
        """Return whether they are data files, not delete files."""
        return self.manifest.listed.content is ManifestContent.DATA

    @property
    def entries(self) -> pa.Table:
        """Return their entries."""
        return self.manifest.entries.filter(pa.array(self.chosen))

    @property
    def numbers(self) -> list[int]:
        """Return their row numbers in the manifest."""
        found: list[int] = np.flatnonzero(self.chosen).tolist()
        return found


class Scope(Protocol):
    """The rows that a commit read or removes."""

    def may_list(self, listed: ManifestListEntry) -> bool:
        """Return whether a manifest can list files with rows in the scope."""

    def touches(self, files: Files) -> Mask:
        """Return which of the files can have rows in the scope."""

    def covers(self, files: Files) -> Mask:
        """Return which of the files have no row outside of the scope."""


class RowsOfFilter:
    """The rows that match a filter.

    Args:
        keyring: opens encrypted bounds.
        table: the table, sealed.
        row_filter: the filter. The caller can select its columns unmasked.
        case_sensitive: how its names are matched.
    """

    def __init__(
        self, keyring: Keyring, table: LoadedTable, row_filter: BooleanExpression, *, case_sensitive: bool
    ) -> None:
        def deciding(expression: BooleanExpression) -> _Deciding:
            schema, specs = table.metadata.schema(), table.metadata.specs()
            pruner = Pruner(schema, specs, expression, case_sensitive=case_sensitive)
            return _Deciding(pruner, SealedPruner(keyring, table, pruner))

        self._all = isinstance(row_filter, AlwaysTrue)
        self._inside = deciding(row_filter)
        self._outside = [deciding(each) for each in complements(row_filter)]

    def may_list(self, listed: ManifestListEntry) -> bool:
        """See `Scope`."""
        return self._all or self._inside.pruner.keeps_manifest(listed)

    def touches(self, files: Files) -> Mask:
        """See `Scope`."""
        return files.chosen if self._all else self._inside.possible(files, files.chosen)

    def covers(self, files: Files) -> Mask:
        """See `Scope`."""
        left = files.chosen
        for each in self._outside:
            left = left & ~each.possible(files, left)
        return left


@dataclass(frozen=True, slots=True)
class _Deciding:
    """Decides by partitions and bounds, and then by encrypted bounds, which files can match one filter."""

    pruner: Pruner
    sealed: SealedPruner

    def possible(self, files: Files, among: Mask) -> Mask:
        listed = files.manifest.listed
        kept = self.pruner.keeps(files.manifest.decoded, listed.partition_spec_id, path=listed.manifest_path)
        left = among & np.asarray(kept)
        return np.asarray(self.sealed.keeps(Gathered.of([files.manifest]), pa.array(left)))


class RowsOfPartitions:
    """The rows of the partitions of some data files.

    Args:
        table: the table.
        added: the files, of the current partition spec.
    """

    def __init__(self, table: LoadedTable, added: Sequence[DataFile]) -> None:
        spec = table.metadata.spec()
        self._spec_id = spec.spec_id
        self._all = bool(added) and is_unpartitioned(spec)
        self._keys = {partition_of(each) for each in added}

    def may_list(self, listed: ManifestListEntry) -> bool:
        """See `Scope`."""
        return self._all or (bool(self._keys) and listed.partition_spec_id == self._spec_id)

    def touches(self, files: Files) -> Mask:
        """See `Scope`."""
        if self._all:
            return files.chosen
        if not self.may_list(files.manifest.listed):
            return np.zeros(len(files.chosen), np.bool_)
        rows = partition_rows(files.manifest.entries["partition"].combine_chunks())
        inside = [(self._spec_id, key_of(each)) in self._keys for each in rows]
        return files.chosen & np.array(inside, np.bool_)

    def covers(self, files: Files) -> Mask:
        """See `Scope`."""
        return self.touches(files)


def is_unpartitioned(spec: PartitionSpec) -> bool:
    """Return whether a partition spec has no field, but void ones of dropped fields."""
    return all(isinstance(each.transform, VoidTransform) for each in spec.fields)
