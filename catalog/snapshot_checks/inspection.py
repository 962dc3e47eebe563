"""Checks the content of a commit before it is accepted.

For each new snapshot:

- Every path (manifest list, manifest, data and delete file, statistics) is in the allowed locations.
- A manifest that is carried over is listed exactly as it was sealed.
- A new manifest belongs to this snapshot. A file that it adds is new (no earlier sequence number, not live
  already). A file that it carries over is live in the parent, with the same numbers and keys.
- An added file complies with the encryption epoch in force: its key metadata opens under the table's PEK, it
  is not in plaintext if files are encrypted, and no bounds of encrypted columns are in plaintext.

Data files are not opened; `added_files` checks that added files exist. The result is the list of files to
seal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from catalog.base.errors import CommitConflict
from catalog.base.progress import Tell, counted, silent
from catalog.iceberg.manifests import ManifestListEntry
from catalog.iceberg.manifests.descriptions import check_described
from catalog.iceberg.manifests.sealed_files import check_carried_record
from catalog.keyring.keyring import Keyring
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import (
    OpenManifest,
    SnapshotReader,
    list_path,
    refuse_outside,
)
from catalog.snapshot_checks.added_files import ADDED_COLUMNS, AddedFiles
from catalog.snapshot_checks.branches import new_snapshots
from catalog.snapshot_checks.carried import check_carried
from catalog.snapshot_checks.cherry_picks import check_picked, require_current_keys, source_id
from catalog.snapshot_checks.difference import difference
from catalog.snapshot_checks.duplicates import LiveFiles, require_distinct
from catalog.snapshot_checks.entries import (
    EXISTING,
    alive,
    check_fields,
    check_growth,
    check_no_bounds,
    check_no_statistics,
    check_numbers,
    check_orders,
    check_partitions,
    check_paths,
    check_spec,
    newly_added,
)
from catalog.state.pointers import MAX_LOCATION_LENGTH
from catalog.state.seals import Digest, FileKind, SealedFile
from policy.errors import EncryptionPolicyViolation, LocationNotAllowed, MetadataInvalid, MetadataTampered


class Origin(Enum):
    """The origin of a commit's snapshots.

    Attributes:
        CLIENT: a client, with any permissions.
        WRITE: the catalog, from the files of a write session.
        REWRAP: the catalog, which rewrapped data keys and compared them one by one.
    """

    CLIENT = "client"
    WRITE = "write"
    REWRAP = "rewrap"


class Inspector:
    """Checks the content of commits.

    Args:
        reader: reads manifest lists and manifests.
        keyring: opens the data keys in key metadata.
        added_files: checks that the files that a commit adds exist.
    """

    def __init__(self, reader: SnapshotReader, keyring: Keyring, added_files: AddedFiles) -> None:
        self._reader = reader
        self._keyring = keyring
        self._live = LiveFiles(reader)
        self._added_files = added_files

    def commit(
        self,
        table: LoadedTable,
        metadata: TableMetadata,
        origin: Origin = Origin.CLIENT,
        written: Mapping[str, Digest] | None = None,
        renumbered: Collection[int] = (),
    ) -> tuple[SealedFile, ...]:
        """Check what `metadata` adds to the table's current metadata.

        Args:
            table: the current table, sealed; the commit has to comply with its governed properties.
            metadata: the metadata to be committed.
            origin: who made the snapshots.
            written: digests of the manifests and manifest lists that the catalog wrote for this commit, by
                path; None if a client wrote them.
            renumbered: ids that the client gave sort orders, which have other ids in `metadata`.

        Returns:
            the files to seal.

        Raises:
            CommitConflict: the parent of a new snapshot is not in the table, or an added file is sorted by an
                order that has another id.
            RequestInvalid: a file is added twice.
            LocationNotAllowed, MetadataTampered, MetadataInvalid, EncryptionPolicyViolation,
            DecryptionRefused: the commit violates a rule.
            StorageUnavailable: the storage does not answer whether the files exist.
        """
        brought = new_snapshots(table.metadata, metadata)
        self._check_statistics(table, metadata)
        check_growth(table, metadata, brought)
        files: dict[str, SealedFile] = {}
        added: list[pa.Table] = []
        new = {each.snapshot_id for each in brought}
        known = {each.snapshot_id: each for each in table.metadata.snapshots if each.snapshot_id not in new}
        for snapshot in brought:
            fresh = self._snapshot(table, metadata, snapshot, known, files, origin)
            for each in fresh:
                entries = newly_added(each.entries)
                check_orders(entries, renumbered, table.name)
                added.append(entries.select(ADDED_COLUMNS))
            known[snapshot.snapshot_id] = snapshot
        if written is not None:
            _require_written(files, written, table.name)
        self._added_files.check(added, table.name)
        return tuple(files.values())

    def whole(self, table: LoadedTable, tell: Tell = silent) -> tuple[SealedFile, ...]:
        """Check every snapshot of metadata that was not committed through the catalog.

        Such a table is never encrypted, so the files' epochs do not matter.

        Args:
            table: the table.
            tell: is told how many snapshots are checked.

        Raises:
            as `commit`.
        """
        self._check_statistics(table, table.metadata)
        log = [entry.metadata_file for entry in table.metadata.metadata_log]
        named = pa.array([table.metadata.location, *log], pa.string())
        refuse_outside(table.governed.allowed, named, table.name, "directories and earlier metadata files")
        files: dict[str, SealedFile] = {}
        described: dict[str, ManifestListEntry] = {}
        snapshots = table.metadata.snapshots
        for snapshot in counted(snapshots, tell, "Snapshots checked", len(snapshots)):
            sealed, listed = self._manifest_list(table, snapshot)
            files[sealed.path] = sealed
            for entry in listed:
                if entry.manifest_path in files:
                    check_carried_record(entry, files[entry.manifest_path], table.name)
            fresh = [entry for entry in listed if described.get(entry.manifest_path) != entry]
            for manifest in self._reader.open(table, fresh):
                check_paths(table, manifest.entries)
                check_partitions(manifest, table.metadata)
                self._check_added(table, manifest.entries)
                _check_described(table, table.metadata, manifest)
                files[manifest.listed.manifest_path] = _sealed_manifest(manifest)
                described[manifest.listed.manifest_path] = manifest.listed
        return tuple(files.values())

    def all_paths(self, table: LoadedTable, *, removed: bool = True) -> set[str]:
        """Return every file that the table's snapshots reference.

        These are data files, delete files, manifests, manifest lists and statistics files.

        Args:
            table: the table.
            removed: whether files count that a snapshot lists as removed. Without its parent, nothing reads
                them any more.
        """
        statistics = [*table.metadata.statistics, *table.metadata.partition_statistics]
        paths = {file.statistics_path for file in statistics}
        # Separate from all other paths: a writer can also list a manifest as a statistics or data file.
        manifests = set[str]()
        for snapshot in table.metadata.snapshots:
            listed = self._reader.manifests(table, snapshot)
            fresh = [entry for entry in listed if entry.manifest_path not in manifests]
            manifests.update(entry.manifest_path for entry in fresh)
            paths.add(list_path(snapshot, table.name))
            for manifest in self._reader.open(table, fresh):
                entries = manifest.entries if removed else alive(manifest.entries)
                paths |= set(entries["file_path"].to_pylist())
        return paths | manifests

    def broken_snapshots(self, table: LoadedTable) -> dict[int, str]:
        """Return the snapshots with files outside the table's allowed locations, and the reasons."""
        broken: dict[int, str] = {}
        for snapshot in table.metadata.snapshots:
            try:
                for manifest in self._reader.open(table, self._reader.manifests(table, snapshot)):
                    check_paths(table, manifest.entries)
            except LocationNotAllowed as refusal:
                broken[snapshot.snapshot_id] = refusal.message
        return broken

    def _snapshot(
        self,
        table: LoadedTable,
        metadata: TableMetadata,
        snapshot: Snapshot,
        known: Mapping[int, Snapshot],
        brought: dict[str, SealedFile],
        origin: Origin,
    ) -> list[OpenManifest]:
        """Check one new snapshot against its parent, and add its files to `brought`.

        Returns:
            its new manifests.
        """
        sealed_list, listed = self._manifest_list(table, snapshot)
        parent = _parent(snapshot, known, table.name)
        before = () if parent is None else self._reader.manifests(table, parent, also=brought)
        parts = difference(snapshot, listed, before, metadata.specs(), table.name)
        fresh = [
            self._fresh_manifest(table, metadata, snapshot, manifest, origin)
            for manifest in self._open_fresh(table, parts.fresh)
        ]
        dropped = list(self._reader.open(table, parts.dropped, also=brought))
        rekeyed = origin is Origin.REWRAP
        check_carried(dropped, fresh, snapshot.snapshot_id, table.name, rekeyed=rekeyed)
        self._live.check_added(table, fresh, dropped, parts.shared, brought)
        if origin is Origin.CLIENT and table.governed.spec.encrypts:
            check_picked(self._reader, table, snapshot, known, fresh)
        if parent is not None and not self._is_verified(table, parent, brought):
            self._check_unverified(table, metadata, parts.shared, fresh)
        brought.update((each.listed.manifest_path, _sealed_manifest(each)) for each in fresh)
        brought[sealed_list.path] = sealed_list
        return fresh

    def _is_verified(self, table: LoadedTable, parent: Snapshot, brought: Mapping[str, SealedFile]) -> bool:
        """Return whether a snapshot was compared with its parent when it was committed."""
        path = list_path(parent, table.name)
        sealed = self._reader.sealed(table.record.id, [path]) | dict(brought)
        return path in sealed and sealed[path].verified

    def _check_unverified(
        self,
        table: LoadedTable,
        metadata: TableMetadata,
        shared: Sequence[ManifestListEntry],
        fresh: Sequence[OpenManifest],
    ) -> None:
        """Check what is carried over from a snapshot that was never compared with its parent.

        In a table that was ever encrypted, no file is listed twice, and each is encrypted as its epoch
        requires.
        """
        carried = []
        for manifest in self._reader.open(table, shared):
            _check_described(table, metadata, manifest)
            carried.append(alive(manifest.entries))
        if not table.governed.ever_encrypted:
            return
        for entries in carried:
            self._keyring.checked_files(table.record, table.governed, entries)
        carried += [each.entries.filter(pc.equal(each.entries["status"], EXISTING)) for each in fresh]
        require_distinct(carried, table.name)

    def _open_fresh(self, table: LoadedTable, fresh: Iterable[ManifestListEntry]) -> Iterator[OpenManifest]:
        """Open manifests without a seal, and check their length by the list."""
        for entry in fresh:
            data = self._reader.fetch(table.governed.allowed, entry.manifest_path, table.name, "manifest")
            if len(data) != entry.manifest_length:
                raise MetadataInvalid(
                    f"The manifest has {len(data)} bytes, but its list states {entry.manifest_length}.",
                    table=table.name,
                    path=entry.manifest_path,
                    rule="manifest-length",
                )
            yield self._reader.decode(entry, data, Digest.of(data))

    def _fresh_manifest(
        self,
        table: LoadedTable,
        metadata: TableMetadata,
        snapshot: Snapshot,
        manifest: OpenManifest,
        origin: Origin,
    ) -> OpenManifest:
        """Check a new manifest by itself."""
        entries = manifest.entries
        check_partitions(manifest, metadata)
        added = newly_added(entries)
        check_paths(table, alive(entries))
        check_numbers(added, snapshot, table.name)
        check_fields(table, added)
        if added.num_rows:
            check_spec(table, metadata, manifest)
        if origin is Origin.CLIENT and source_id(snapshot) is not None:
            require_current_keys(table, added)
        self._check_added(table, added)
        if table.governed.ever_encrypted:
            # A rewrap carries over statistics that older manifests have.
            check = check_no_bounds if origin is Origin.REWRAP else check_no_statistics
            check(table, manifest)
        _check_described(table, metadata, manifest)
        return manifest

    def _check_added(self, table: LoadedTable, added: pa.Table) -> None:
        """Check added files against the epoch in force."""
        if table.governed.spec.encrypts:
            self._keyring.check_new_files(table.record, table.governed, added)
        elif added["key_metadata"].null_count != added.num_rows:
            raise EncryptionPolicyViolation(
                "A file has key metadata, but the table is not encrypted.",
                table=table.name,
                rule="plaintext-required",
                hint="Set the table's encryption properties first.",
            )

    def _manifest_list(
        self, table: LoadedTable, snapshot: Snapshot
    ) -> tuple[SealedFile, tuple[ManifestListEntry, ...]]:
        path = list_path(snapshot, table.name)
        data = self._reader.fetch(table.governed.allowed, path, table.name, "manifest list")
        listed = self._reader.decode_list(table.governed.allowed, data, path, table)
        paths = [entry.manifest_path for entry in listed]
        if any(len(each) > MAX_LOCATION_LENGTH for each in (path, *paths)):
            raise MetadataInvalid(
                f"A manifest list or manifest contains a path of more than {MAX_LOCATION_LENGTH} characters.",
                table=table.name,
                rule="path-length",
            )
        if len(set(paths)) != len(paths):
            raise MetadataInvalid(
                "The manifest list contains a manifest twice.", table=table.name, path=path, rule="duplicate"
            )
        number = snapshot.sequence_number or 0
        return SealedFile(path, FileKind.MANIFEST_LIST, Digest.of(data), snapshot.snapshot_id, number), listed

    def _check_statistics(self, table: LoadedTable, metadata: TableMetadata) -> None:
        files = [*metadata.statistics, *metadata.partition_statistics]
        before = [*table.metadata.statistics, *table.metadata.partition_statistics]
        paths = {file.statistics_path for file in files}
        refuse_outside(
            table.governed.allowed, pa.array(sorted(paths), pa.string()), table.name, "statistics files"
        )
        known = {(file.snapshot_id, file.statistics_path): file for file in before}
        # The entry of a statistics file in metadata.json contains numbers of its columns, too.
        new = any(known.get((file.snapshot_id, file.statistics_path)) != file for file in files)
        if table.governed.ever_encrypted and new:
            raise EncryptionPolicyViolation(
                "Statistics files would show the columns of an encrypted table in plaintext.",
                table=table.name,
                rule="plaintext-statistics",
                hint="Commit without statistics files for this table.",
            )


def _require_written(files: Mapping[str, SealedFile], written: Mapping[str, Digest], table: str) -> None:
    """Check that the files that were checked are the bytes that the catalog wrote.

    Raises:
        MetadataTampered: a file was changed after it was written.
    """
    found = {path: file.digest for path, file in files.items()}
    if found != written:
        changed = sorted(path for path in {*found, *written} if found.get(path) != written.get(path))
        raise MetadataTampered(
            "A manifest or manifest list changed after the catalog wrote it.",
            table=table,
            path=changed[0],
            rule="written-files",
            hint="Ask an administrator to check which users write to the table's directory.",
        )


def require_parents(table: LoadedTable, metadata: TableMetadata) -> None:
    """Refuse new snapshots whose parent is neither in the table nor earlier in the commit.

    Raises:
        CommitConflict: there is one, because another commit expired its parent.
    """
    known = {each.snapshot_id: each for each in table.metadata.snapshots}
    for snapshot in new_snapshots(table.metadata, metadata):
        _parent(snapshot, known, table.name)
        known[snapshot.snapshot_id] = snapshot


def _parent(snapshot: Snapshot, known: Mapping[int, Snapshot], table: str) -> Snapshot | None:
    """Return the parent of a new snapshot: in the table, or earlier in the same commit.

    Raises:
        CommitConflict: the parent does not exist.
    """
    parent_id = snapshot.parent_snapshot_id
    if parent_id is None:
        return None
    parent = known.get(parent_id)
    if parent is None:
        raise CommitConflict(
            f"The parent {parent_id} of the new snapshot is no longer in the table.",
            table=table,
            snapshot=snapshot.snapshot_id,
            rule="parent-snapshot",
            hint="Load the table and commit again.",
        )
    return parent


def _check_described(table: LoadedTable, metadata: TableMetadata, manifest: OpenManifest) -> None:
    spec = metadata.specs()[manifest.listed.partition_spec_id]
    check_described(manifest.listed, manifest.entries, spec, table.name)


def _sealed_manifest(manifest: OpenManifest) -> SealedFile:
    listed = manifest.listed
    return SealedFile(
        listed.manifest_path,
        FileKind.MANIFEST,
        manifest.digest,
        listed.added_snapshot_id,
        listed.sequence_number,
        listed.partition_spec_id,
        int(listed.content),
    )
