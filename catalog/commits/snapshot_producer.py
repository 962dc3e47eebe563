"""Makes snapshots: new manifests, the manifest list and the summary.

A snapshot is a difference from its parent: files are added and removed, data files and delete files alike. So
one mechanism serves appends, overwrites and row deltas, on any branch.

- Manifests without a removed file stay as they are. A manifest with a removed file is written again: its
  other live files as EXISTING, the removed ones as DELETED, with their existing sequence numbers. Entries are
  carried over from bytes that were verified by their seals.
- Manifests without a live file are left out.
- Added files of one content and partition spec share one manifest. They inherit the sequence number. Their
  entries are in the order of the files' random ids: that of the tasks would show the order of the values
  that a table is sorted by.
- Everything is encoded before anything is stored. The digests of the stored files are kept, so that the
  commit checks exactly these bytes (`Inspector.commit`).

Source: Iceberg table specification, "Snapshots", "Manifest Entry Fields", "Sequence Number Inheritance",
"Optional Snapshot Summary Fields".
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from catalog.base.cached import CachedProperty
from catalog.base.errors import ConcurrentModification
from catalog.context import ServiceContext
from catalog.iceberg.manifests import ManifestListEntry, manifest_entries
from catalog.iceberg.manifests.writing import (
    describe_manifest,
    encode_manifest,
    encode_manifest_list,
    schema_of,
)
from catalog.iceberg.metadata import metadata_directory, require_written_version
from catalog.iceberg.partition_keys import partition_of
from catalog.iceberg.transforms import exact_spec
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import OpenManifest
from catalog.snapshot_checks.entries import DELETED
from catalog.state.seals import Digest
from catalog.storage.base import Storage
from policy.errors import LakewardenError, RequestInvalid
from policy.location.location import Location

_PARTITION_LIMIT: Final = "write.summary.partition-limit"

#: The places of the fields of pyiceberg's data files that tell of columns: sizes, counts and bounds.
_STATISTICS: Final = range(6, 12)


@dataclass(frozen=True, slots=True)
class MadeSnapshot:
    """A snapshot whose files are stored and that is not committed yet.

    Attributes:
        snapshot: the snapshot.
        updates, requirements: the commit.
        written: digests of the stored manifests and the manifest list, by path.
    """

    snapshot: Snapshot
    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    written: Mapping[str, Digest]

    def staged(self) -> MadeSnapshot:
        """Return the same snapshot, added to the table without moving a branch (write-audit-publish)."""
        return replace(self, updates=self.updates[:1], requirements=())

    def discard(self, storage: Storage) -> None:
        """Delete the stored files of a snapshot that was not committed."""
        for path in self.written:
            storage.delete(Location.parse(path))


class SnapshotProducer:
    """Makes one snapshot.

    Args:
        context: the parts that services share.
        table: the table, sealed.
        branch: the branch that the snapshot becomes the head of; it is created if it does not exist.
        parent: the snapshot's parent, usually the head of the branch; None for a first snapshot.

    Raises:
        RequestInvalid: the branch is a tag.
        UnsupportedFormatVersion: tables of its version cannot be written.
    """

    def __init__(
        self, context: ServiceContext, table: LoadedTable, branch: str, parent: Snapshot | None
    ) -> None:
        require_written_version(table.metadata, table.name)
        self._context = context
        self._table = table
        self._metadata = table.metadata
        self._branch = branch
        self._ref = self._metadata.refs.get(branch)
        if self._ref is not None and self._ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
            raise RequestInvalid(
                f"{branch[:80]!r} is a tag. A snapshot can be committed to a branch only.",
                table=table.name,
                rule="branch",
            )
        self._parent = parent
        self._directory = metadata_directory(self._metadata)
        self._uuid = uuid.uuid4()
        #: The live entries of each manifest that lists a removed file, by path; removed files are DELETED.
        self._rewritten: dict[str, list[ManifestEntry]] = {}
        #: The live entries of manifests that are replaced, for each new manifest; and the manifests.
        self._regrouped: list[list[ManifestEntry]] = []
        self._replaced: set[str] = set()
        self.snapshot_id = self._metadata.new_snapshot_id()
        self.sequence_number = self._metadata.next_sequence_number()

    def remove(self, paths: Collection[str]) -> list[ManifestEntry]:
        """Remove data files and delete files; called at most once.

        Returns:
            their entries.

        Raises:
            ConcurrentModification: a file is not live in the parent.
            MetadataTampered: a manifest differs from its seal.
        """
        removed = pa.array(paths, pa.string())
        for manifest in self._context.reader.open(self._table, self._listed if paths else ()):
            entries = self._marked(manifest, removed)
            if entries:
                self._rewritten[manifest.listed.manifest_path] = entries
        missing = set(paths) - {each.data_file.file_path for each in self._removed()}
        if missing:
            raise ConcurrentModification(
                f"{len(missing)} of {len(paths)} files to remove are not in the table any more.",
                table=self._table.name,
                path=min(missing),
                rule="removed-files",
                hint="Nothing was committed. Run the statement again, so that it reads the present files.",
            )
        return self._removed()

    def regroup(self, listed: Sequence[ManifestListEntry], count: int) -> int:
        """Distribute the live files of some manifests over new ones, ordered by partition.

        Args:
            listed: manifests of the parent, of one content and partition spec; not with removed files.
            count: how many new manifests are wanted.

        Returns:
            how many there are.
        """
        entries: list[ManifestEntry] = []
        for manifest in self._context.reader.open(self._table, listed):
            entries += self._live(manifest)
        for entry in entries:
            entry.status = ManifestEntryStatus.EXISTING
        # Within a partition by random names, as new files are.
        entries.sort(key=lambda entry: (partition_of(entry.data_file), _name_of(entry.data_file)))
        self._replaced |= {each.manifest_path for each in listed}
        each = max(1, -(-len(entries) // max(1, count)))
        groups = [entries[first : first + each] for first in range(0, len(entries), each)]
        self._regrouped += groups
        return len(groups)

    def make(
        self, operation: Operation, added: Sequence[DataFile], summary: Mapping[str, str]
    ) -> MadeSnapshot:
        """Make a snapshot: the parent's files without the removed ones, plus the new files.

        Args:
            operation: the operation that the summary names.
            added: data files and delete files; see `encode_manifest`.
            summary: more entries for the summary.

        Raises:
            RequestInvalid: partition values of a file do not have the types of its partition spec, or
                `summary` has an entry that this function counts.
        """
        files: dict[str, bytes] = {}
        try:
            made = (*self._entries(added), *self._rewritten.values(), *self._regrouped)
            new = [self._manifest(files, each) for each in made]
            gone = self._rewritten.keys() | self._replaced
            kept = [each for each in self._listed if each.manifest_path not in gone]
            return self.of_manifests([*new, *kept], self._summary(operation, added, summary), files)
        except LakewardenError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise RequestInvalid(
                f"The files do not fit the table ({type(error).__name__}).",
                table=self._table.name,
                rule="files",
                hint="Compare their partition values and statistics with the table's schema.",
            ) from error

    def of_manifests(
        self, listed: Sequence[ManifestListEntry], summary: Summary, files: Mapping[str, bytes]
    ) -> MadeSnapshot:
        """Make a snapshot that lists the given manifests.

        Args:
            listed: the manifests.
            summary: the whole summary.
            files: the content of the manifests that are not stored yet, by path.
        """
        parent_id = None if self._parent is None else self._parent.snapshot_id
        path = self._directory.child(f"snap-{self.snapshot_id}-0-{self._uuid}.avro").original
        data = encode_manifest_list(listed, self.snapshot_id, parent_id, self.sequence_number)
        stored = {**files, path: data}
        for each, content in stored.items():
            self._context.storage.create(Location.parse(each), content)
        snapshot = Snapshot(
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=parent_id,
            manifest_list=path,
            sequence_number=self.sequence_number,
            # A snapshot is never older than the last update, even if that was made with a faster clock.
            timestamp_ms=max(self._context.now_ms(), self._metadata.last_updated_ms),
            summary=summary,
            schema_id=self._metadata.current_schema_id,
        )
        # A branch keeps its retention settings.
        ref = {} if self._ref is None else self._ref.model_dump(exclude={"snapshot_id", "snapshot_ref_type"})
        moved = SetSnapshotRefUpdate(
            ref_name=self._branch, type=SnapshotRefType.BRANCH, snapshot_id=self.snapshot_id, **ref
        )
        head = None if self._ref is None else self._ref.snapshot_id
        return MadeSnapshot(
            snapshot,
            (AddSnapshotUpdate(snapshot=snapshot), moved),
            (AssertRefSnapshotId(ref=self._branch, snapshot_id=head),),
            {each: Digest.of(content) for each, content in stored.items()},
        )

    @CachedProperty
    def _listed(self) -> list[ManifestListEntry]:
        """Return the parent's manifests that have live files.

        Manifest lists of version 1 can omit the counts; such manifests are included.
        """
        if self._parent is None:
            return []
        listed = self._context.reader.manifests(self._table, self._parent)
        return [each for each in listed if (each.added_files_count, each.existing_files_count) != (0, 0)]

    def _marked(self, manifest: OpenManifest, removed: pa.Array) -> list[ManifestEntry]:
        """Return the live entries of a manifest with their new status; empty if it has no removed file."""
        live = pc.not_equal(manifest.entries["status"], DELETED)
        going = pc.is_in(manifest.entries["file_path"], value_set=removed).filter(live).to_pylist()
        if not any(going):
            return []
        entries = self._live(manifest)
        for entry, goes in zip(entries, going, strict=True):
            entry.status = ManifestEntryStatus.DELETED if goes else ManifestEntryStatus.EXISTING
            if goes:
                entry.snapshot_id = self.snapshot_id
                self._strip(entry.data_file)
        return entries

    def _strip(self, removed: DataFile) -> None:
        """Remove the column statistics of a removed file from an encrypted table's manifest.

        The file can be of a time when a column was in plaintext. Its bounds would stay in storage as long as
        this snapshot, which a migration does not let expire. Nobody skips removed files by them.
        """
        encrypts = self._table.governed.epochs.current.spec.encrypts
        if encrypts and removed.content is not DataFileContent.POSITION_DELETES:
            for place in _STATISTICS:
                removed[place] = None

    @staticmethod
    def _live(manifest: OpenManifest) -> list[ManifestEntry]:
        live = pc.not_equal(manifest.entries["status"], DELETED)
        rows, spec_id = pc.indices_nonzero(live).to_pylist(), manifest.listed.partition_spec_id
        return manifest_entries(manifest.decoded, manifest.entries, rows, spec_id)

    def _removed(self) -> list[ManifestEntry]:
        entries = (entry for each in self._rewritten.values() for entry in each)
        return [each for each in entries if each.status is ManifestEntryStatus.DELETED]

    def _entries(self, added: Sequence[DataFile]) -> Iterator[list[ManifestEntry]]:
        """Yield the entries of the new files, grouped by manifest."""
        status, number = ManifestEntryStatus.ADDED, self.snapshot_id
        for _, files in groupby(sorted(sorted(added, key=_name_of), key=_manifest_of), _manifest_of):
            yield [
                ManifestEntry.from_args(status=status, snapshot_id=number, data_file=each) for each in files
            ]

    def _manifest(self, files: dict[str, bytes], entries: list[ManifestEntry]) -> ManifestListEntry:
        """Encode a manifest, and add it to the files to store."""
        path = self._directory.child(f"{self._uuid}-m{len(files)}.avro").original
        files[path] = encode_manifest(self._metadata, entries)
        numbers = self.snapshot_id, self.sequence_number
        return describe_manifest(self._metadata, entries, path, len(files[path]), *numbers)

    def _summary(
        self, operation: Operation, added: Sequence[DataFile], summary: Mapping[str, str]
    ) -> Summary:
        metadata = self._metadata
        counts = SnapshotSummaryCollector(int(metadata.properties.get(_PARTITION_LIMIT, "0")))
        # Names of summary entries contain partition values, which pyiceberg formats with Python's calendar.
        specs = {
            number: (schema_of(spec, metadata), exact_spec(spec)) for number, spec in metadata.specs().items()
        }
        for file in added:
            counts.add_file(file, *specs[file.spec_id])
        for entry in self._removed():
            counts.remove_file(entry.data_file, *specs[entry.data_file.spec_id])
        # Without the parent's total, the new total is unknown. pyiceberg computes no totals for a replace.
        before = None if self._parent is None else self._parent.summary or Summary(operation)
        counted = update_snapshot_summaries(Summary(Operation.OVERWRITE, **counts.build()), before)
        return Summary(operation, **summary, **counted.additional_properties)


def _name_of(file: DataFile) -> str:
    """Return the name of a file from its id on."""
    return file.file_path.rpartition("/")[2].rpartition("-")[2]


def _manifest_of(file: DataFile) -> tuple[bool, int]:
    return file.content is not DataFileContent.DATA, file.spec_id
