"""Creates a table's PEKs with the KMS, opens them through the cache, and checks them against the epochs.

PEKs never leave this process. What leaves is data keys of exactly the files planned, under a key made for
that scan (`scan_keys`); what comes in is data keys under a key made for that write, which are rewrapped
under the PEK (`catalog.writes.steps`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa
from sqlalchemy import Engine

from catalog.base.errors import KeysChanged
from catalog.db.engine import read, write
from catalog.envelope.data_keys import open_bounds, open_dek
from catalog.envelope.file_ids import FileIdentity
from catalog.envelope.key_metadata import KeyMetadata
from catalog.envelope.key_metadata_columns import Rows
from catalog.envelope.peks import Pek, PekCache, PekRecord, PekState, state_hint
from catalog.envelope.scan_keys import FormKeys, ScanWrapper, WrappedKeys
from catalog.envelope.scan_statistics import ColumnOfFiles, columns_of, open_bounds_of
from catalog.envelope.transport import TransportKey
from catalog.keyring.file_epochs import CheckedFiles, check_new, check_planned
from catalog.keyring.kms_keys import KmsKeys
from catalog.state import pek_records as key_records
from catalog.state import table_state
from catalog.state.table_state import Governed, TableRecord
from policy.encryption.epochs import PekRef
from policy.encryption.specification import EncryptionSpec
from policy.errors import (
    CommitStateUnknown,
    DecryptionRefused,
    KeyNotUsable,
    StateUnavailable,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ScanKeys:
    """The keys of one scan.

    Attributes:
        transport: the key made for the scan; it is shown to the engine once.
        wrapped: for each file, in order, its released data keys under the transport key.
    """

    transport: TransportKey
    wrapped: WrappedKeys


class Keyring:
    """Creates, opens and checks keys.

    Args:
        engine: the catalog's database.
        kms_keys: the KMS keys that new PEKs are made under.
        cache: unwrapped PEKs.
    """

    def __init__(self, engine: Engine, kms_keys: KmsKeys, cache: PekCache) -> None:
        self._engine = engine
        self._kms_keys = kms_keys
        self._cache = cache

    def keys_for(
        self, table: TableRecord, spec: EncryptionSpec, governed: Governed | None = None
    ) -> tuple[tuple[PekRef, ...], tuple[PekRecord, ...]]:
        """Return the PEKs that a specification needs: existing ones, and new ones for the rest.

        Args:
            table: the table.
            spec: how it is going to encrypt.
            governed: what governs it now. The versions that it encrypts with stay in force: a later one,
                left by a rotation that was cut short, takes a rotation.

        Returns:
            how the epoch names them, and the records that have to be stored.

        Raises:
            KeyNotUsable: a version in force is disabled or destroyed, or a master key is unknown or may not
                be used.
            KeysChanged: a rotation came first.
            KmsUnavailable: the KMS does not answer.
        """
        in_force = () if governed is None else governed.epochs.current.peks
        known = self.records(table)
        latest = {pek.master_key_id: pek for pek in known}
        kept = {pek.master_key_id: pek for pek in known if pek.ref in in_force}
        for key_id in kept.keys() & set(spec.key_ids()):
            if governed is not None and kept[key_id].state is not PekState.ACTIVE:
                self._require_of_today(table, governed)
                raise _not_active(table, kept[key_id])
        chosen = {
            key_id: kept.get(key_id) or self._usable(table, key_id, latest.get(key_id))
            for key_id in spec.key_ids()
        }
        made = tuple(pek for pek in chosen.values() if pek not in known)
        return tuple(pek.ref for pek in chosen.values()), made

    def next_versions(
        self, table: TableRecord, governed: Governed
    ) -> tuple[tuple[PekRef, ...], tuple[PekRecord, ...]]:
        """Return a later version of each PEK in force; reuse one from an interrupted rotation.

        A destroyed version is followed by a later one, too: what is under it is lost, and new files go on.

        Returns:
            how the epoch names them, and the records that have to be stored.

        Raises:
            KeyNotUsable: a PEK in force is disabled, or its master key may not be used.
            KeysChanged: another rotation came first.
            KmsUnavailable: the KMS does not answer.
        """
        known = self.records(table)
        latest = {pek.id: pek for pek in known}
        in_force = governed.epochs.current.peks
        _require_recorded(table, in_force, known)
        for pek in known:
            if pek.ref in in_force and pek.state not in (PekState.ACTIVE, PekState.DESTROYED):
                self._require_of_today(table, governed)
                raise _not_active(table, pek)
        chosen = {
            ref: self._usable(table, ref.master_key_id, latest[ref.pek_id], ref.version) for ref in in_force
        }
        made = tuple(pek for pek in chosen.values() if pek not in latest.values())
        return tuple(pek.ref for pek in chosen.values()), made

    def latest(self, table: TableRecord, governed: Governed) -> dict[UUID, PekRef]:
        """Return the target version of each PEK for data keys, by the PEK's id.

        Of a PEK in force it is the version in force; of another one the latest that may wrap.
        """
        active = [pek.ref for pek in self.records(table) if pek.state is PekState.ACTIVE]
        in_force = {ref.pek_id: ref for ref in governed.epochs.current.peks}
        return {ref.pek_id: ref for ref in active} | in_force

    def active(self, table: TableRecord, governed: Governed) -> frozenset[PekRef]:
        """Return the versions in force that can encrypt new files now."""
        in_force = governed.epochs.current.peks
        if not in_force:
            return frozenset()
        return frozenset(
            pek.ref for pek in self.records(table) if pek.ref in in_force and pek.state is PekState.ACTIVE
        )

    def destroyed(self, table: TableRecord) -> frozenset[PekRef]:
        """Return the destroyed versions."""
        return frozenset(pek.ref for pek in self.records(table) if pek.state is PekState.DESTROYED)

    def _usable(self, table: TableRecord, key_id: str, latest: PekRecord | None, after: int = 0) -> PekRecord:
        """Return the latest version of a PEK if it is active and later than `after`; else a new one."""
        if latest is not None and latest.state is PekState.ACTIVE and latest.version > after:
            return latest
        if latest is not None and latest.state is PekState.DISABLED:
            raise _not_active(table, latest)
        return self._kms_keys.create(
            key_id,
            table_id=table.id,
            table_uuid=table.table_uuid,
            pek_id=None if latest is None else latest.id,
            version=1 if latest is None else latest.version + 1,
        )

    def _require_of_today(self, table: TableRecord, governed: Governed) -> None:
        """Distinguish a key that was rotated from a key that cannot be used.

        Raises:
            KeysChanged: other keys are in force by now.
        """
        with read(self._engine) as connection:
            now = table_state.current_governed(connection, table.id)
        if now is not None and now.epochs.current.peks != governed.epochs.current.peks:
            raise KeysChanged("The table's PEKs were rotated at the same time.", table=str(table.name))

    def records(self, table: TableRecord) -> list[PekRecord]:
        """Return the table's PEKs, wrapped, in every state."""
        with read(self._engine) as connection:
            return key_records.of_table(connection, table)

    def writing_peks(
        self, table: TableRecord, governed: Governed, made: Sequence[PekRecord] = ()
    ) -> dict[str, Pek]:
        """Return the PEKs for new files, by master key id.

        Args:
            table: the table.
            governed: what governs it.
            made: PEKs that are not recorded yet.

        Raises:
            KeyNotUsable, KmsUnavailable: one cannot be had.
            KeysChanged: a rotation put new files under later versions since.
        """
        refs = set(governed.epochs.current.peks)
        found = [pek for pek in [*self.records(table), *made] if pek.ref in refs]
        _require_recorded(table, refs, found)
        if any(pek.state is not PekState.ACTIVE for pek in found):
            self._require_of_today(table, governed)
        opened = self._cache.get_all(found, for_writing=True)
        return {ref.master_key_id: pek for ref, pek in opened.items()}

    def open_peks(self, table: TableRecord, refs: Iterable[PekRef]) -> dict[PekRef, Pek]:
        """Return PEKs for reading.

        Raises:
            DecryptionRefused: a key that the table does not have.
            KeyNotUsable, KmsUnavailable: one cannot be had.
        """
        known = {pek.ref: pek for pek in self.records(table)}
        wanted = set(refs)
        foreign = wanted - known.keys()
        if foreign:
            raise DecryptionRefused(
                f"A file names the key {min(str(ref.pek_id) for ref in foreign)}, which is not "
                "a key of this table.",
                table=str(table.name),
                rule="pek",
            )
        return self._cache.get_all([known[ref] for ref in wanted])

    def check_new_files(self, table: TableRecord, governed: Governed, added: pa.Table) -> None:
        """Check the key metadata of files that a commit adds against the epoch in force, and open it.

        Args:
            table: the table.
            governed: what governs it; it encrypts.
            added: `content`, `file_path` and `key_metadata` of the files.

        Raises:
            EncryptionPolicyViolation: a file does not fit the epoch.
            DecryptionRefused: key metadata that is malformed, transplanted, under a key that is not the
                table's, or does not open.
        """
        if added.num_rows == 0:
            return
        check_new(table, governed, added)
        peks = {pek.ref: pek for pek in self.writing_peks(table, governed).values()}
        for path, data in zip(added["file_path"].to_pylist(), added["key_metadata"].to_pylist(), strict=True):
            file, metadata = FileIdentity.of(table.table_uuid, path), KeyMetadata.parse(data)
            for entry in metadata.entries:
                open_dek(metadata, entry, file, peks[entry.bound.pek])
            open_bounds(metadata, file, peks.__getitem__)

    def checked_files(self, table: TableRecord, governed: Governed, planned: pa.Table) -> CheckedFiles:
        """Return the files of one scan with all of their keys; see `file_epochs.check_planned`."""
        return check_planned(table, governed, planned)

    def open_bounds(
        self, table: TableRecord, files: CheckedFiles, columns: frozenset[int]
    ) -> list[tuple[Rows, dict[int, ColumnOfFiles]]]:
        """Return the encrypted statistics of some columns, for files that encrypt them.

        Args:
            table: the table.
            files: judged files.
            columns: ids of columns that the caller may select.

        Returns:
            rows of files, and by column what is known of it in those. A column that is not there is in
            plaintext.

        Raises:
            DecryptionRefused: sealed bounds do not open, or the PEK is not the table's; names the path.
            KeyNotUsable, KmsUnavailable: a key cannot be had.
        """
        wanted = [
            (form, place, covered)
            for form in files.forms
            for place in form.bounds()
            if (covered := columns & frozenset(place.field_ids) if place.field_ids else columns)
        ]
        peks = self.open_peks(table, {place.pek for _, place, _ in wanted}) if wanted else {}
        try:
            return [
                (
                    form.rows,
                    columns_of(
                        open_bounds_of(form, place, files.paths, table.table_uuid, peks[place.pek]), covered
                    ),
                )
                for form, place, covered in wanted
            ]
        except DecryptionRefused as refusal:
            refusal.table = str(table.name)
            raise

    def scan_keys(
        self, table: TableRecord, paths: pa.ChunkedArray, released: Sequence[FormKeys]
    ) -> ScanKeys | None:
        """Return the data keys of the files of one scan, or None if no file is encrypted.

        Args:
            table: the table.
            paths: where all files of the scan are.
            released: those that are encrypted, judged, with the keys that are released of each.

        Raises:
            DecryptionRefused, KeyNotUsable, KmsUnavailable: a key cannot be had.
        """
        if not released:
            return None
        entries = {form.metadata.entries[place] for form, places in released for place in places}
        peks = self.open_peks(table, {each.bound.pek for each in entries})
        wrapper = ScanWrapper(table.table_uuid, peks)
        wrapped = wrapper.rewrap_for_scan(paths, released)
        self._record_checks(peks.values())
        return ScanKeys(wrapper.transport, wrapped)

    def _record_checks(self, peks: Iterable[Pek]) -> None:
        """Store the check values of old PEKs, each of which has just opened a data key."""
        checks = {pek.ref: pek.unrecorded_check for pek in peks if pek.unrecorded_check is not None}
        if not checks:
            return
        try:
            with write(self._engine) as connection:
                for ref, check in checks.items():
                    key_records.add_check(connection, ref, check)
        except (StateUnavailable, CommitStateUnknown) as problem:
            # A user with read-only access to the database can still scan; another user stores them.
            logger.warning("check values of keys could not be stored: %s", problem.message)


def _require_recorded(table: TableRecord, refs: Iterable[PekRef], found: Iterable[PekRecord]) -> None:
    if not set(refs) <= {pek.ref for pek in found}:
        raise KeyNotUsable("A key of the table is missing in the catalog.", table=str(table.name), rule="pek")


def _not_active(table: TableRecord, pek: PekRecord) -> KeyNotUsable:
    return KeyNotUsable(
        f"The table's PEK {pek.id} version {pek.version} is {pek.state}.",
        table=str(table.name),
        rule="pek-state",
        hint=state_hint(pek.state),
    )
