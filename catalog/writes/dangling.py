"""Finds delete files that apply to no data file, by what manifests say of them.

A delete file is dangling if every data file that it could apply to is gone or newer.

Source: Apache Iceberg's `RemoveDanglingDeletesSparkAction`; Iceberg table specification, "Scan Planning".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFileContent

from catalog.iceberg.manifests import ManifestContent, ManifestListEntry, data_files
from catalog.iceberg.manifests.rows import partition_rows
from catalog.iceberg.partition_keys import key_of, partition_of
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import OpenManifest, SnapshotReader
from catalog.writes.applying import only_file
from catalog.writes.scopes import Files, is_unpartitioned


def dangling(
    reader: SnapshotReader, table: LoadedTable, listed: Sequence[ManifestListEntry]
) -> Iterator[str]:
    """Yield the paths of a snapshot's delete files that apply to no data file.

    Args:
        reader: reads the manifests.
        table: the table, sealed.
        listed: the manifests of the snapshot.
    """
    deletes = [each for each in listed if each.content is ManifestContent.DELETES]
    if not deletes:
        return
    live = _Live()
    for manifest in reader.open(table, (each for each in listed if each.content is ManifestContent.DATA)):
        live.add(manifest)
    for manifest in reader.open(table, deletes):
        spec_id = manifest.listed.partition_spec_id
        everywhere = is_unpartitioned(table.metadata.specs()[spec_id])
        rows = Files.live(manifest)
        numbers = rows.entries["sequence_number"].to_pylist()
        files = data_files(manifest.decoded, rows.numbers, spec_id)
        for file, number in zip(files, numbers, strict=True):
            positional = file.content == DataFileContent.POSITION_DELETES
            only = only_file(file) if positional else None
            if only is not None:
                oldest = live.files.get(only)
            elif everywhere and not positional:
                oldest = min(live.partitions.values(), default=None)
            else:
                oldest = live.partitions.get(partition_of(file))
            # A position delete file also applies to files of its own commit.
            if oldest is None or (number < oldest if positional else number <= oldest):
                yield file.file_path


@dataclass(slots=True)
class _Live:
    """The data sequence numbers of the live data files, by path, and the least ones of each partition."""

    files: dict[str, int] = field(default_factory=dict)
    partitions: dict[tuple[int, str], int] = field(default_factory=lambda: defaultdict(lambda: 2**63))

    def add(self, manifest: OpenManifest) -> None:
        entries, spec_id = Files.live(manifest).entries, manifest.listed.partition_spec_id
        keys: Iterable[str] = map(key_of, partition_rows(entries["partition"].combine_chunks()))
        paths, numbers = (entries[name].to_pylist() for name in ("file_path", "sequence_number"))
        for key, path, number in zip(keys, paths, numbers, strict=True):
            self.files[path] = number
            self.partitions[spec_id, key] = min(number, self.partitions[spec_id, key])
