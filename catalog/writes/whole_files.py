"""Finds the files that a commit removes by a filter or by partitions: those whose rows are all in its scope.

A data file that only partly is in the scope is refused, as in Iceberg: its other rows would be lost. A delete
file is removed if its partition is in the scope as a whole, because the data files of that partition are
removed too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.table.snapshots import Snapshot

from catalog.base.errors import ConcurrentModification
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import SnapshotReader
from catalog.writes.scopes import Files, Scope
from catalog.writes.since import HINT, Since
from policy.errors import RequestInvalid


@dataclass(frozen=True, slots=True)
class _Found:
    """The files of one manifest.

    Attributes:
        whole: those whose rows are all in the scope.
        partial: data files of which some rows can be in the scope, and others can be outside.
    """

    whole: Files
    partial: Files


def whole_files(
    reader: SnapshotReader, table: LoadedTable, head: Snapshot | None, scope: Scope, since: Since
) -> list[str]:
    """Return the paths of the files to remove.

    Args:
        reader: reads the manifests.
        table: the table, sealed.
        head: the head of the branch; None if it is empty.
        scope: the rows to remove.
        since: what came since the base of the commit.

    Raises:
        RequestInvalid: a file has rows in the scope and outside.
        ConcurrentModification: such a file came since the base.
    """
    paths: list[str] = []
    for found in _found(reader, table, head, scope):
        if found.partial.chosen.any():
            raise _partial(found.partial, since, table.name)
        paths += found.whole.entries["file_path"].to_pylist()
    return paths


def are_whole(reader: SnapshotReader, table: LoadedTable, head: Snapshot | None, scope: Scope) -> bool:
    """Return whether each data file of a snapshot is in the scope as a whole, or not at all."""
    return not any(each.partial.chosen.any() for each in _found(reader, table, head, scope))


def _found(
    reader: SnapshotReader, table: LoadedTable, head: Snapshot | None, scope: Scope
) -> Iterator[_Found]:
    listed = () if head is None else reader.manifests(table, head)
    for manifest in reader.open(table, [each for each in listed if scope.may_list(each)]):
        live = Files.live(manifest)
        inside = Files(manifest, scope.touches(live))
        whole = scope.covers(inside)
        rest = inside.chosen & ~whole if live.is_data else inside.chosen & False
        yield _Found(Files(manifest, whole), Files(manifest, rest))


def _partial(partial: Files, since: Since, table: str) -> Exception:
    paths = partial.entries["file_path"].to_pylist()
    came = since.new_paths.intersection(paths)
    if came:
        return ConcurrentModification(
            "Another commit added a file of which some, but not all rows match the filter.",
            table=table,
            path=min(came),
            rule="new-data",
            hint=HINT,
        )
    return RequestInvalid(
        f"Some, but not all rows of {len(paths)} files match the filter. The first of them is named.",
        table=table,
        path=paths[0],
        rule="partial-file",
        hint="Delete or rewrite the rows in these files first, or use a filter on partition columns.",
    )
