"""Turns the files that an engine wrote into the manifests of a new snapshot.

pyiceberg writes the manifests and the manifest list; which manifests are carried over, and which of their
files are removed, comes from bytes that were checked against the seals.

An overwrite is of the snapshot that it was decided on, and of no later one. A replace changes no row, so it
goes on top of whatever came meanwhile (`replacing`).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Final, cast

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent as IcebergContent
from pyiceberg.manifest import (
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    PartitionFieldSummary,
    write_manifest,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    UpdatesAndRequirements,
)
from pyiceberg.table.update.snapshot import _SnapshotProducer

from catalog.base.errors import CommitConflict
from catalog.envelope.write_keys import WriteRewrapper
from catalog.iceberg.manifests import ManifestListEntry, read_entries
from catalog.iceberg.metadata import WRITTEN_FORMAT_VERSION, metadata_directory
from catalog.iceberg.transforms import exact_spec
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import SnapshotReader
from catalog.state.seals import check_digest
from catalog.storage.base import Storage
from catalog.storage.guarded_io import GuardedFileIO
from catalog.writes.new_files import FileCommit, data_file_of
from catalog.writes.replacing import check_replaced
from policy.errors import (
    LakewardenError,
    RequestInvalid,
)
from policy.location.allow_list import AllowList
from policy.location.location import Location

#: What a manifest list says of a manifest and is written again as it is.
_LISTED: Final = (
    "manifest_path",
    "manifest_length",
    "partition_spec_id",
    "sequence_number",
    "min_sequence_number",
    "added_snapshot_id",
    "added_files_count",
    "existing_files_count",
    "deleted_files_count",
    "added_rows_count",
    "existing_rows_count",
    "deleted_rows_count",
    "key_metadata",
)
_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Built:
    """A snapshot whose manifests are written; it has still to be committed."""

    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    written: tuple[str, ...]

    @property
    def snapshot_id(self) -> int:
        """The id of the snapshot."""
        return next(each.snapshot.snapshot_id for each in self.updates if isinstance(each, AddSnapshotUpdate))

    def discard(self, storage: Storage) -> None:
        """Delete the manifests of a snapshot that lost."""
        for path in self.written:
            storage.delete(Location.parse(path))


class SnapshotBuilder:
    """Builds snapshots.

    Args:
        reader: reads the manifests that are carried over.
        storage: where new ones are written.
    """

    def __init__(self, reader: SnapshotReader, storage: Storage) -> None:
        self._reader = reader
        self._storage = storage

    def build(
        self,
        table: LoadedTable,
        files: FileCommit,
        prefix: Location,
        keys: WriteRewrapper | None,
        summary: dict[str, str],
    ) -> Built:
        """Write the manifests of a snapshot.

        Args:
            table: the table, sealed.
            files: what the write commits.
            prefix: the write's directory; new files lie below it.
            keys: how to take over data keys; None if the table is not encrypted.
            summary: entries for the snapshot's summary.

        Raises:
            RequestInvalid, NotSupportedYet, LocationNotAllowed, EncryptionPolicyViolation, DecryptionRefused:
                a file breaks a rule.
            CommitConflict: the base moved, or a file to be removed is not there.
        """
        head = table.metadata.snapshot_by_name(files.branch)
        _check_operation(files, head, table)
        data_files = [data_file_of(table, file, prefix, keys) for file in files.added]
        kept, replaced, deleted = self._carried(table, head, frozenset(files.deleted_paths))
        if files.operation == "replace":
            check_replaced(self._reader, table, head, files, deleted)
        written: list[str] = []
        transaction = Transaction(self._pyiceberg_table(table, written))
        try:
            with _Files(transaction, files, summary, kept, replaced, deleted) as producer:
                for data_file in data_files:
                    producer.append_data_file(data_file)
        except LakewardenError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise RequestInvalid(
                f"The files do not fit the table ({type(error).__name__}).",
                table=table.name,
                rule="files",
                hint="Compare their partition values and statistics with the table's schema.",
            ) from error
        return Built(transaction._updates, transaction._requirements, tuple(written))

    def _pyiceberg_table(self, table: LoadedTable, written: list[str]) -> Table:
        io = GuardedFileIO(
            self._storage,
            table=table.name,
            allowed=table.governed.allowed,
            writable=AllowList.of([metadata_directory(table.metadata)]),
            on_write=lambda path, _: written.append(path),
        )
        identifier = (*table.record.name.namespace, table.record.name.name)
        # pyiceberg puts partition values into words for the snapshot's summary, in Python's calendar.
        specs = [exact_spec(each) for each in table.metadata.partition_specs]
        metadata = table.metadata.model_copy(update={"partition_specs": specs})
        # A transaction that is read out and never committed needs no catalog.
        return Table(identifier, metadata, table.metadata_location, io, cast(Catalog, None))

    def _carried(
        self, table: LoadedTable, head: Snapshot | None, paths: frozenset[str]
    ) -> tuple[list[ManifestFile], list[list[ManifestEntry]], list[ManifestEntry]]:
        """Manifests to keep as they are, files to keep of manifests that are replaced, files that go."""
        if head is None:
            return [], [], []
        listed = self._reader.manifests(table, head)
        kept, replaced, deleted = [], [], []
        touched = self._touched(table, head, paths) if paths else {}
        for entry in listed:
            if entry.manifest_path not in touched:
                kept.append(manifest_file(entry))
                continue
            entries = read_entries(touched[entry.manifest_path], entry)
            live = [each for each in entries if each.status != ManifestEntryStatus.DELETED]
            replaced.append([each for each in live if each.data_file.file_path not in paths])
            deleted += [each for each in live if each.data_file.file_path in paths]
        missing = paths - {each.data_file.file_path for each in deleted}
        if missing:
            raise CommitConflict(
                f"{len(missing)} files to remove are not in the table.",
                table=table.name,
                path=min(missing),
                hint="Read the table again, and write.",
            )
        return kept, replaced, deleted

    def _touched(self, table: LoadedTable, head: Snapshot, paths: frozenset[str]) -> dict[str, bytes]:
        """The bytes of manifests that list a path to be removed.

        Raises:
            MetadataTampered: a manifest is not any more what was checked a moment ago.
        """
        touched: dict[str, bytes] = {}
        for manifest in self._reader.open(table, self._reader.manifests(table, head)):
            if not paths.isdisjoint(manifest.entries["file_path"].to_pylist()):
                path = manifest.listed.manifest_path
                data = self._reader.fetch(table.governed.allowed, path, table.name, "manifest")
                check_digest(data, manifest.digest, what="manifest", path=path, table=table.name)
                touched[path] = data
        return touched


class _Files(_SnapshotProducer["_Files"]):
    """pyiceberg's writer of snapshots, given what to carry over instead of reading it itself."""

    def __init__(
        self,
        transaction: Transaction,
        files: FileCommit,
        summary: dict[str, str],
        kept: list[ManifestFile],
        replaced: list[list[ManifestEntry]],
        deleted: list[ManifestEntry],
    ) -> None:
        io: FileIO = transaction._table.io
        super().__init__(
            operation=Operation(files.operation),
            transaction=transaction,
            io=io,
            commit_uuid=uuid.uuid4(),
            snapshot_properties=summary,
            branch=files.branch,
        )
        self._kept = kept
        self._replaced = replaced
        self._deleted = deleted
        for entry in deleted:
            self.delete_data_file(entry.data_file)

    def _existing_manifests(self) -> list[ManifestFile]:
        return self._kept + [self._rewrite(entries) for entries in self._replaced if entries]

    def _deleted_entries(self) -> list[ManifestEntry]:
        return [
            self._marked(entry, ManifestEntryStatus.DELETED, self._snapshot_id) for entry in self._deleted
        ]

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        """As pyiceberg's, for a partition spec of whose columns one was dropped since, too."""
        return write_manifest(
            WRITTEN_FORMAT_VERSION,
            spec,
            _schema_of(spec, self._transaction.table_metadata),
            self.new_manifest_output(),
            self._snapshot_id,
            self._compression,
        )

    def _rewrite(self, entries: list[ManifestEntry]) -> ManifestFile:
        with self.new_manifest_writer(self.spec(entries[0].data_file.spec_id)) as writer:
            for entry in entries:
                writer.add_entry(self._marked(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id))
        return writer.to_manifest_file()

    @staticmethod
    def _marked(entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None) -> ManifestEntry:
        return ManifestEntry.from_args(
            status=status,
            snapshot_id=snapshot_id,
            sequence_number=entry.sequence_number,
            file_sequence_number=entry.file_sequence_number,
            data_file=entry.data_file,
        )

    def _commit(self) -> UpdatesAndRequirements:
        """pyiceberg moves a branch without its rules of retention, and adds snapshots by the clock alone."""
        updates, requirements = super()._commit()
        metadata = self._transaction.table_metadata
        return tuple(_following(_retaining(each, metadata.refs), metadata) for each in updates), requirements

    def _summary(self, snapshot_properties: dict[str, str] = _EMPTY) -> Summary:  # type: ignore[assignment]
        """pyiceberg refuses to sum up a replace, which is an overwrite that changes no row."""
        if self._operation is not Operation.REPLACE:
            return super()._summary(snapshot_properties)
        self._operation = Operation.OVERWRITE
        try:
            summary = super()._summary(snapshot_properties)
        finally:
            self._operation = Operation.REPLACE
        return Summary(Operation.REPLACE, **summary.additional_properties)


def _schema_of(spec: PartitionSpec, metadata: TableMetadata) -> Schema:
    """Today's schema; if it lacks a column that the spec is made of, the last one that has them all."""
    sources = {each.source_id for each in spec.fields}
    known = (metadata.schema(), *reversed(metadata.schemas))
    return next((each for each in known if sources <= set(each.field_ids)), metadata.schema())


def manifest_file(entry: ManifestListEntry) -> ManifestFile:
    """A carried manifest as pyiceberg's writer of manifest lists takes it."""
    summaries = None
    if entry.partitions is not None:
        summaries = [PartitionFieldSummary.from_args(**asdict(each)) for each in entry.partitions]
    plain = {name: getattr(entry, name) for name in _LISTED}
    return ManifestFile.from_args(**plain, content=IcebergContent(entry.content), partitions=summaries)


def moved(ref: SnapshotRef, name: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    """A branch on its new head, with its own rules of retention."""
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=SnapshotRefType.BRANCH,
        snapshot_id=snapshot_id,
        max_ref_age_ms=ref.max_ref_age_ms,
        max_snapshot_age_ms=ref.max_snapshot_age_ms,
        min_snapshots_to_keep=ref.min_snapshots_to_keep,
    )


def _retaining(update: TableUpdate, refs: Mapping[str, SnapshotRef]) -> TableUpdate:
    if isinstance(update, SetSnapshotRefUpdate) and update.ref_name in refs:
        return moved(refs[update.ref_name], update.ref_name, update.snapshot_id)
    return update


def _following(update: TableUpdate, metadata: TableMetadata) -> TableUpdate:
    """A snapshot is not older than the table's last update, though that was made by a faster clock."""
    if not isinstance(update, AddSnapshotUpdate):
        return update
    at = max(update.snapshot.timestamp_ms, metadata.last_updated_ms)
    return AddSnapshotUpdate(snapshot=update.snapshot.model_copy(update={"timestamp_ms": at}))


def _check_operation(files: FileCommit, head: Snapshot | None, table: LoadedTable) -> None:
    if files.operation == "append" and files.deleted_paths:
        raise RequestInvalid(
            f"The append removes {len(files.deleted_paths)} files.",
            table=table.name,
            rule="operation",
            hint="Commit it as an overwrite.",
        )
    current = head.snapshot_id if head else None
    if files.operation == "overwrite" and files.base_snapshot_id != current:
        raise CommitConflict(
            f"The branch has the snapshot {current}, but the files to remove were read from "
            f"{files.base_snapshot_id}.",
            table=table.name,
            hint="Read the table again, and write.",
        )
