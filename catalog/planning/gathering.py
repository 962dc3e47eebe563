"""Opens manifests of a plan, and combines small ones, so that planning processes them together.

Planning costs nearly the same for one file as for thousands, and every append adds a manifest. So neighbours
with the same partition spec and the same types of partition columns are combined, after each was checked by
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import pyarrow as pa

from catalog.iceberg.manifests import DecodedManifest, ManifestListEntry, inherit_each
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import Keeps, OpenManifest, SnapshotReader
from policy.errors import MetadataInvalid

_Kept = TypeVar("_Kept")
#: Maximum number of entries of a small manifest. Combining copies entries, which is not worth it for large
#: ones.
_SMALL: Final = 1024


@dataclass(frozen=True, slots=True)
class Gathered:
    """The entries of several manifests.

    Attributes:
        manifests: these, in order; one at least.
        decoded: their entries and statistics.
        entries: the same entries with what they inherit.
    """

    manifests: tuple[OpenManifest, ...]
    decoded: DecodedManifest
    entries: pa.Table

    @property
    def listed(self) -> ManifestListEntry:
        """Return the manifest list's record of the first manifest."""
        return self.manifests[0].listed

    @classmethod
    def of(cls, manifests: Sequence[OpenManifest]) -> Gathered:
        """Combine manifests that are alike."""
        first = manifests[0]
        if len(manifests) == 1:
            return cls((first,), first.decoded, first.entries)
        decoded = DecodedManifest(
            first.decoded.header,
            _joined(each.decoded.entries for each in manifests),
            _joined(each.decoded.statistics for each in manifests),
        )
        listed = [(each.listed, len(each.decoded)) for each in manifests]
        try:
            entries = inherit_each(decoded.entries, listed)
        except MetadataInvalid:
            # One by one, so that the error names the manifest.
            entries = _joined(each.entries for each in manifests)
        return cls(tuple(manifests), decoded, entries)

    def apart(self) -> Iterator[Gathered]:
        """Separate the manifests."""
        return (Gathered.of([each]) for each in self.manifests)


def data_of(
    reader: SnapshotReader,
    table: LoadedTable,
    listed: Sequence[ManifestListEntry],
    keeps: Keeps | None = None,
) -> Iterator[Gathered]:
    """Open data manifests, and combine small ones. Every live path in them is checked.

    Args:
        reader: opens them.
        table: the table.
        listed: the manifests.
        keeps: leaves out ranges of entries; see `SnapshotReader.open`.

    Raises:
        LocationNotAllowed: a file is outside of the allowed locations, also one that the scan does not read.
        MetadataTampered, MetadataInvalid: see `SnapshotReader.open`.
    """
    for files in gathered(reader.open(table, listed, keeps=keeps)):
        reader.require_inside(table, files.manifests)
        yield files


def deletes_of(
    reader: SnapshotReader, table: LoadedTable, listed: Sequence[ManifestListEntry]
) -> Iterator[OpenManifest]:
    """Open delete manifests, as `data_of` does data manifests."""
    for manifest in reader.open(table, listed):
        reader.require_inside(table, [manifest])
        yield manifest


def naming_manifest(kept: Callable[[Gathered], _Kept], files: Gathered) -> _Kept:
    """Return what is kept of combined manifests. An error names the manifest."""
    try:
        return kept(files)
    except MetadataInvalid:
        for each in files.apart():
            kept(each)
        raise


def gathered(opened: Iterable[OpenManifest]) -> Iterator[Gathered]:
    """Combine small manifests with their neighbours, in order."""
    held: list[OpenManifest] = []
    size = 0
    for manifest in opened:
        # A manifest without entries counts too, so that the number of combined manifests is bounded.
        size += max(1, len(manifest.decoded))
        if held and (size > _SMALL or not _alike(held[0], manifest)):
            yield Gathered.of(held)
            held, size = [], max(1, len(manifest.decoded))
        held.append(manifest)
    if held:
        yield Gathered.of(held)


def _alike(one: OpenManifest, other: OpenManifest) -> bool:
    return (
        one.listed.partition_spec_id == other.listed.partition_spec_id
        and one.decoded.entries.schema.equals(other.decoded.entries.schema, check_metadata=True)
    )


def _joined(tables: Iterable[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks()
