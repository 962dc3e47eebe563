"""Expires snapshots, and deletes the files that no remaining snapshot lists.

- Snapshots are removed by a commit like any other. If a branch or tag changes meanwhile, it is decided again
  what expires.
- The files of expired snapshots are found by their sealed manifest lists, never by what a caller says. A list
  is deleted after its manifests, and these after their files. So an interrupted call is repeated: it
  continues with the lists that are left.
- Files are deleted as garbage is (`garbage`): below the table's own location alone, never below the directory
  of an open write, and under the lock of the table's commits.
- Below a location that a user chose there can be files of others. Who deletes files there needs RWStorage.
- The answer says which files were kept, and why. The manifests and lists of files that were kept outside of
  the location are kept, too, so that a repeated call says so again until somebody has removed the files.
- One request deletes the files of a few snapshots, and says where the next one continues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from pydantic import Field
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    TableUpdate,
    ValidatableTableRequirement,
)

from catalog.authorization.authorizer import Caller
from catalog.base import crash_points
from catalog.base.identifiers import TableName
from catalog.commits.committer import Committer
from catalog.commits.conflicts import made_anew
from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.iceberg.manifests import ManifestListEntry
from catalog.iceberg.metadata import metadata_directory
from catalog.maintenance.garbage import GarbageCollector
from catalog.maintenance.retention import Expired, expired
from catalog.reading.loading import LoadedTable
from catalog.state import claims, seals
from catalog.state.seals import SealedFile
from catalog.writes.filters import require_every_row
from policy.errors import LocationNotAllowed
from policy.location.location import Location
from policy.privileges.operations import storage_requests

_ACTION: Final = "table.expire"
#: A request ends after a snapshot with which it has found as many files.
_PAGE: Final = 1_000

#: Why files are kept, below a location.
_SHARED: Final = (
    "Files below {0} can belong to other tables, because another table is located there or can read from "
    "there. None was deleted. Remove them by hand."
)
_CHOSEN: Final = (
    "A user chose the location {0}, where other files can be. None was deleted. To delete files of expired "
    "snapshots there, a user with the rwstorage permission on it must call the procedure."
)
_OUTSIDE: Final = "{1} files outside of {0} were kept. Remove them by hand."

FileCounts = Counter[str]
_CONTENTS: Final = ("data", "position-delete", "equality-delete")


@dataclass(frozen=True, slots=True)
class ExpiryRequest:
    """What expires; see `retention.expired`.

    Attributes:
        after: continue with snapshots of later sequence numbers.
    """

    older_than_ms: int | None = None
    retain_last: int | None = None
    snapshot_ids: Collection[int] = ()
    after: int = -1


@dataclass(frozen=True, slots=True)
class Deleted:
    """The result of one request.

    Attributes:
        files: how many were deleted, by kind: `data`, `position-delete`, `equality-delete`, `manifest`,
            `manifest-list` and `statistics`.
        next: where the next request continues; None if nothing is left.
        kept: why files of expired snapshots were not deleted; None if all were.
    """

    files: FileCounts
    next: int | None = None
    kept: str | None = None


class AssertSameRefs(ValidatableTableRequirement):
    """The table has exactly these branches and tags: a snapshot that gets one must not expire."""

    type: Literal["assert-same-refs"] = Field(default="assert-same-refs")
    refs: dict[str, SnapshotRef]

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        """Compare the branches and tags."""
        if base_metadata is None or base_metadata.refs != self.refs:
            raise CommitFailedException("Requirement failed: branches or tags have changed")


class SnapshotExpiry:
    """Expires snapshots.

    Args:
        context: the parts that services share.
        committer: makes the commits.
        garbage: deletes files that nothing references.
    """

    def __init__(self, context: ServiceContext, committer: Committer, garbage: GarbageCollector) -> None:
        self._context = context
        self._committer = committer
        self._garbage = garbage

    def expire(self, caller: Caller, name: TableName, request: ExpiryRequest) -> Deleted:
        """Expire snapshots, and delete files of expired snapshots. Repeat it until nothing is left.

        Raises:
            NotAuthorized: ALTER, DROP and UPDATE on the table are needed, and no row filter of a policy
                applies: the answer counts files.
            RequestInvalid: a branch or tag points to a snapshot that is named, or the table forbids it.
            CommitConflict: commits are in progress; what was not deleted stays.
            MetadataUnsealed, MetadataTampered: it is not known what the table references.
            StorageUnavailable: storage does not answer; a part can be deleted.
        """
        self._context.require(caller, _ACTION, name)
        with self._context.authorizer.recorded(caller, _ACTION, str(name)):
            statistics = made_anew(
                lambda: self._loaded(caller, name),
                lambda table: self._commit(caller, table, request),
            )
            crash_points.point("expiry:committed")
            table = self._context.loader.load_sealed(name)
            with read(self._context.engine) as connection:
                now, record = self._context.now_ms(), table.record
                shared = claims.meets_others(connection, self._context.catalog, record, now)
                lists = seals.manifest_lists(connection, record.id)
            kept = _SHARED if shared else self._kept(caller, table)
            if kept is not None:
                return Deleted(Counter(), kept=kept.format(record.location.canonical))
            return self._clear(table, lists, statistics, request.after)

    def _loaded(self, caller: Caller, name: TableName) -> LoadedTable:
        table = self._context.loader.load_sealed(name)
        require_every_row(self._context, table, caller, _ACTION)
        return table

    def _kept(self, caller: Caller, table: LoadedTable) -> str | None:
        """Return why the caller cannot delete files below the table's location; None if they can."""
        record = table.record
        if record.default_location:
            return None
        storage = storage_requests(self._context.on(caller, record.name), [record.location])
        if not self._context.authorizer.decide(storage).allowed:
            return _CHOSEN
        self._context.authorizer.require(caller, _ACTION, table.name, storage)
        return None

    def _commit(self, caller: Caller, table: LoadedTable, request: ExpiryRequest) -> list[str]:
        """Remove the snapshots; return the statistics files of them."""
        metadata = table.metadata
        gone = expired(
            metadata,
            table.name,
            self._context.now_ms(),
            older_than_ms=request.older_than_ms,
            retain_last=request.retain_last,
            snapshot_ids=request.snapshot_ids,
        )
        if gone == Expired():
            return []
        statistics = [each for each in metadata.statistics if each.snapshot_id in gone.snapshots]
        updates: list[TableUpdate] = [RemoveSnapshotRefUpdate(ref_name=each) for each in sorted(gone.refs)]
        updates += [RemoveStatisticsUpdate(snapshot_id=each.snapshot_id) for each in statistics]
        if gone.snapshots:
            updates.append(RemoveSnapshotsUpdate(snapshot_ids=sorted(gone.snapshots)))
        crash_points.point("expiry:decided")
        same = AssertSameRefs(refs=metadata.refs)
        self._committer.commit(caller, table.record.name, (same,), updates)  # type: ignore[arg-type]
        return [each.statistics_path for each in statistics]

    def _clear(
        self, table: LoadedTable, lists: Sequence[SealedFile], statistics: Sequence[str], after: int
    ) -> Deleted:
        """Delete files of expired snapshots, oldest first, until enough were found."""
        live = {each.manifest_list for each in table.metadata.snapshots}
        stored = self._stored(table)
        left = [each for each in lists if each.path not in live and each.sequence_number > after]
        named, page, last = self._garbage.named(table, removed=False), _Page(), None
        page.add(statistics, "statistics", named)
        for each in left:
            if Location.parse(each.path).canonical not in stored:
                continue
            if len(page.kinds) >= _PAGE and each.sequence_number != last:
                return self._deleted(table, page, last)
            self._gather(table, each, stored, named, page)
            last = each.sequence_number
        return self._deleted(table, page, None)

    def _gather(
        self,
        table: LoadedTable,
        sealed: SealedFile,
        stored: Collection[str],
        named: Collection[str],
        page: _Page,
    ) -> None:
        files: set[str] = set()
        try:
            for manifest_path, kinds in self._files(table, sealed, stored, named):
                for kind, paths in kinds.items():
                    page.add(paths, kind, named)
                listed = {path for paths in kinds.values() for path in paths}
                page.later.append((manifest_path, listed))
                files |= listed
        except LocationNotAllowed:
            return  # The allowed locations were narrowed since: these files stay.
        page.last.append((sealed.path, files))

    def _files(
        self, table: LoadedTable, sealed: SealedFile, stored: Collection[str], named: Collection[str]
    ) -> Iterator[tuple[str, Mapping[str, list[str]]]]:
        """Return the manifests of a list that nothing references any more, with their files by kind."""
        snapshot = Snapshot(snapshot_id=sealed.snapshot_id, manifest_list=sealed.path, timestamp_ms=0)

        def is_left(entry: ManifestListEntry) -> bool:
            canonical = Location.parse(entry.manifest_path).canonical
            return canonical in stored and canonical not in named

        listed = [each for each in self._context.reader.manifests(table, snapshot) if is_left(each)]
        for manifest in self._context.reader.open(table, listed):
            found: dict[str, list[str]] = {kind: [] for kind in _CONTENTS}
            paths, contents = (manifest.entries[each].to_pylist() for each in ("file_path", "content"))
            for path, content in zip(paths, contents, strict=True):
                found[_CONTENTS[content]].append(path)
            yield manifest.listed.manifest_path, found

    def _deleted(self, table: LoadedTable, page: _Page, after: int | None) -> Deleted:
        """Delete files, then manifests, then manifest lists; count them by kind."""
        counted: FileCounts = Counter()
        storage = self._context.storage
        data = {path: kind for path, kind in page.kinds.items() if storage.exists(Location.parse(path))}
        own = table.record.location
        outside = _outside(own, data)
        manifests = {path: "manifest" for path, files in page.later if files.isdisjoint(outside)}
        lists = {path: "manifest-list" for path, files in page.last if files.isdisjoint(outside)}
        for some in (data, manifests, lists):
            kinds = {Location.parse(path).canonical: kind for path, kind in some.items()}
            locations = [Location.parse(path) for path in some]
            gone = self._garbage.remove_unnamed(table, locations)
            counted.update(kinds[each.canonical] for each in gone)
            crash_points.point("expiry:deleted")
        kept = _OUTSIDE.format(own.canonical, len(outside)) if outside else None
        return Deleted(counted, after, kept)

    def _stored(self, table: LoadedTable) -> frozenset[str]:
        """Return the metadata files that exist below the table's own location."""
        own = table.record.location
        places = {own.child("metadata").canonical: own.child("metadata")}
        current = metadata_directory(table.metadata)
        if own.contains(current):
            places[current.canonical] = current
        found = (each for place in places.values() for each in self._context.storage.list_prefix(place))
        return frozenset(each.location.canonical for each in found)


def _outside(own: Location, paths: Collection[str]) -> set[str]:
    return {path for path in paths if not own.contains(Location.parse(path))}


@dataclass(slots=True)
class _Page:
    """The files of one request.

    Attributes:
        kinds: data, delete and statistics files, with their kinds.
        later, last: manifests and manifest lists, each with the files that it lists.
    """

    kinds: dict[str, str] = field(default_factory=dict)
    later: list[tuple[str, set[str]]] = field(default_factory=list)
    last: list[tuple[str, set[str]]] = field(default_factory=list)

    def add(self, paths: Collection[str], kind: str, named: Collection[str]) -> None:
        """Add those files that nothing references."""
        self.kinds.update((each, kind) for each in paths if Location.parse(each).canonical not in named)
