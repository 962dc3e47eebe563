"""An attacker with standard tools: pyiceberg's writers, sqlite3 and an editor.

They can write their own table's directory and, where a test says so, the pointer store. Nothing here goes
through the catalog unless it says so.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    clear_manifest_cache,
    read_manifest_list,
    write_manifest_list,
)
from pyiceberg.manifest import ManifestWriterV2 as StockWriter
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.typedef import Record

from catalog.audit.reading import read as read_audit
from catalog.audit.records import AuditRecord
from catalog.envelope.data_keys import new_dek
from catalog.envelope.file_ids import FileIdentity, new_file_name
from catalog.envelope.transport import KeyLabel, wrap_for_write
from catalog.envelope.write_keys import WrittenKey
from catalog.planning.plan import Plan
from catalog.planning.request import ScanRequest
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import OpenManifest
from catalog.service.pyiceberg_catalog import GuardedCatalog
from catalog.snapshot_checks.inspection import Inspector, Origin
from catalog.state.seals import SealedFile
from catalog.writes.new_files import FileCommit, NewFile
from catalog.writes.sessions import WriteSession
from policy.errors import LakewardenError
from tests.support.delete_files import DeletesWriter
from tests.support.lake import ALICE, ALLOWS_UNSEALED, BOB, MASTER_KEY, Lake
from tests.support.tables import lay_down

ADDED, EXISTING, DELETED = (
    ManifestEntryStatus.ADDED,
    ManifestEntryStatus.EXISTING,
    ManifestEntryStatus.DELETED,
)
SECRET_ROWS = pa.table({"id": pa.array([7001, 7002], pa.int64()), "name": ["secret-1", "secret-2"]})
OWN_ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["own-1", "own-2"]})

_LISTED = (
    "manifest_path",
    "manifest_length",
    "partition_spec_id",
    "content",
    "sequence_number",
    "min_sequence_number",
    "added_snapshot_id",
    "added_files_count",
    "existing_files_count",
    "deleted_files_count",
    "added_rows_count",
    "existing_rows_count",
    "deleted_rows_count",
)


@dataclass
class Attacker:
    """A user who can write the directory of one table.

    Attributes:
        lake: the catalog under attack.
        table: the dotted name of the attacker's table.
        user: the attacker's name in the catalog.
    """

    lake: Lake
    table: str
    user: str = BOB

    # Through the catalog, as any client.

    @property
    def catalog(self) -> GuardedCatalog:
        """The catalog as it shows itself to the attacker."""
        return self.lake.catalog(self.user)

    def loaded(self) -> LoadedTable:
        """The attacker's table as the catalog vouches for it."""
        return self.lake.services.loader.load(self.catalog._name(self.table))

    def plan(
        self,
        user: str | None = None,
        *,
        engine: str | None = None,
        row_filter: BooleanExpression | None = None,
    ) -> Plan:
        """A plan of the attacker's table, for the attacker or for another user."""
        caller = self.lake.caller(user or self.user, engine)
        request = ScanRequest(filter=row_filter or AlwaysTrue())
        return self.lake.services.planner.plan(caller, self.catalog._name(self.table), request)

    def scan(self, user: str | None = None) -> list[int]:
        """The ids that pyiceberg's own scan reads through the guarded catalog."""
        table = self.lake.catalog(user or self.user).load_table(self.table)
        return sorted(table.scan().to_arrow()["id"].to_pylist())

    def commit(self, *updates: TableUpdate) -> None:
        """Commit through the catalog."""
        self.catalog.commit_table(self.catalog.load_table(self.table), (), updates)

    def commit_properties(self, properties: dict[str, str]) -> None:
        """Set table properties through the catalog."""
        self.commit(SetPropertiesUpdate(updates=properties))

    def write_encrypted(self, name: str | None = None) -> NewFile:
        """Commit a file to an encrypted table as an engine would; its bytes are of no matter here."""
        writes, caller = self.lake.services.writes, self.lake.caller(self.user)
        session = writes.begin(caller, self.catalog._name(self.table))
        file = encrypted_file(session, name or new_file_name("part", "parquet"))
        writes.commit(caller, session.id, FileCommit("append", (file,)))
        return file

    # The pointer store, by plain SQL.

    def pointer(self) -> str:
        """Where the pointer of the attacker's table stands."""
        namespace, _, name = self.table.rpartition(".")
        [[location]] = sql(
            self.lake,
            "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?",
            namespace,
            name,
        )
        return str(location)

    def point(self, location: str) -> None:
        """Move the pointer of the attacker's table."""
        namespace, _, name = self.table.rpartition(".")
        sql(
            self.lake,
            "UPDATE iceberg_tables SET metadata_location = ? WHERE table_namespace = ? AND table_name = ?",
            location,
            namespace,
            name,
        )

    def commit_behind(self, *updates: TableUpdate) -> str:
        """Commit straight to the pointer store; answers with where the new metadata lies."""
        location = self.write_behind(updates)
        self.point(location)
        return location

    # The attacker's files, by pyiceberg's own readers and writers.

    @property
    def metadata(self) -> TableMetadata:
        """The table metadata as it lies in storage."""
        return read_metadata(self.pointer())

    @property
    def location(self) -> str:
        """Where the attacker's table lies."""
        return self.metadata.location

    def data_paths(self) -> list[str]:
        """The data files of the current snapshot."""
        snapshot = self.metadata.current_snapshot()
        assert snapshot is not None
        return [entry.data_file.file_path for entry in self.entries(snapshot)]

    def manifests(self, snapshot: Snapshot | None = None) -> list[ManifestFile]:
        """The manifests of a snapshot, by default the current one."""
        snapshot = snapshot or self.metadata.current_snapshot()
        return [] if snapshot is None else read_list(snapshot.manifest_list)

    def entries(self, snapshot: Snapshot | None = None) -> list[ManifestEntry]:
        """The live entries of a snapshot."""
        io = PyArrowFileIO()
        return [entry for each in self.manifests(snapshot) for entry in each.fetch_manifest_entry(io)]

    def write_behind(self, updates: Iterable[TableUpdate]) -> str:
        """Write the metadata that these updates make, where no pointer stands on it yet."""
        return self.write_metadata(
            update_table_metadata(self.metadata, tuple(updates), metadata_location=self.pointer())
        )

    def write_metadata(self, metadata: TableMetadata, name: str | None = None) -> str:
        """Write a metadata.json into the attacker's directory."""
        name = name or f"{len(metadata.metadata_log):05d}-{uuid4()}.metadata.json"
        location = f"{self.location}/metadata/{name}"
        ToOutputFile.table_metadata(metadata, PyArrowFileIO().new_output(location), overwrite=True)
        return location

    def manifest(
        self,
        entries: Iterable[ManifestEntry],
        snapshot_id: int,
        *,
        deletes: bool = False,
        at: str | None = None,
    ) -> ManifestFile:
        """Write a manifest into the attacker's directory, or over an existing file, with files to add."""
        entries = list(entries)
        for each in entries:
            self._lay_down(each)
        return write_entries(
            self.metadata,
            at or f"{self.location}/metadata/{uuid4()}-m0.avro",
            entries,
            snapshot_id,
            deletes=deletes,
        )

    def _lay_down(self, added: ManifestEntry) -> None:
        """A commit adds files that are there; the attacker cannot write outside of their directory."""
        path = added.data_file.file_path
        if added.status == ADDED and path.startswith(f"{self.location}/") and not local(path).exists():
            local(path).parent.mkdir(parents=True, exist_ok=True)
            local(path).write_bytes(bytes(added.data_file.file_size_in_bytes))

    def snapshot(
        self, manifests: Sequence[ManifestFile], snapshot_id: int, *, at: str | None = None, **changes: Any
    ) -> Snapshot:
        """Write a manifest list, and make a snapshot of it.

        Args:
            manifests: what it lists.
            snapshot_id: its id.
            at: where its list is to be, or lies already if there is nothing to list.
            changes: other fields of the snapshot, and `base`, the metadata that it follows.
        """
        base: TableMetadata = changes.pop("base", None) or self.metadata
        number = changes.pop("sequence_number", base.next_sequence_number())
        parent = changes.pop("parent_snapshot_id", base.current_snapshot_id)
        path = at or f"{self.location}/metadata/snap-{snapshot_id}-{uuid4()}.avro"
        if manifests:
            write_list(path, manifests, snapshot_id, parent, number)
        values = {
            "snapshot_id": snapshot_id,
            "parent_snapshot_id": parent,
            "sequence_number": number,
            "timestamp_ms": base.last_updated_ms + 1,
            "manifest_list": path,
            "summary": Summary(Operation.APPEND),
            "schema_id": base.current_schema_id,
        }
        return Snapshot(**values | changes)

    def appending(self, *entries: ManifestEntry, deletes: bool = False, **changes: Any) -> list[TableUpdate]:
        """The updates of a snapshot that keeps what there is and brings one manifest of these entries."""
        snapshot_id = new_id()
        manifest = self.manifest(entries, snapshot_id, deletes=deletes)
        return updates(self.snapshot([*self.manifests(), manifest], snapshot_id, **changes))

    def replacing(self, *entries: ManifestEntry, **changes: Any) -> list[TableUpdate]:
        """The updates of a snapshot whose only manifest has these entries, and deletes all other files."""
        snapshot_id = new_id()
        known = {each.data_file.file_path for each in entries if each.status != ADDED}
        before = [] if changes.get("parent_snapshot_id", snapshot_id) is None else self.entries()
        gone = [
            again(each, DELETED, snapshot_id=snapshot_id)
            for each in before
            if each.data_file.file_path not in known
        ]
        manifest = self.manifest([*entries, *gone], snapshot_id)
        return updates(self.snapshot([manifest], snapshot_id, **changes))

    def edit(self, location: str, change: Callable[[bytes], bytes]) -> None:
        """Edit a file in place."""
        path = local(location)
        path.write_bytes(change(path.read_bytes()))


@dataclass
class Siege:
    """A victim's table and an attacker with another table."""

    lake: Lake
    attacker: Attacker
    victim: Attacker

    def secret_file(self, **changes: Any) -> DataFile:
        """The victim's data file, as an entry of a manifest."""
        return data_file(self.victim.data_paths()[0], **changes)

    def plant(self) -> None:
        """Edit the attacker's only manifest in place: it lists the victim's data file instead of his."""
        (manifest,) = self.attacker.manifests()
        (stolen,) = self.victim.entries()
        planted = entry(self.secret_file(file_size_in_bytes=stolen.data_file.file_size_in_bytes))
        self.attacker.manifest([planted], new_id(), at=manifest.manifest_path)
        clear_manifest_cache()


def lay_siege(lake: Lake, **properties: str) -> Siege:
    """Make the victim's table and the attacker's, each with a snapshot of two rows.

    Args:
        lake: where.
        properties: of the attacker's table.
    """
    alice, bob = lake.catalog(ALICE), lake.catalog(BOB)
    alice.create_namespace("db", ALLOWS_UNSEALED)
    alice.create_namespace("bobs", ALLOWS_UNSEALED)
    alice.create_table("db.victim", SECRET_ROWS.schema).append(SECRET_ROWS)
    bob.create_table("bobs.mine", OWN_ROWS.schema, properties=properties).append(OWN_ROWS)
    clear_manifest_cache()
    return Siege(lake, Attacker(lake, "bobs.mine"), Attacker(lake, "db.victim", ALICE))


def stock_catalog(lake: Lake) -> SqlCatalog:
    """pyiceberg's own catalog on the same database."""
    url = lake.settings.database.url.get_secret_value()
    return SqlCatalog(lake.settings.catalog.name, uri=url, warehouse=lake.settings.warehouse)


def stock_rows(lake: Lake, table: str) -> list[int]:
    """The ids that a standard client reads from a table."""
    clear_manifest_cache()
    catalog = stock_catalog(lake)
    try:
        return sorted(catalog.load_table(table).scan().to_arrow()["id"].to_pylist())
    finally:
        catalog.close()


def sql(lake: Lake, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """One statement on the SQLite database, without any catalog."""
    url = lake.settings.database.url.get_secret_value()
    connection = sqlite3.connect(url.removeprefix("sqlite:///").partition("?")[0])
    try:
        with connection:
            return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


def refused(attacker: Attacker, error: type[LakewardenError], rule: str, *planted: TableUpdate) -> None:
    """The commit is refused by this rule, and nothing changes."""
    before = attacker.pointer()
    with pytest.raises(error) as refusal:
        attacker.commit(*planted)
    assert refusal.value.rule == rule, refusal.value
    assert attacker.pointer() == before


def audited(lake: Lake, action: str) -> list[AuditRecord]:
    """The records of an action, newest first."""
    found = read_audit(lake.services.engine, limit=1000)
    return [each.record for each in found if each.record.action == action]


def seal_unchecked(
    inspector: Inspector,
    table: LoadedTable,
    metadata: TableMetadata,
    snapshot: Snapshot,
    known: Mapping[int, Snapshot],
    brought: dict[str, SealedFile],
    origin: Origin,
) -> list[OpenManifest]:
    """Takes the place of `Inspector._snapshot`, to see what other guards hold where it does not."""
    sealed, _ = inspector._manifest_list(table, snapshot)
    brought[sealed.path] = sealed
    return []


def new_id() -> int:
    """A snapshot id."""
    return secrets.randbelow(1 << 62) + 1


def updates(*snapshots: Snapshot, branch: str = "main") -> list[TableUpdate]:
    """The updates that add snapshots, and put the branch on the last one."""
    head = SetSnapshotRefUpdate(
        ref_name=branch, type=SnapshotRefType.BRANCH, snapshot_id=snapshots[-1].snapshot_id
    )
    return [*(AddSnapshotUpdate(snapshot=each) for each in snapshots), head]


def data_file(path: str, **changes: Any) -> DataFile:
    """A data file of an unpartitioned table."""
    values: dict[str, Any] = {
        "content": DataFileContent.DATA,
        "file_path": path,
        "file_format": FileFormat.PARQUET,
        "partition": Record(),
        "record_count": 2,
        "file_size_in_bytes": local(path).stat().st_size if _is_local(path) else 1000,
    }
    file = DataFile.from_args(**values | changes)
    file.spec_id = 0
    return file


def entry(file: DataFile, status: ManifestEntryStatus = ADDED, **changes: Any) -> ManifestEntry:
    """A manifest entry; numbers that are not given are inherited."""
    return ManifestEntry.from_args(status=status, data_file=file, **changes)


def again(known: ManifestEntry, status: ManifestEntryStatus, **changes: Any) -> ManifestEntry:
    """An entry that a manifest has already, as another snapshot would carry it over or remove it."""
    numbers = {
        "snapshot_id": known.snapshot_id,
        "sequence_number": known.sequence_number,
        "file_sequence_number": known.file_sequence_number,
    }
    return entry(known.data_file, status, **numbers | changes)


def encrypted_file(session: WriteSession, name: str) -> NewFile:
    """A file of a write, with a data key of its own under the write's key."""
    assert session.transport is not None
    path = session.prefix.child(name).canonical
    label = KeyLabel(MASTER_KEY)
    file_id = FileIdentity.of(session.table.record.table_uuid, path)
    wrapped = wrap_for_write(session.transport, new_dek(32), file_id, label)
    new = NewFile(path, "parquet", 2, 1000, keys=(WrittenKey(label, wrapped),))
    lay_down(new, session.prefix)
    return new


def read_metadata(location: str) -> TableMetadata:
    """A metadata.json, as a standard client reads it."""
    return FromInputFile.table_metadata(PyArrowFileIO().new_input(location))


def read_list(path: str) -> list[ManifestFile]:
    """A manifest list, as a standard client reads it."""
    return list(read_manifest_list(PyArrowFileIO().new_input(path)))


def relisted(manifest: ManifestFile, **changes: Any) -> ManifestFile:
    """A manifest as a list may describe it otherwise."""
    return ManifestFile.from_args(**{name: getattr(manifest, name) for name in _LISTED} | changes)


def write_list(
    path: str, manifests: Sequence[ManifestFile], snapshot_id: int, parent: int | None, number: int
) -> None:
    """A manifest list, as a standard client writes it."""
    output = PyArrowFileIO().new_output(path)
    with write_manifest_list(2, output, snapshot_id, parent, number, "deflate") as writer:
        writer.add_manifests(list(manifests))


def write_entries(
    metadata: TableMetadata,
    path: str,
    entries: Iterable[ManifestEntry],
    snapshot_id: int,
    *,
    deletes: bool = False,
) -> ManifestFile:
    """A manifest, as a standard client writes it."""
    kind = DeletesWriter if deletes else StockWriter
    output = PyArrowFileIO().new_output(path)
    with kind(metadata.spec(), metadata.schema(), output, snapshot_id, "deflate") as writer:
        for each in entries:
            writer.add_entry(each)
    return writer.to_manifest_file()


def local(location: str) -> Path:
    """The local file of a location."""
    return Path(location.removeprefix("file://").removeprefix("file:"))


def _is_local(location: str) -> bool:
    return location.startswith("file:///") and "%" not in location and local(location).is_file()
