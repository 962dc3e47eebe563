"""Reads the metadata files of a snapshot, and checks each before and after it is opened.

Before: the path lies in the table's allowed locations. After: the bytes are those that were sealed, and the
parent says of the file what it said when it was sealed (a manifest's sequence number decides which encryption
epoch judges its files). Bytes are read once and decoded from memory; decoded manifests are cached by digest.

A manifest that is stored in decoded form has statistics of ranges of its entries. A reader can leave out
ranges by these. A manifest without a range that is needed is not read, like one that the partition summaries
in the list leave out.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.table.snapshots import Snapshot
from sqlalchemy import Engine

from catalog.base.cached import CachedProperty
from catalog.base.outside_calls import of_this_request
from catalog.base.recent import Recent
from catalog.db.engine import read
from catalog.iceberg.bounds import Mask
from catalog.iceberg.manifests import (
    DecodedManifest,
    DecodeLimits,
    ManifestCache,
    ManifestListEntry,
    RangeStatistics,
    StoredManifest,
    check_agreement,
    decode_manifest_list,
    inherit,
)
from catalog.iceberg.manifests.cache import Index
from catalog.iceberg.manifests.sealed_files import check_carried_record
from catalog.iceberg.manifests.statuses import alive
from catalog.reading.loading import LoadedTable
from catalog.state import seals
from catalog.state.seals import Digest, SealedFile
from catalog.storage.base import Storage
from catalog.storage.volumes import stored_before
from policy.errors import LocationNotAllowed, MetadataTampered, UnsupportedFormatVersion
from policy.location.allow_list import AllowList
from policy.location.location import Location

#: The maximum number of paths that an error names.
_SHOWN_PATHS: Final = 3
_READ_THREADS: Final = 4
#: The largest manifest on a local disk that is read in one piece.
_SMALL_BYTES: Final = 1 << 16
#: The maximum number of manifests in manifest lists that are remembered. A list counts as some.
_KEPT_MANIFESTS: Final = 50_000
_A_LIST: Final = 10
_NONE: Final[Mapping[str, SealedFile]] = MappingProxyType({})
#: The maximum number of manifests of which is remembered that all of their paths are allowed.
_REMEMBERED: Final = 100_000

#: Returns one flag per range for each manifest: whether its entries are needed.
Keeps = Callable[[Sequence[RangeStatistics]], Sequence[Mask]]
#: A manifest, and the ranges of its entries that are needed; None for all.
_Chosen = tuple[ManifestListEntry, Sequence[int] | None]


@dataclass(frozen=True)
class OpenManifest:
    """A manifest that was read and checked."""

    listed: ManifestListEntry
    decoded: DecodedManifest
    digest: Digest

    @CachedProperty
    def entries(self) -> pa.Table:
        """Return its files with inherited sequence numbers and snapshot ids.

        See the Iceberg table specification, "Sequence Number Inheritance".

        Raises:
            MetadataInvalid: a number that must be there is not.
        """
        return inherit(self.decoded, self.listed)

    @property
    def whole(self) -> DecodedManifest:
        """Return all of its entries, where `decoded` has only some ranges of them."""
        decoded = self.decoded
        return StoredManifest(decoded.form) if isinstance(decoded, StoredManifest) else decoded


class SnapshotReader:
    """Reads snapshots of loaded tables.

    Args:
        engine: the catalog's database, where the seals are.
        storage: where the files are.
        cache: decoded manifests by digest.
        limits: bounds on what is read and decoded.
    """

    def __init__(self, engine: Engine, storage: Storage, cache: ManifestCache, limits: DecodeLimits) -> None:
        self._engine = engine
        self._storage = storage
        self.cache = cache
        self._limits = limits
        #: Digests of manifests and allow-lists: all live paths of the one are in the other.
        self._inside: Recent[bool] = Recent(_REMEMBERED, lambda _: 1)
        self._pool = ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="manifest-read")

    def close(self) -> None:
        """Stop the reading threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def manifests(
        self, table: LoadedTable, snapshot: Snapshot, *, also: Mapping[str, SealedFile] = _NONE
    ) -> tuple[ManifestListEntry, ...]:
        """Return the entries of a snapshot's manifest list, checked against the seals.

        Args:
            table: the table, loaded.
            snapshot: one of its snapshots.
            also: files that are about to be sealed, by path.

        Raises:
            LocationNotAllowed: the list, or a manifest it names, lies outside of the allowed locations.
            MetadataTampered: the list is not what was sealed.
            MetadataInvalid: it cannot be decoded.
        """
        path = list_path(snapshot, table.name)
        sealed = self.sealed(table.record.id, [path]) | dict(also)
        data = self.fetch(table.governed.allowed, path, table.name, "manifest list")
        self._check(table, data, path, sealed.get(path), "manifest list")
        return self.decode_list(table.governed.allowed, data, path, table)

    def decode_list(
        self, allowed: AllowList, data: bytes, path: str, table: LoadedTable
    ) -> tuple[ManifestListEntry, ...]:
        """Decode a manifest list and check every path in it."""
        listed = _decoded(data, path, table.metadata.format_version, self._limits)
        paths = pa.array([entry.manifest_path for entry in listed], pa.string())
        refuse_outside(allowed, paths, table.name, "manifests")
        return listed

    def open(
        self,
        table: LoadedTable,
        listed: Iterable[ManifestListEntry],
        *,
        also: Mapping[str, SealedFile] = _NONE,
        keeps: Keeps | None = None,
    ) -> Iterator[OpenManifest]:
        """Read, check and decode manifests, in order.

        A few are read ahead; decoding, which keeps the interpreter busy, is done where it is asked for, and
        no more than those few are in memory unless the caller keeps them.

        Args:
            table: the table.
            listed: the manifests.
            also: files that are about to be sealed, by path.
            keeps: leaves out ranges of entries, where they are known. A manifest without a range that is left
                is not opened if all of its paths are allowed.

        Raises:
            as `manifests`.
        """
        every = tuple(listed)
        sealed = self.sealed(table.record.id, [entry.manifest_path for entry in every]) | dict(also)
        chosen: list[_Chosen] = [(entry, None) for entry in every]
        if keeps is not None:
            chosen = self._chosen(table, every, sealed, keeps)
        wanted = [entry for entry, _ in chosen]

        def checked(entry: ManifestListEntry) -> tuple[bytes, Digest]:
            data = self.fetch(table.governed.allowed, entry.manifest_path, table.name, "manifest")
            known = sealed.get(entry.manifest_path)
            digest = self._check(table, data, entry.manifest_path, known, "manifest")
            if known is not None:
                check_carried_record(entry, known, table.name)
            return data, digest

        for (entry, ranges), (data, digest) in zip(chosen, self._ahead(checked, wanted), strict=True):
            yield self.decode(entry, data, digest, ranges)

    def _chosen(
        self,
        table: LoadedTable,
        listed: Sequence[ManifestListEntry],
        sealed: Mapping[str, SealedFile],
        keeps: Keeps,
    ) -> list[_Chosen]:
        """Return the manifests to open, with the ranges to use; those of unsealed tables are all opened."""
        forms = {}
        for place, entry in enumerate(listed):
            known = sealed.get(entry.manifest_path) if table.seal is not None else None
            form = None if known is None else self.cache.stored(known.digest.sha256)
            if known is not None and form is not None:
                check_carried_record(entry, known, table.name)
                check_agreement(form.header, entry)
                forms[place] = form, known.digest
        found = keeps([form.ranges for form, _ in forms.values()]) if forms else ()
        masks = dict(zip(forms, found, strict=True))
        chosen: list[_Chosen] = []
        for place, entry in enumerate(listed):
            if place not in forms or masks[place].all():
                chosen.append((entry, None))
                continue
            form, digest = forms[place]
            ranges = np.flatnonzero(masks[place]).tolist()
            if ranges or not self._decided(table.governed.allowed, digest, form.directories):
                chosen.append((entry, ranges))
        return chosen

    def require_inside(self, table: LoadedTable, manifests: Sequence[OpenManifest]) -> None:
        """Check every live path of manifests, including those that are not read.

        Once it is known of a stored manifest and a list that all paths are allowed, it stays so.

        Raises:
            LocationNotAllowed: a path is not.
        """
        allowed = table.governed.allowed
        left = [each for each in manifests if not self._known_inside(allowed, each)]
        if not left:
            return
        paths = [alive(each.whole.entries)["file_path"] for each in left]
        chunks = [chunk for each in paths for chunk in each.chunks]
        refuse_outside(allowed, pa.chunked_array(chunks, pa.string()), table.name, "files")
        for each in left:
            if isinstance(each.decoded, StoredManifest):
                self._inside.get((each.digest.sha256, allowed.digest), lambda: True)

    def _known_inside(self, allowed: AllowList, manifest: OpenManifest) -> bool:
        decoded = manifest.decoded
        return isinstance(decoded, StoredManifest) and self._decided(
            allowed, manifest.digest, decoded.form.directories
        )

    def _decided(self, allowed: AllowList, digest: Digest, directories: Sequence[str] | None) -> bool:
        """Return whether it is known that all live paths of a stored manifest are allowed."""
        key = digest.sha256, allowed.digest
        if self._inside.known(key):
            return True
        if directories is None or not allowed.allows_directories(directories):
            return False
        return self._inside.get(key, lambda: True)

    def _ahead(
        self, read: Callable[[ManifestListEntry], tuple[bytes, Digest]], wanted: Sequence[ManifestListEntry]
    ) -> Iterator[tuple[bytes, Digest]]:
        """Return results of `read` in order, several in progress at a time."""
        if len(wanted) == 1 or all(map(_is_at_hand, wanted)):
            yield from map(read, wanted)
            return
        under_way: deque[Future[tuple[bytes, Digest]]] = deque()
        read = of_this_request(read)
        try:
            for entry in wanted:
                if len(under_way) == _READ_THREADS:
                    yield under_way.popleft().result()
                under_way.append(self._pool.submit(read, entry))
            while under_way:
                yield under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()

    def decode(
        self, entry: ManifestListEntry, data: bytes, digest: Digest, ranges: Sequence[int] | None = None
    ) -> OpenManifest:
        """Decode the bytes of a manifest, or return them from the cache.

        Args:
            entry: the list's record of it.
            data: its bytes.
            digest: their digest.
            ranges: the ranges of its entries that are needed, if it is stored; None for all.
        """
        decoded = self.cache.get(digest.sha256, data, path=entry.manifest_path, ranges=ranges)
        check_agreement(decoded.header, entry)
        return OpenManifest(entry, decoded, digest)

    def index(self, digest: Digest) -> Index | None:
        """Return the cached index of a manifest, if any; see `catalog.snapshot_checks.identities`."""
        return self.cache.index(digest.sha256)

    def keep_index(self, digest: Digest, index: Index) -> None:
        """Cache the index of a manifest."""
        self.cache.keep_index(digest.sha256, index)

    def fetch(self, allowed: AllowList, path: str, table: str, what: str) -> bytes:
        """Read a metadata file whole, after checking its path.

        Raises:
            LocationNotAllowed: the path is not allowed; nothing was opened.
            ObjectMissing: the file was deleted.
            StorageUnavailable: the storage does not answer, or the warehouse or bucket is gone.
        """
        decision = allowed.decide(path)
        if not decision.allowed:
            raise LocationNotAllowed(
                f"The {what} is outside of the table's allowed locations.",
                table=table,
                path=path,
                rule=decision.reasons[0].rule,
                hint="Add the location to read.allowed.data.paths. This needs the rwstorage permission.",
            )
        location = Location.parse(path)
        with stored_before(self._storage, location):
            return self._storage.read(location, limit=self._limits.max_file_bytes)

    def sealed(self, table_id: str, paths: Iterable[str]) -> dict[str, SealedFile]:
        """Return those of `paths` that are sealed for the table."""
        with read(self._engine) as connection:
            return seals.sealed_files(connection, table_id, paths)

    def _check(
        self, table: LoadedTable, data: bytes, path: str, known: SealedFile | None, what: str
    ) -> Digest:
        if known is not None:
            return seals.check_digest(data, known.digest, what=what, path=path, table=table.name)
        if table.seal is not None:
            raise MetadataTampered(
                f"The {what} has no seal: it was not committed through the catalog.",
                table=table.name,
                path=path,
                rule="seal",
            )
        return Digest.of(data)


def _is_at_hand(entry: ManifestListEntry) -> bool:
    """Return whether reading a manifest is faster than starting a thread: a small local file."""
    return entry.manifest_length <= _SMALL_BYTES and entry.manifest_path.startswith("file:")


def _decoded(
    data: bytes, path: str, format_version: int, limits: DecodeLimits
) -> tuple[ManifestListEntry, ...]:
    """Decode a manifest list, once for the same bytes."""
    key = (hashlib.sha256(data).digest(), format_version, limits)
    return _lists.get(
        key, lambda: decode_manifest_list(data, path=path, format_version=format_version, limits=limits)
    )


_lists: Final = Recent[tuple[ManifestListEntry, ...]](_KEPT_MANIFESTS, lambda each: len(each) + _A_LIST)


def list_path(snapshot: Snapshot, table: str) -> str:
    """Return the path of a snapshot's manifest list.

    Raises:
        UnsupportedFormatVersion: the snapshot lists its manifests itself (an old form of version 1).
    """
    if not snapshot.manifest_list:
        raise UnsupportedFormatVersion(
            "The snapshot has no manifest list.",
            table=table,
            snapshot=snapshot.snapshot_id,
            rule="manifest-list",
        )
    return snapshot.manifest_list


def refuse_outside(allowed: AllowList, paths: pa.Array | pa.ChunkedArray, table: str, what: str) -> None:
    """Refuse paths outside of the allowed locations; name the first ones and their number.

    Raises:
        LocationNotAllowed: at least one is outside.
    """
    inside = allowed.decide_many(paths)
    outside = len(inside) - inside.true_count
    if outside == 0:
        return
    foreign = paths.filter(pa.compute.invert(inside)).slice(0, _SHOWN_PATHS).to_pylist()
    rule = allowed.decide(foreign[0] or "").reasons[0].rule
    raise LocationNotAllowed(
        f"{outside} of {len(paths)} {what} are outside of the table's allowed locations.",
        table=table,
        path=", ".join(str(path) for path in foreign),
        rule=rule,
        hint="Add the location to read.allowed.data.paths. This needs the rwstorage permission.",
    )
