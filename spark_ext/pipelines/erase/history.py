"""Decides which snapshots of a table must go so that deleted rows are nowhere: no I/O.

- A snapshot holds rows if some match in it. If it has delete files, data files can hold rows that these
  delete. If its manifests have entries of removed files, these can show bounds of deleted values.
- Such a snapshot must expire, unless a branch or tag points to it. A branch is cleaned at its head: rows are
  deleted, files with delete files are rewritten, and then manifests.
- A tag keeps its snapshot. It must be dropped if the snapshot holds rows, or can: as those that expire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType


@dataclass(frozen=True, slots=True)
class State:
    """What a table's retained snapshots hold.

    Attributes:
        metadata: the table's.
        matches: how many rows match in each snapshot.
        deletes: the snapshots with delete files.
        removed: the snapshots whose manifests have entries of removed files.
    """

    metadata: TableMetadata
    matches: Mapping[int, int]
    deletes: frozenset[int]
    removed: frozenset[int]

    @property
    def branches(self) -> dict[str, int]:
        """The heads of branches."""
        return self._refs(SnapshotRefType.BRANCH)

    @property
    def concerned(self) -> bool:
        """Whether anything can be left of rows that match."""
        return any(self.matches.values()) or bool(self.deletes)

    @property
    def holding_tags(self) -> dict[str, int]:
        """The tags whose snapshots hold rows, or can."""
        tags = self._refs(SnapshotRefType.TAG)
        return {name: at for name, at in tags.items() if at in self._holding}

    @property
    def expiring(self) -> frozenset[int]:
        """The snapshots that must go, and that no branch or tag points to."""
        named = {ref.snapshot_id for ref in self.metadata.refs.values()}
        return self._holding - named

    @property
    def _holding(self) -> frozenset[int]:
        """The snapshots that hold rows, or can."""
        return frozenset(each for each, rows in self.matches.items() if rows) | self.deletes | self.removed

    def _refs(self, kind: SnapshotRefType) -> dict[str, int]:
        refs = sorted(self.metadata.refs.items())
        return {name: ref.snapshot_id for name, ref in refs if ref.snapshot_ref_type is kind}
