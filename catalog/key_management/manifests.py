"""Rewrites a manifest with its files' data keys wrapped under the latest versions of the table's keys.

- Data files do not change: each live entry becomes EXISTING and keeps its snapshot id, sequence numbers,
  statistics and partition (Iceberg specification, "Manifest Entry Fields"). Entries of removed files are left
  out. Only the key metadata differs.
- The new manifest is read back and compared with the original, column by column. Each data key is unwrapped
  from both, and must be the same.
- The new manifest's name is a digest of its inputs. So a later attempt finds a manifest that an interrupted
  attempt wrote, and uses it if it passes the same checks. A file that does not pass them is left alone.
- The bytes of a sealed path never change, even if the file is gone: Avro writes the same entries differently
  each time. If the path is sealed already, the manifest gets a random name.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import ManifestEntry

from catalog.envelope.data_keys import rewrap_deks, same_deks
from catalog.envelope.file_ids import FileIdentity
from catalog.envelope.key_metadata import KeyMetadata
from catalog.envelope.key_metadata_columns import read_forms
from catalog.envelope.peks import Pek
from catalog.iceberg.manifests import DecodedManifest, ManifestContent, ManifestListEntry, manifest_entries
from catalog.iceberg.manifests.writing import encode_manifest
from catalog.iceberg.metadata import metadata_directory
from catalog.keyring.keyring import Keyring
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import OpenManifest, SnapshotReader
from catalog.snapshot_checks.entries import DELETED, check_no_bounds
from catalog.state.seals import Digest
from catalog.storage.base import Storage
from catalog.storage.errors import ObjectExists
from policy.encryption.epochs import PekRef, check_sealed_file
from policy.errors import (
    EncryptionPolicyViolation,
    LocationNotAllowed,
    MetadataInvalid,
    MetadataTampered,
    Refused,
)
from policy.location.location import Location

#: The latest version of each PEK, by the PEK's id.
Targets = Mapping[UUID, PekRef]

_EXISTING: Final = 0
#: The columns that differ between an entry and its copy; they are checked separately.
_CHANGED: Final = frozenset({"status", "key_metadata"})


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A manifest that was rewritten and checked.

    Attributes:
        listed: its entry in a manifest list; the snapshot that adds it is not yet set.
        digest: of its bytes.
        later: the versions that its data keys were moved to.
    """

    listed: ManifestListEntry
    digest: Digest
    later: frozenset[PekRef]

    def brought_by(self, snapshot_id: int, sequence_number: int) -> ManifestListEntry:
        """Return its manifest list entry in the snapshot that adds it."""
        return replace(self.listed, added_snapshot_id=snapshot_id, sequence_number=sequence_number)


@dataclass(frozen=True, slots=True)
class _Task:
    """A manifest to rewrite.

    Attributes:
        table: the table, sealed.
        manifest: the original manifest.
        entries: its live entries.
        targets: the latest version of each PEK.
        later: those of them that its data keys are moved to.
        peks: these versions, and those that the data keys are wrapped under now.
    """

    table: LoadedTable
    manifest: OpenManifest
    entries: pa.Table
    targets: Targets
    later: frozenset[PekRef]
    peks: Mapping[PekRef, Pek]


class ManifestRewriter:
    """Writes new versions of manifests, with rewrapped data keys.

    Args:
        reader: reads back what was written.
        storage: stores the manifests.
        keyring: opens the table's keys.
    """

    def __init__(self, reader: SnapshotReader, storage: Storage, keyring: Keyring) -> None:
        self._reader = reader
        self._storage = storage
        self._keyring = keyring

    def rewrite(
        self,
        table: LoadedTable,
        branch: str,
        manifest: OpenManifest,
        used: Collection[PekRef],
        targets: Targets,
    ) -> Rewritten | None:
        """Rewrite a manifest; return None if all its data keys are under the latest versions.

        Args:
            table: the table, sealed.
            branch: the branch whose new head will list the manifest.
            manifest: one of the table's manifests, checked.
            used: the versions that its data keys are wrapped under (`used_versions`).
            targets: the latest version of each PEK.

        Raises:
            DecryptionRefused, KeyNotUsable, KmsUnavailable: a key is not available.
            MetadataTampered, EncryptionPolicyViolation: the manifest that was read back is not as expected.
            LocationNotAllowed, StorageUnavailable: the manifest cannot be written.
        """
        if all(targets.get(ref.pek_id, ref).version <= ref.version for ref in used):
            return None
        later = frozenset(targets[ref.pek_id] for ref in used if ref.pek_id in targets)
        peks = self._keyring.open_peks(table.record, later.union(used))
        task = _Task(table, manifest, _live(manifest.entries), targets, later, peks)
        directory = metadata_directory(table.metadata)
        taken_up = self._under_its_name(
            task, directory.child(f"rewrap-{_digest(branch, manifest, later)}.avro")
        )
        return taken_up or self._written(task, directory.child(f"rewrap-{uuid.uuid4()}.avro"))

    def _under_its_name(self, task: _Task, path: Location) -> Rewritten | None:
        """Write the manifest under its content-derived name, or use the file that has this name.

        Returns None if that file fails the checks, or if the path is sealed: then it belongs to the snapshot
        that it was sealed with.
        """
        if self._reader.sealed(task.table.record.id, [path.original]):
            return None
        try:
            return self._written(task, path)
        except (ObjectExists, LocationNotAllowed):
            pass
        try:
            return self._checked(task, path)
        except (MetadataInvalid, Refused):
            return None

    def _written(self, task: _Task, path: Location) -> Rewritten:
        table = task.table
        metadata = [
            None
            if old is None
            else rewrap_deks(KeyMetadata.parse(old), file, task.peks, task.targets).to_bytes()
            for old, file in _files(table, task.entries)
        ]
        self._storage.create(
            path, encode_manifest(table.metadata, _entries(task.manifest, task.entries, metadata))
        )
        return self._checked(task, path)

    def _checked(self, task: _Task, path: Location) -> Rewritten:
        """Read a manifest back, and compare it with the original."""
        table, entries = task.table, task.entries
        data = self._reader.fetch(table.governed.allowed, path.original, table.name, "manifest")
        digest = Digest.of(data)
        listed = replace(
            task.manifest.listed,
            manifest_path=path.original,
            manifest_length=len(data),
            min_sequence_number=pc.min(entries["sequence_number"]).as_py(),
            added_files_count=0,
            existing_files_count=entries.num_rows,
            deleted_files_count=0,
            added_rows_count=0,
            existing_rows_count=pc.sum(entries["record_count"]).as_py(),
            deleted_rows_count=0,
        )
        copy = self._reader.decode(listed, data, digest)
        _check_same_files(task, copy)
        _check_keys(task, copy.entries)
        check_no_bounds(table, copy)
        return Rewritten(listed, digest, task.later)


def used_versions(manifest: OpenManifest) -> set[PekRef]:
    """Return the PEK versions that the data keys of a manifest's live files are wrapped under.

    Raises:
        DecryptionRefused: key metadata that is malformed.
    """
    live = _live(manifest.entries)
    forms = read_forms(live["key_metadata"], live["file_path"])
    return {entry.bound.pek for form in forms for entry in form.metadata.entries}


def _live(entries: pa.Table) -> pa.Table:
    return entries.filter(pc.not_equal(entries["status"], DELETED))


def _digest(branch: str, manifest: OpenManifest, later: Collection[PekRef]) -> str:
    """Compute a manifest's name from its inputs.

    The branch is one of them, because a manifest belongs to one snapshot.
    """
    names = sorted(f"{ref.pek_id}/{ref.version}" for ref in later)
    return hashlib.sha256("\n".join([branch, manifest.digest.sha256, *names]).encode()).hexdigest()[:40]


def _files(table: LoadedTable, entries: pa.Table) -> list[tuple[bytes | None, FileIdentity]]:
    pairs = zip(entries["key_metadata"].to_pylist(), entries["file_path"].to_pylist(), strict=True)
    return [(metadata, FileIdentity.of(table.record.table_uuid, path)) for metadata, path in pairs]


def _entries(manifest: OpenManifest, entries: pa.Table, metadata: list[bytes | None]) -> list[ManifestEntry]:
    """Return the live entries of a manifest as EXISTING entries with new key metadata."""
    existing = pa.array([_EXISTING] * entries.num_rows, pa.int8())
    for name, values in (("key_metadata", pa.array(metadata, pa.binary())), ("status", existing)):
        entries = entries.set_column(entries.schema.get_field_index(name), name, values)
    decoded = DecodedManifest(manifest.decoded.header, entries, _live_statistics(manifest))
    return manifest_entries(decoded, entries, range(entries.num_rows), manifest.listed.partition_spec_id)


def _live_statistics(manifest: OpenManifest) -> pa.Table:
    return manifest.decoded.statistics.filter(pc.not_equal(manifest.entries["status"], DELETED))


def _check_same_files(task: _Task, copy: OpenManifest) -> None:
    """Check that the copy lists exactly the live files of the manifest, in order, as EXISTING entries."""
    before, after = task.entries, copy.entries
    kept = _live_statistics(task.manifest)
    same = [after.num_rows == before.num_rows, after.column_names == before.column_names]
    if all(same):
        same = [_equal(before[name], after[name]) for name in before.column_names if name not in _CHANGED]
        same += [_equal(kept[name], copy.decoded.statistics[name]) for name in kept.column_names]
        same.append(pc.all(pc.equal(after["status"], _EXISTING)).as_py())
    if not all(same):
        raise MetadataTampered(
            "The rewritten manifest does not list the same files as before.",
            table=task.table.name,
            path=copy.listed.manifest_path,
            rule="rewrapped-manifest",
            hint="Ask an administrator to check which users write to the table's directory.",
        )


def _equal(before: pa.ChunkedArray, after: pa.ChunkedArray) -> bool:
    """Compare two columns. Arrow treats two NaN as different; as partition values they are equal."""
    return before.equals(after) or repr(before.to_pylist()) == repr(after.to_pylist())


def _check_keys(task: _Task, after: pa.Table) -> None:
    """Check that each file has the same data keys, under the latest versions, as its epoch requires."""
    table, before, targets = task.table, task.entries, task.targets
    deletes = task.manifest.listed.content is ManifestContent.DELETES
    numbers = before["file_sequence_number"].to_pylist()
    for (old, file), new, number in zip(
        _files(table, before), after["key_metadata"].to_pylist(), numbers, strict=True
    ):
        if (old is None) != (new is None):
            raise _other_keys(table)
        if old is None or new is None:
            continue
        metadata = KeyMetadata.parse(new)
        judged = check_sealed_file(table.governed.epochs, number, metadata.file_keys(), deletes=deletes)
        latest = all(
            entry.bound.pek == targets.get(entry.bound.pek.pek_id, entry.bound.pek)
            for entry in metadata.entries
        )
        if not (judged.allowed and latest and same_deks(KeyMetadata.parse(old), metadata, file, task.peks)):
            raise _other_keys(table)


def _other_keys(table: LoadedTable) -> EncryptionPolicyViolation:
    return EncryptionPolicyViolation(
        "The rewritten manifest does not have the same data keys, under the latest key versions.",
        table=table.name,
        rule="rewrapped-keys",
        hint="Ask an administrator to check which users write to the table's directory.",
    )
