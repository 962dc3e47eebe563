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

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from catalog.keyring import Keyring
from catalog.loading import LoadedTable
from catalog.manifests import ManifestListEntry
from catalog.manifests.statistics import bounded_fields
from catalog.metadata import last_sequence_number
from catalog.pointers import MAX_LOCATION_LENGTH
from catalog.seals import Digest, FileKind, SealedFile
from catalog.snapshots import OpenManifest, SnapshotReader, check_carried, list_path, refuse_outside
from policy.errors import (
    EncryptionPolicyViolation,
    LocationNotAllowed,
    MetadataInvalid,
    MetadataTampered,
    RequestInvalid,
)
from policy.regimes import Regimes

EXISTING: Final = 0
ADDED: Final = 1
DELETED: Final = 2

#: The field ids of `file_path` and `pos` in position delete files (Iceberg specification, "Reserved Field
#: IDs").
_DELETE_FILE_FIELDS: Final = frozenset({2147483546, 2147483545})

#: Beyond every sequence number.
_NO_END: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Live:
    """Where a live file of the parent snapshot stands."""

    sequence_number: int
    file_sequence_number: int
    content: int
    key_metadata: bytes | None


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
        _check_growth(table, brought)
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
                _check_paths(table, manifest.entries)
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
                    _check_paths(table, manifest.entries)
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
            _check_belongs(entry, snapshot, _specs_in_use(table, metadata), table.name)
        parent = _Parent(self._reader, table, before, carried, dict(brought))
        added = []
        for manifest in self._open_fresh(table, fresh):
            added.append(self._fresh_manifest(table, snapshot, manifest, parent))
            brought[manifest.listed.manifest_path] = _sealed_manifest(manifest)
        brought[sealed_list.path] = sealed_list
        _check_duplicates(added, parent, table.name)

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
            yield self._reader.decode(entry, data)

    def _fresh_manifest(
        self, table: LoadedTable, snapshot: Snapshot, manifest: OpenManifest, parent: _Parent
    ) -> pa.ChunkedArray:
        entries = manifest.entries
        status = entries["status"]
        added = entries.filter(pc.equal(status, ADDED))
        _check_paths(table, entries.filter(pc.not_equal(status, DELETED)))
        _check_numbers(added, snapshot, table.name)
        parent.check_carried_files(entries.filter(pc.not_equal(status, ADDED)))
        self._check_added(table, manifest, added)
        if table.governed.ever_encrypted:
            _check_no_bounds(table, manifest)
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


class _Parent:
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

    def check_carried_files(self, entries: pa.Table) -> None:
        """Existing and deleted entries of new manifests are files that a replaced manifest lists as live.

        Each accounts for one of those; so none is carried over twice, or carried over and removed.
        """
        if entries.num_rows == 0:
            return
        live = self._replaced()
        self._kept.append(_alive(entries)["file_path"])
        for path, found in _live_files(entries):
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
            yield _alive(manifest.entries)["file_path"]

    def _replaced(self) -> dict[str, list[_Live]]:
        """The live files of the parent's manifests that are not carried over."""
        if self._live is None:
            self._live = {}
            for manifest in self._replaced_manifests():
                for path, found in _live_files(_alive(manifest.entries)):
                    self._live.setdefault(path, []).append(found)
        return self._live

    def _replaced_manifests(self) -> Iterator[OpenManifest]:
        if self._snapshot is None:
            return iter(())
        carried = {entry.manifest_path for entry in self._carried}
        listed = self._reader.manifests(self._table, self._snapshot, also=self._brought)
        replaced = [entry for entry in listed if entry.manifest_path not in carried]
        return self._reader.open(self._table, replaced, also=self._brought)


def _brought(table: LoadedTable, metadata: TableMetadata) -> list[Snapshot]:
    """The snapshots that are new. One is known by all that it says: an id may be removed and used again.

    Only its parent may be left out: that is what becomes of a snapshot whose parent expires.
    """
    known = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    return [each for each in metadata.snapshots if not _is_same(each, known.get(each.snapshot_id))]


def _is_same(snapshot: Snapshot, known: Snapshot | None) -> bool:
    return known is not None and snapshot in (known, known.model_copy(update={"parent_snapshot_id": None}))


def _alive(entries: pa.Table) -> pa.Table:
    return entries.filter(pc.not_equal(entries["status"], DELETED))


def _live_files(entries: pa.Table) -> Iterator[tuple[str, _Live]]:
    columns = ("sequence_number", "file_sequence_number", "content", "key_metadata")
    values = zip(*(entries[name].to_pylist() for name in columns), strict=True)
    for path, each in zip(entries["file_path"].to_pylist(), values, strict=True):
        yield path, _Live(*each)


def _check_paths(table: LoadedTable, entries: pa.Table) -> None:
    paths = entries["file_path"]
    refuse_outside(table.governed.allowed, paths, table.name, "files")
    directories = paths.filter(pc.ends_with(paths, "/"))
    if len(directories):
        raise MetadataInvalid(
            "A manifest names a directory where a file should be.",
            table=table.name,
            path=directories[0].as_py(),
            rule="file-path",
        )


def _specs_in_use(table: LoadedTable, metadata: TableMetadata) -> Container[int]:
    """The partition specs that new manifests may have; an older spec might show an encrypted column."""
    return (metadata.default_spec_id,) if table.governed.spec.encrypts else metadata.specs()


def _check_growth(table: LoadedTable, brought: Sequence[Snapshot]) -> None:
    """New snapshots take the next sequence numbers, one each: regimes go by them, and they run out."""
    numbers = sorted(snapshot.sequence_number or 0 for snapshot in brought)
    first = last_sequence_number(table.metadata) + 1
    if numbers != list(range(first, first + len(numbers))):
        raise MetadataTampered(
            "A new snapshot does not have the next sequence number.",
            table=table.name,
            rule="sequence-number",
            hint="Load the table and commit again.",
        )


def _check_belongs(entry: ManifestListEntry, snapshot: Snapshot, specs: Container[int], table: str) -> None:
    """A new manifest carries the id and number of the snapshot that brings it."""
    said = (entry.added_snapshot_id, entry.sequence_number)
    if said != (snapshot.snapshot_id, snapshot.sequence_number or 0) or entry.partition_spec_id not in specs:
        raise MetadataTampered(
            "The manifest list gives a new manifest another snapshot, sequence number or partition spec.",
            table=table,
            snapshot=snapshot.snapshot_id,
            path=entry.manifest_path,
            rule="new-manifest",
        )


def _check_numbers(added: pa.Table, snapshot: Snapshot, table: str) -> None:
    """A file that is added is of this snapshot; only its rows may count as older, as a rewrite keeps them."""
    if added.num_rows == 0:
        return
    number = snapshot.sequence_number or 0
    of_snapshot = pc.and_(
        pc.equal(added["snapshot_id"], snapshot.snapshot_id), pc.equal(added["file_sequence_number"], number)
    )
    data_age = pc.and_(
        pc.less_equal(added["sequence_number"], number), pc.greater_equal(added["sequence_number"], 0)
    )
    if not pc.all(pc.fill_null(pc.and_(of_snapshot, data_age), False)).as_py():
        raise MetadataTampered(
            "A new manifest adds a file under another snapshot or sequence number.",
            table=table,
            snapshot=snapshot.snapshot_id,
            rule="new-file",
        )


def _check_duplicates(added: Sequence[pa.ChunkedArray], parent: _Parent, table: str) -> None:
    """No file is added twice, nor while it is live already."""
    keys = [_path_key(chunk) for paths in added for chunk in paths.chunks]
    new = pa.chunked_array(keys, pa.string())
    if len(new) == 0:
        return
    distinct = new.unique()
    if len(distinct) != len(new):
        raise RequestInvalid(
            "The commit adds a file twice.", table=table, rule="duplicate-file", hint="Add each file once."
        )
    for paths in parent.carried_paths():
        twice = pc.is_in(_path_key(paths), value_set=distinct)
        if pc.any(twice).as_py():
            raise RequestInvalid(
                "A file that the commit adds is in the table already.",
                table=table,
                path=paths.filter(twice)[0].as_py(),
                rule="duplicate-file",
                hint="Add each file once.",
            )


def _path_key(paths: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A path without its scheme, equal for the spellings of one location that the path check lets through."""
    return pc.replace_substring_regex(paths, "^[A-Za-z0-9]+:/*", "")


def _check_no_bounds(table: LoadedTable, manifest: OpenManifest) -> None:
    """No entry whose file is encrypted shows a bound, whether the file is added, carried over or removed."""
    encrypted = _encrypted_rows(manifest.entries["file_sequence_number"], table.governed.regimes)
    shown = bounded_fields(manifest.decoded.statistics.filter(encrypted)) - _DELETE_FILE_FIELDS
    if shown:
        raise EncryptionPolicyViolation(
            f"A manifest shows bounds of encrypted columns in clear (field {min(shown)}).",
            table=table.name,
            path=manifest.listed.manifest_path,
            rule="plaintext-bounds",
            hint="Commit files of encrypted tables through the engine interface.",
        )


def _encrypted_rows(numbers: pa.ChunkedArray, regimes: Regimes) -> pa.ChunkedArray:
    """Which files are of a regime that encrypts."""
    starts = [regime.from_sequence_number for regime in regimes.entries]
    ends = [*starts[1:], _NO_END]
    rows = pc.equal(numbers, -1)
    for regime, start, end in zip(regimes.entries, starts, ends, strict=True):
        if regime.spec.encrypts:
            rows = pc.or_(rows, pc.and_(pc.greater_equal(numbers, start), pc.less(numbers, end)))
    return pc.fill_null(rows, True)


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
