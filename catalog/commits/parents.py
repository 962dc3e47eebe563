"""What the parent of a new snapshot has, looked at only as far as a commit makes it necessary.

A file that a new manifest carries over or removes is one that a replaced manifest lists as live, with the
same numbers, keys and partition spec, and each of those is accounted for once. A file that is added is not
live already; in an encrypted table, nor is another one of its file id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.snapshots import Snapshot

from catalog.commits.entry_checks import alive
from catalog.keys.file_identity import shown_file_ids
from catalog.loading import LoadedTable
from catalog.manifests import ManifestListEntry
from catalog.seals import SealedFile
from catalog.snapshots import OpenManifest, SnapshotReader
from policy.errors import MetadataTampered, RequestInvalid


@dataclass(frozen=True, slots=True)
class _Live:
    """Where a live file of the parent snapshot stands."""

    sequence_number: int
    file_sequence_number: int
    content: int
    key_metadata: bytes | None
    spec_id: int


class Parent:
    """The live files of the parent snapshot, looked at only as far as a commit makes it necessary."""

    def __init__(
        self,
        reader: SnapshotReader,
        table: LoadedTable,
        snapshot: Snapshot | None,
        carried: Sequence[ManifestListEntry],
        brought: Mapping[str, SealedFile],
    ) -> None:
        self._reader = reader
        self._table = table
        self._snapshot = snapshot
        self._carried = carried
        self._brought = brought
        self._live: dict[str, list[_Live]] | None = None
        self._kept: list[pa.ChunkedArray] = []

    def check_carried_files(self, entries: pa.Table, spec_id: int) -> None:
        """Existing and deleted entries of new manifests are files that a replaced manifest lists as live.

        Each accounts for one of those; so none is carried over twice, or carried over and removed. None gets
        another partition spec, which could show values of what is encrypted by now.
        """
        if entries.num_rows == 0:
            return
        live = self._replaced()
        self._kept.append(alive(entries)["file_path"])
        for path, found in _live_files(entries, spec_id):
            if found not in live.get(path, ()):
                raise MetadataTampered(
                    "A new manifest carries over a file that the parent snapshot does not have like this.",
                    table=self._table.name,
                    path=path,
                    rule="carried-file",
                    hint="Load the table and commit again.",
                )
            live[path].remove(found)

    def carried_paths(self) -> Iterator[pa.ChunkedArray]:
        """The live paths of manifests that are carried over, and those carried over into new manifests."""
        yield from self._kept
        for manifest in self._reader.open(self._table, self._carried, also=self._brought):
            yield alive(manifest.entries)["file_path"]

    def _replaced(self) -> dict[str, list[_Live]]:
        """The live files of the parent's manifests that are not carried over."""
        if self._live is None:
            self._live = {}
            for manifest in self._replaced_manifests():
                spec_id = manifest.listed.partition_spec_id
                for path, found in _live_files(alive(manifest.entries), spec_id):
                    self._live.setdefault(path, []).append(found)
        return self._live

    def _replaced_manifests(self) -> Iterator[OpenManifest]:
        if self._snapshot is None:
            return iter(())
        carried = {entry.manifest_path for entry in self._carried}
        listed = self._reader.manifests(self._table, self._snapshot, also=self._brought)
        replaced = [entry for entry in listed if entry.manifest_path not in carried]
        return self._reader.open(self._table, replaced, also=self._brought)


def check_duplicates(added: Sequence[pa.ChunkedArray], parent: Parent, table: LoadedTable) -> None:
    """No file is added twice, nor while it is live already; nor do two encrypted files have one id.

    What keys, bounds and parts of an encrypted file are bound to is its id: two files of one id could be
    exchanged.
    """
    key_of = shown_file_ids if table.governed.spec.encrypts else _path_key
    new = pa.chunked_array([key_of(chunk) for paths in added for chunk in paths.chunks], pa.string())
    if len(new) == 0:
        return
    distinct = new.unique()
    if len(distinct) != len(new):
        raise _duplicate("The commit adds a file twice, or two files of one file id.", table, None)
    for paths in parent.carried_paths():
        twice = pc.is_in(key_of(paths), value_set=distinct)
        if pc.any(twice).as_py():
            path = paths.filter(twice)[0].as_py()
            raise _duplicate(
                "A file that the commit adds, or its file id, is in the table already.", table, path
            )


def _duplicate(message: str, table: LoadedTable, path: str | None) -> RequestInvalid:
    hint = "Add each file once, under a name with a file id of its own."
    return RequestInvalid(message, table=table.name, path=path, rule="duplicate-file", hint=hint)


def _live_files(entries: pa.Table, spec_id: int) -> Iterator[tuple[str, _Live]]:
    columns = ("sequence_number", "file_sequence_number", "content", "key_metadata")
    values = zip(*(entries[name].to_pylist() for name in columns), strict=True)
    for path, (number, file_number, content, metadata) in zip(
        entries["file_path"].to_pylist(), values, strict=True
    ):
        yield path, _Live(number, file_number, content, metadata, spec_id)


def _path_key(paths: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A path without its scheme, equal for the spellings of one location that the path check lets through."""
    return pc.replace_substring_regex(paths, "^[A-Za-z0-9]+:/*", "")
