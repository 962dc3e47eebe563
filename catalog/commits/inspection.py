"""Opens and checks what a commit brings before it is accepted.

For each snapshot that is new:

- every path (manifest list, manifest, data and delete file, statistics) lies in the allowed locations;
- a manifest that is carried over is listed exactly as it was sealed;
- a new manifest belongs to this snapshot; a file that it adds is new (no sequence number of the past, not
  live already), a file that it carries over is live in the parent, with the same numbers and keys;
- a file that is added fits the encryption regime in force: key metadata that opens under the table's own key,
  no plaintext file where files are encrypted, no bounds of encrypted columns in clear.

No data file is opened. The answer is what has to be sealed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from catalog.commits.entry_checks import (
    ADDED,
    DELETED,
    check_belongs,
    check_growth,
    check_no_statistics,
    check_numbers,
    check_partitions,
    check_paths,
    check_spec,
)
from catalog.commits.parents import Parent, check_duplicates
from catalog.loading import LoadedTable
from catalog.manifests import ManifestListEntry
from catalog.pointers import MAX_LOCATION_LENGTH
from catalog.seals import Digest, FileKind, SealedFile
from catalog.snapshots import OpenManifest, SnapshotReader, check_carried, list_path, refuse_outside
from catalog.table_keys.keyring import Keyring
from policy.errors import EncryptionPolicyViolation, LocationNotAllowed, MetadataInvalid


class Inspector:
    """Checks commits.

    Args:
        reader: reads manifest lists and manifests.
        keyring: opens the data keys in key metadata.
    """

    def __init__(self, reader: SnapshotReader, keyring: Keyring) -> None:
        self._reader = reader
        self._keyring = keyring

    def commit(self, table: LoadedTable, metadata: TableMetadata) -> tuple[SealedFile, ...]:
        """Check what `metadata` brings beyond the table's current metadata.

        Args:
            table: the table as it is, sealed; its governed properties are those to hold the commit against.
            metadata: the metadata to be committed.

        Raises:
            LocationNotAllowed, MetadataTampered, MetadataInvalid, EncryptionPolicyViolation,
            DecryptionRefused: what it brings breaks a rule.
        """
        brought = _brought(table, metadata)
        self._check_statistics(table, metadata)
        check_growth(table, brought)
        files: dict[str, SealedFile] = {}
        new = {each.snapshot_id for each in brought}
        checked = {each.snapshot_id: each for each in metadata.snapshots if each.snapshot_id not in new}
        for snapshot in sorted(brought, key=lambda each: each.sequence_number or 0):
            parent_id = snapshot.parent_snapshot_id
            before = None if parent_id is None else checked.get(parent_id)
            self._snapshot(table, metadata, snapshot, before, files)
            checked[snapshot.snapshot_id] = snapshot
        return tuple(files.values())

    def whole(self, table: LoadedTable) -> tuple[SealedFile, ...]:
        """Check every snapshot of metadata that did not come through the catalog.

        Such a table is never encrypted, so which regime a file belongs to is not in question.

        Raises:
            as `commit`.
        """
        self._check_statistics(table, table.metadata)
        log = [entry.metadata_file for entry in table.metadata.metadata_log]
        named = pa.array([table.metadata.location, *log], pa.string())
        refuse_outside(table.governed.allowed, named, table.name, "directories and earlier metadata files")
        files: dict[str, SealedFile] = {}
        for snapshot in table.metadata.snapshots:
            sealed, listed = self._manifest_list(table, snapshot)
            files[sealed.path] = sealed
            fresh = [entry for entry in listed if entry.manifest_path not in files]
            for manifest in self._reader.open(table, fresh):
                check_paths(table, manifest.entries)
                check_partitions(manifest, table.metadata)
                self._check_added(table, manifest, manifest.entries)
                files[manifest.listed.manifest_path] = _sealed_manifest(manifest)
        return tuple(files.values())

    def all_paths(self, table: LoadedTable) -> set[str]:
        """Every file that the table's snapshots name: data, delete, manifest, manifest list, statistics."""
        statistics = [*table.metadata.statistics, *table.metadata.partition_statistics]
        paths = {file.statistics_path for file in statistics}
        for snapshot in table.metadata.snapshots:
            listed = self._reader.manifests(table, snapshot)
            fresh = [entry for entry in listed if entry.manifest_path not in paths]
            paths |= {list_path(snapshot, table.name), *(entry.manifest_path for entry in fresh)}
            for manifest in self._reader.open(table, fresh):
                paths |= set(manifest.entries["file_path"].to_pylist())
        return paths

    def broken_snapshots(self, table: LoadedTable) -> dict[int, str]:
        """The snapshots that the table's allowed list does not cover, with why."""
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
        before: Snapshot | None,
        brought: dict[str, SealedFile],
    ) -> None:
        """Check one new snapshot against the one before it; what it brings is added to `brought`."""
        sealed_list, listed = self._manifest_list(table, snapshot)
        paths = [entry.manifest_path for entry in listed]
        known = self._reader.sealed(table.record.id, paths) | brought
        carried = [entry for entry in listed if entry.manifest_path in known]
        for entry in carried:
            check_carried(entry, known[entry.manifest_path], table.name)
        fresh = [entry for entry in listed if entry.manifest_path not in known]
        for entry in fresh:
            check_belongs(entry, snapshot, metadata.specs(), table.name)
        parent = Parent(self._reader, table, before, carried, dict(brought))
        added = []
        for manifest in self._open_fresh(table, fresh):
            check_partitions(manifest, metadata)
            added.append(self._fresh_manifest(table, metadata, snapshot, manifest, parent))
            brought[manifest.listed.manifest_path] = _sealed_manifest(manifest)
        brought[sealed_list.path] = sealed_list
        check_duplicates(added, parent, table)

    def _open_fresh(self, table: LoadedTable, fresh: Iterable[ManifestListEntry]) -> Iterator[OpenManifest]:
        """Open manifests that are not sealed yet; their length is what the list says."""
        for entry in fresh:
            data = self._reader.fetch(table.governed.allowed, entry.manifest_path, table.name, "manifest")
            if len(data) != entry.manifest_length:
                raise MetadataInvalid(
                    f"The manifest has {len(data)} bytes, its list says {entry.manifest_length}.",
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
        parent: Parent,
    ) -> pa.ChunkedArray:
        entries = manifest.entries
        status = entries["status"]
        added = entries.filter(pc.equal(status, ADDED))
        check_paths(table, entries.filter(pc.not_equal(status, DELETED)))
        check_numbers(added, snapshot, table.name)
        if added.num_rows:
            check_spec(table, metadata, manifest)
        spec_id = manifest.listed.partition_spec_id
        parent.check_carried_files(entries.filter(pc.not_equal(status, ADDED)), spec_id)
        self._check_added(table, manifest, added)
        if table.governed.ever_encrypted:
            check_no_statistics(table, manifest)
        return added["file_path"]

    def _check_added(self, table: LoadedTable, manifest: OpenManifest, added: pa.Table) -> None:
        """Hold added files against the regime in force."""
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
                f"A manifest list or manifest has a path of more than {MAX_LOCATION_LENGTH} characters.",
                table=table.name,
                rule="path-length",
            )
        if len(set(paths)) != len(paths):
            raise MetadataInvalid(
                "The manifest list names a manifest twice.", table=table.name, path=path, rule="duplicate"
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
        if table.governed.ever_encrypted and paths - {file.statistics_path for file in before}:
            raise EncryptionPolicyViolation(
                "Statistics files of an encrypted table would show its columns in clear.",
                table=table.name,
                rule="plaintext-statistics",
                hint="Do not write statistics files for this table.",
            )


def _brought(table: LoadedTable, metadata: TableMetadata) -> list[Snapshot]:
    """The snapshots that are new. One is known by all that it says: an id may be removed and used again.

    Only its parent may be left out: that is what becomes of a snapshot whose parent expires.
    """
    known = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    return [each for each in metadata.snapshots if not _is_same(each, known.get(each.snapshot_id))]


def _is_same(snapshot: Snapshot, known: Snapshot | None) -> bool:
    return known is not None and snapshot in (known, known.model_copy(update={"parent_snapshot_id": None}))


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
