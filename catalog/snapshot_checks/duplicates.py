"""Refuses a file that a snapshot adds twice, or that is already a live file of its parent.

- Files are compared by identity (`identities`), and in an encrypted table by file id as well: keys, bounds
  and digests of an encrypted file are bound to its id, so two files of one id could be exchanged.
- Manifests that the snapshot shares with its parent are looked up in their indexes. A manifest is opened only
  if it has no index yet, or if its index finds a match.
- Existing duplicates of a table stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.iceberg.manifests import ManifestListEntry
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import OpenManifest, SnapshotReader
from catalog.snapshot_checks.entries import alive, newly_added
from catalog.snapshot_checks.identities import Hashes, file_ids, identities, index, may_share
from catalog.state.seals import SealedFile
from policy.errors import RequestInvalid


class LiveFiles:
    """Looks up files in the manifests of a snapshot, by index where possible.

    Args:
        reader: reads manifests, and keeps their indexes.
    """

    def __init__(self, reader: SnapshotReader) -> None:
        self._reader = reader

    def check_added(
        self,
        table: LoadedTable,
        fresh: Sequence[OpenManifest],
        dropped: Sequence[OpenManifest],
        shared: Sequence[ManifestListEntry],
        brought: Mapping[str, SealedFile],
    ) -> None:
        """Check the files that new manifests add, and store indexes for later commits.

        Args:
            table: the table, sealed.
            fresh: the new manifests.
            dropped: the parent's manifests that the snapshot does not list.
            shared: the manifests that both list.
            brought: the files of this commit, by path.

        Raises:
            RequestInvalid: a file is added twice, or is a live file of the parent.
        """
        indexes = [self._indexed(manifest) for manifest in fresh]
        added = _Added(table, fresh)
        if added.empty:
            return
        added.require_distinct()
        for manifest in dropped:
            added.require_new(manifest)
        for manifest in self._suspects(table, np.unique(np.concatenate(indexes)), shared, brought):
            added.require_new(manifest)

    def _suspects(
        self,
        table: LoadedTable,
        files: Hashes,
        shared: Sequence[ManifestListEntry],
        brought: Mapping[str, SealedFile],
    ) -> Iterator[OpenManifest]:
        """Yield shared manifests that can list one of these files."""
        paths = [entry.manifest_path for entry in shared]
        sealed = self._reader.sealed(table.record.id, paths)
        unknown, suspected = [], []
        for entry in shared:
            known = sealed.get(entry.manifest_path)
            found = None if known is None else self._reader.index(known.digest)
            if found is None:
                unknown.append(entry)
            elif may_share(found, files):
                suspected.append(entry)
        yield from self._reader.open(table, suspected, also=brought)
        for manifest in self._reader.open(table, unknown, also=brought):
            if may_share(self._indexed(manifest), files):
                yield manifest

    def _indexed(self, manifest: OpenManifest) -> Hashes:
        made = index(manifest.entries)
        self._reader.keep_index(manifest.digest, made)
        return made


def require_distinct(parts: Sequence[pa.Table], table: str) -> None:
    """Check that no file or file id appears in two entries.

    Raises:
        RequestInvalid: one does.
    """
    for keys_of in (identities, file_ids):
        keys = [keys_of(entries) for entries in parts if entries.num_rows]
        twice = _twice(keys)
        if twice is not None:
            raise RequestInvalid(
                "The table contains a file, or a file id, twice.",
                table=table,
                path=twice,
                rule="duplicate-file",
                hint="Commit a snapshot that deletes the second entry.",
            )


def _twice(keys: Sequence[pa.Array]) -> str | None:
    """Return a text that appears twice, or None."""
    together = pa.chunked_array(keys, pa.string()).drop_null()
    if pc.count_distinct(together).as_py() == len(together):
        return None
    counted = together.value_counts()
    found: str = counted.filter(pc.greater(counted.field("counts"), 1))[0]["values"].as_py()
    return found


class _Added:
    """The files that new manifests add."""

    def __init__(self, table: LoadedTable, fresh: Sequence[OpenManifest]) -> None:
        self._table = table.name
        self._by_id = table.governed.spec.encrypts
        added = [newly_added(each.entries.select(_COLUMNS)) for each in fresh]
        self._keys = [self._keys_of(entries) for entries in added if entries.num_rows]
        self.empty = not self._keys

    @property
    def _all(self) -> list[pa.Array]:
        return [keys for each in self._keys for keys in each]

    def _keys_of(self, entries: pa.Table) -> list[pa.Array]:
        return [identities(entries), file_ids(entries)] if self._by_id else [identities(entries)]

    def require_distinct(self) -> None:
        """Check that no file is added twice.

        Raises:
            RequestInvalid: a file is added twice.
        """
        twice = _twice(self._all)
        if twice is not None:
            raise self._refusal("The commit adds a file twice, or two files with the same file id.", twice)

    def require_new(self, manifest: OpenManifest) -> None:
        """Check that a manifest has none of the files as a live file.

        Raises:
            RequestInvalid: it has one.
        """
        files = alive(manifest.entries)
        for keys, added in zip(self._keys_of(files), zip(*self._keys, strict=True), strict=True):
            there = pc.is_in(keys, value_set=pa.chunked_array(added).drop_null())
            if pc.any(pc.and_(there, keys.is_valid())).as_py():
                path = files["file_path"].filter(there)[0].as_py()
                raise self._refusal(
                    "The table already contains a file that the commit adds, or a file with the "
                    "same file id.",
                    path,
                )

    def _refusal(self, message: str, path: str) -> RequestInvalid:
        hint = "Add each file once, under a name with a new file id."
        return RequestInvalid(message, table=self._table, path=path, rule="duplicate-file", hint=hint)


_COLUMNS = ["status", "file_path", "referenced_data_file", "content_offset"]
