"""One manifest rewritten, with its files' data keys under later versions of the table's keys.

- The files stay what they are: each live entry becomes EXISTING and keeps its snapshot id, sequence numbers,
  statistics and partition (Iceberg specification, "Manifest Entry Fields"); entries of removed files are left
  out. Only the key metadata differs.
- What was written is read back and checked against the manifest that it replaces, column by column; each data
  key is opened from both, and must be the same.
- The name of the new manifest follows from what goes into it. So what an attempt that was cut short has
  written is taken up by the next one, after the same checks; what does not pass them is left alone.
- A path that was sealed once never gets other bytes, even if the file is gone: Avro writes the same entries
  differently each time. Such a manifest goes under a name that was never used.
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
from catalog.iceberg.manifests import ManifestContent, ManifestListEntry, manifest_entries
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
    NotSupportedYet,
    Refused,
)
from policy.location.location import Location

#: The latest version of each PEK, by the PEK's id.
Targets = Mapping[UUID, PekRef]

_EXISTING: Final = 0
#: What differs between an entry and its copy, and is looked at by itself.
_CHANGED: Final = frozenset({"status", "key_metadata"})


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A manifest that was rewritten and checked.

    Attributes:
        listed: as a manifest list may describe it, but for the snapshot that brings it.
        digest: of its bytes.
        later: the versions that its files were moved to.
    """

    listed: ManifestListEntry
    digest: Digest
    later: frozenset[PekRef]

    def brought_by(self, snapshot_id: int, sequence_number: int) -> ManifestListEntry:
        """As the manifest list of the snapshot that brings it describes it."""
        return replace(self.listed, added_snapshot_id=snapshot_id, sequence_number=sequence_number)


@dataclass(frozen=True, slots=True)
class _Task:
    """A manifest that is to be rewritten.

    Attributes:
        table: the table, sealed.
        manifest: the manifest as it is.
        entries: its live entries.
        targets: the latest version of each PEK.
        later: those of them that its files are moved to.
        peks: these versions, and those that the files are under.
    """

    table: LoadedTable
    manifest: OpenManifest
    entries: pa.Table
    targets: Targets
    later: frozenset[PekRef]
    peks: Mapping[PekRef, Pek]


class ManifestRewriter:
    """Writes manifests anew.

    Args:
        reader: reads back what was written.
        storage: where it is written.
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
        """Write a manifest with all data keys under the latest versions; None if they are.

        Args:
            table: the table, sealed.
            branch: whose head is going to list it.
            manifest: one of its manifests, checked.
            used: the versions that its files are under (`used_versions`).
            targets: the latest version of each PEK.

        Raises:
            DecryptionRefused, KeyNotUsable, KmsUnavailable: a key cannot be had.
            MetadataTampered, EncryptionPolicyViolation: what was written is not what was to be written.
            LocationNotAllowed, StorageUnavailable: it cannot be written.
        """
        if all(targets.get(ref.pek_id, ref).version <= ref.version for ref in used):
            return None
        if manifest.listed.content is not ManifestContent.DATA:
            raise NotSupportedYet("Encrypted delete files are not supported.", table=table.name)
        later = frozenset(targets[ref.pek_id] for ref in used if ref.pek_id in targets)
        peks = self._keyring.open_peks(table.record, later.union(used))
        task = _Task(table, manifest, _live(manifest.entries), targets, later, peks)
        directory = metadata_directory(table.metadata)
        taken_up = self._under_its_name(
            task, directory.child(f"rewrap-{_digest(branch, manifest, later)}.avro")
        )
        return taken_up or self._written(task, directory.child(f"rewrap-{uuid.uuid4()}.avro"))

    def _under_its_name(self, task: _Task, path: Location) -> Rewritten | None:
        """The manifest under the name that follows from its content.

        None if something else has that name: what does not pass the checks, or what is sealed, and so belongs
        to the snapshot that it was sealed with.
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
        """Read a manifest back, and hold it against the one that it is to replace."""
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
    """The PEK versions under which the live files of a manifest are.

    Raises:
        DecryptionRefused: key metadata that is malformed.
    """
    live = _live(manifest.entries)
    forms = read_forms(live["key_metadata"], live["file_path"])
    return {entry.bound.pek for form in forms for entry in form.metadata.entries}


def _live(entries: pa.Table) -> pa.Table:
    return entries.filter(pc.not_equal(entries["status"], DELETED))


def _digest(branch: str, manifest: OpenManifest, later: Collection[PekRef]) -> str:
    """Names a manifest by what it is made of and for: a manifest belongs to one snapshot."""
    names = sorted(f"{ref.pek_id}/{ref.version}" for ref in later)
    return hashlib.sha256("\n".join([branch, manifest.digest.sha256, *names]).encode()).hexdigest()[:40]


def _files(table: LoadedTable, entries: pa.Table) -> list[tuple[bytes | None, FileIdentity]]:
    pairs = zip(entries["key_metadata"].to_pylist(), entries["file_path"].to_pylist(), strict=True)
    return [(metadata, FileIdentity.of(table.record.table_uuid, path)) for metadata, path in pairs]


def _entries(manifest: OpenManifest, entries: pa.Table, metadata: list[bytes | None]) -> list[ManifestEntry]:
    """The live entries of a manifest as existing ones, with other key metadata."""
    existing = pa.array([_EXISTING] * entries.num_rows, pa.int8())
    for name, values in (("key_metadata", pa.array(metadata, pa.binary())), ("status", existing)):
        entries = entries.set_column(entries.schema.get_field_index(name), name, values)
    decoded = replace(manifest.decoded, entries=entries, statistics=_live_statistics(manifest))
    return manifest_entries(decoded, entries, range(entries.num_rows), manifest.listed.partition_spec_id)


def _live_statistics(manifest: OpenManifest) -> pa.Table:
    return manifest.decoded.statistics.filter(pc.not_equal(manifest.entries["status"], DELETED))


def _check_same_files(task: _Task, copy: OpenManifest) -> None:
    """The copy lists the live files of the manifest in their order, as existing ones, and nothing else."""
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
    """Arrow holds no two NaN for equal; as partition values they are."""
    return before.equals(after) or repr(before.to_pylist()) == repr(after.to_pylist())


def _check_keys(task: _Task, after: pa.Table) -> None:
    """Each file has the same keys as before, under the latest versions, and fits its epoch."""
    table, before, targets = task.table, task.entries, task.targets
    numbers = before["file_sequence_number"].to_pylist()
    for (old, file), new, number in zip(
        _files(table, before), after["key_metadata"].to_pylist(), numbers, strict=True
    ):
        if (old is None) != (new is None):
            raise _other_keys(table)
        if old is None or new is None:
            continue
        metadata = KeyMetadata.parse(new)
        judged = check_sealed_file(table.governed.epochs, number, metadata.file_keys())
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
