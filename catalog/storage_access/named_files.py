"""Finds the files that the retained snapshots of a table name, and remembers them.

- What is remembered belongs to sealed bytes: a manifest's files to the digest of the manifest, a snapshot's
  manifests to the digest of its manifest list, a table's files to the digest of its metadata.json. So it is
  never out of date, and a commit costs the new manifests alone.
- The files of unsealed metadata are found again each time.
- Nothing about users is remembered. Whether a path is in the allowed locations is decided for each request.
- Memory is bounded by the number of files. Manifests of the least recently used tables are forgotten first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.snapshots import Snapshot

from catalog.base.recent import Recent
from catalog.iceberg.manifests import ManifestListEntry
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import SnapshotReader, list_path
from catalog.snapshot_checks.entries import alive
from policy.location.location import Location

#: The maximum number of files that are remembered, of all tables; roughly 200 bytes each.
MAX_FILES: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class ManifestFiles:
    """The data and delete files of a manifest, in canonical form.

    Attributes:
        live: those that it adds or carries over.
        removed: those that it lists as removed.
    """

    live: frozenset[str]
    removed: frozenset[str]


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """The files that the retained snapshots of a table name.

    Attributes:
        metadata: metadata.json, manifest lists, manifests and statistics files, in canonical form.
        log: earlier metadata.json files.
        contents: data and delete files, by manifest.
    """

    metadata: frozenset[str]
    log: frozenset[str]
    contents: tuple[ManifestFiles, ...]

    def is_live(self, file: str) -> bool:
        """Return whether a data or delete file is part of a retained snapshot."""
        return any(file in each.live for each in self.contents)

    def is_removed(self, file: str) -> bool:
        """Return whether a retained snapshot lists a data or delete file as removed."""
        return any(file in each.removed for each in self.contents)


class NamedFilesReader:
    """Finds the files of tables.

    Args:
        reader: opens manifest lists and manifests, and compares them with their seals.
    """

    def __init__(self, reader: SnapshotReader) -> None:
        self._reader = reader
        self._tables: Recent[NamedFiles] = Recent(256, lambda _: 1)
        self._lists: Recent[tuple[ManifestListEntry, ...]] = Recent(
            MAX_FILES // 8, lambda each: len(each) + 1
        )
        self._manifests: Recent[ManifestFiles] = Recent(
            MAX_FILES, lambda each: len(each.live) + len(each.removed) + 1
        )

    def of(self, table: LoadedTable) -> NamedFiles:
        """Return the files that a table's retained snapshots name.

        Raises:
            LocationNotAllowed, MetadataTampered, MetadataInvalid: see `SnapshotReader.open`.
            LocationInvalid: a path is ambiguous.
        """
        if table.seal is None:
            return self._found(table)
        return self._tables.get((table.record.id, table.seal.digest), lambda: self._found(table))

    def _found(self, table: LoadedTable) -> NamedFiles:
        metadata, listed = table.metadata, dict[str, ManifestListEntry]()
        paths = {table.metadata_location}
        paths |= {each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics)}
        for snapshot, entries in self._listed(table):
            paths.add(list_path(snapshot, table.name))
            listed |= {entry.manifest_path: entry for entry in entries}
        log = frozenset(_canonical(entry.metadata_file) for entry in metadata.metadata_log)
        contents = tuple(self._contents(table, listed))
        return NamedFiles(frozenset(map(_canonical, paths | listed.keys())), log, contents)

    def _listed(self, table: LoadedTable) -> Iterator[tuple[Snapshot, tuple[ManifestListEntry, ...]]]:
        """Return each snapshot and its manifests."""
        snapshots = table.metadata.snapshots
        sealed = self._reader.sealed(table.record.id, (list_path(each, table.name) for each in snapshots))
        for each in snapshots:
            known = sealed.get(list_path(each, table.name))
            if known is None:
                yield each, self._reader.manifests(table, each)
            else:
                key = (table.record.id, known.path, known.digest)
                yield each, self._lists.get(key, partial(self._reader.manifests, table, each))

    def _contents(self, table: LoadedTable, listed: dict[str, ManifestListEntry]) -> Iterator[ManifestFiles]:
        sealed = self._reader.sealed(table.record.id, listed)
        for path, entry in listed.items():
            known = sealed.get(path)
            if known is None:
                yield self._files(table, entry)
            else:
                yield self._manifests.get(
                    (table.record.id, path, known.digest), partial(self._files, table, entry)
                )

    def _files(self, table: LoadedTable, entry: ManifestListEntry) -> ManifestFiles:
        (manifest,) = self._reader.open(table, [entry])
        live, every = _paths(alive(manifest.entries)), _paths(manifest.entries)
        return ManifestFiles(live, every - live)


def _paths(entries: pa.Table) -> frozenset[str]:
    return frozenset(map(_canonical, pc.unique(entries["file_path"]).to_pylist()))


def _canonical(path: str) -> str:
    return Location.parse(path).canonical
