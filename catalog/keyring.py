"""A table's keys in use: made with the KMS, opened through the cache, judged by the regimes.

PEKs never leave this process. What leaves is data keys of exactly the files planned, under a key made for
that scan (`scan_keys`); what comes in is data keys under a key made for that write, which are wrapped anew
under the PEK (`catalog.writes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa
from sqlalchemy import Engine

from catalog import key_records
from catalog.db.engine import read
from catalog.keys.alike import Form, Formed, FormReader
from catalog.keys.file_identity import FileIdentity
from catalog.keys.key_metadata import KeyEntry, KeyMetadata
from catalog.keys.kms import KmsClient
from catalog.keys.managers import EnvelopeManager
from catalog.keys.peks import Pek, PekCache, PekRecord, PekState, create_pek, state_hint
from catalog.keys.scan_keys import ScanFile, ScanWrapper
from catalog.keys.transport import TransportKey
from catalog.state import Governed, TableRecord
from policy.decision import Decision
from policy.encryption import EncryptionSpec
from policy.errors import DecryptionRefused, EncryptionPolicyViolation, KeyNotUsable, LakewardenError
from policy.regimes import FOREIGN_PEK, FileKeys, PekRef, judge_new_file, judge_sealed_file


@dataclass(frozen=True, slots=True)
class ScanKeys:
    """The keys of one scan.

    Attributes:
        transport: the key made for the scan; it is shown to the engine once.
        wrapped: for each file, in order, its released data keys under the transport key.
    """

    transport: TransportKey
    wrapped: list[tuple[bytes, ...]]


class Keyring:
    """Makes, opens and judges keys.

    Args:
        engine: the catalog's database.
        catalog: the catalog's name, part of the context that PEKs are bound to.
        kms: the KMS that new PEKs are made with.
        cache: unwrapped PEKs.
    """

    def __init__(self, engine: Engine, catalog: str, kms: KmsClient, cache: PekCache) -> None:
        self._engine = engine
        self._catalog = catalog
        self._kms = kms
        self._cache = cache
        self._envelope = EnvelopeManager()

    def keys_for(
        self, table: TableRecord, spec: EncryptionSpec, in_force: Sequence[PekRef] = ()
    ) -> tuple[tuple[PekRef, ...], tuple[PekRecord, ...]]:
        """The PEKs that a specification needs: those the table has, and new ones for the rest.

        Args:
            table: the table.
            spec: how it is going to encrypt.
            in_force: the versions that it encrypts with now. They stay in force: a later one, left by a
                rotation that was cut short, takes a rotation.

        Returns:
            how the regime names them, and the records that have to be stored.

        Raises:
            KeyNotUsable: a version in force is disabled or destroyed, or a master key is unknown or may not
                be used.
            KmsUnavailable: the KMS does not answer.
        """
        known = self.records(table)
        latest = {pek.master_key_id: pek for pek in known}
        kept = {pek.master_key_id: pek for pek in known if pek.ref in in_force}
        for key_id in kept.keys() & set(spec.key_ids()):
            if kept[key_id].state is not PekState.ACTIVE:
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
        """A later version of each PEK in force; one that a rotation left which was cut short is taken up.

        A destroyed version is followed by a later one, too: what is under it is lost, and new files go on.

        Returns:
            how the regime names them, and the records that have to be stored.

        Raises:
            KeyNotUsable: a PEK in force is disabled, or its master key may not be used.
            KmsUnavailable: the KMS does not answer.
        """
        known = self.records(table)
        latest = {pek.id: pek for pek in known}
        in_force = governed.regimes.current.peks
        _require_recorded(table, in_force, known)
        for pek in known:
            if pek.ref in in_force and pek.state not in (PekState.ACTIVE, PekState.DESTROYED):
                raise _not_active(table, pek)
        chosen = {
            ref: self._usable(table, ref.master_key_id, latest[ref.pek_id], ref.version) for ref in in_force
        }
        made = tuple(pek for pek in chosen.values() if pek not in latest.values())
        return tuple(pek.ref for pek in chosen.values()), made

    def latest(self, table: TableRecord, governed: Governed) -> dict[UUID, PekRef]:
        """The version of each PEK that data keys should be under, by the PEK's id.

        Of a PEK in force it is the version in force; of another one the latest that may wrap.
        """
        active = [pek.ref for pek in self.records(table) if pek.state is PekState.ACTIVE]
        in_force = {ref.pek_id: ref for ref in governed.regimes.current.peks}
        return {ref.pek_id: ref for ref in active} | in_force

    def active(self, table: TableRecord, governed: Governed) -> frozenset[PekRef]:
        """Those of the versions in force that new files may be put under now."""
        in_force = governed.regimes.current.peks
        if not in_force:
            return frozenset()
        return frozenset(
            pek.ref for pek in self.records(table) if pek.ref in in_force and pek.state is PekState.ACTIVE
        )

    def destroyed(self, table: TableRecord) -> frozenset[PekRef]:
        """The versions that nobody can open any more."""
        return frozenset(pek.ref for pek in self.records(table) if pek.state is PekState.DESTROYED)

    def _usable(self, table: TableRecord, key_id: str, latest: PekRecord | None, after: int = 0) -> PekRecord:
        """The latest version of a PEK, if it is active and later than `after`; else a new one."""
        if latest is not None and latest.state is PekState.ACTIVE and latest.version > after:
            return latest
        if latest is not None and latest.state is PekState.DISABLED:
            raise _not_active(table, latest)
        return create_pek(
            self._kms,
            catalog=self._catalog,
            table_id=table.id,
            table_uuid=table.table_uuid,
            master_key_id=key_id,
            pek_id=None if latest is None else latest.id,
            version=1 if latest is None else latest.version + 1,
        )

    def records(self, table: TableRecord) -> list[PekRecord]:
        """The table's PEKs, wrapped, in every state."""
        with read(self._engine) as connection:
            return key_records.of_table(connection, table)

    def writing_peks(
        self, table: TableRecord, governed: Governed, made: Sequence[PekRecord] = ()
    ) -> dict[str, Pek]:
        """The PEKs that new files are put under, by master key id.

        Args:
            table: the table.
            governed: what governs it.
            made: PEKs that are not recorded yet.

        Raises:
            KeyNotUsable, KmsUnavailable: one cannot be had.
        """
        refs = set(governed.regimes.current.peks)
        found = [pek for pek in [*self.records(table), *made] if pek.ref in refs]
        _require_recorded(table, refs, found)
        opened = self._cache.get_all(found, for_writing=True)
        return {ref.master_key_id: pek for ref, pek in opened.items()}

    def open_peks(self, table: TableRecord, refs: Iterable[PekRef]) -> dict[PekRef, Pek]:
        """PEKs to read with.

        Raises:
            DecryptionRefused: a key that the table does not have.
            KeyNotUsable, KmsUnavailable: one cannot be had.
        """
        known = {pek.ref: pek for pek in self.records(table)}
        wanted = set(refs)
        foreign = wanted - known.keys()
        if foreign:
            raise DecryptionRefused(
                f"A file names the key {min(str(ref.pek_id) for ref in foreign)}, which is not this table's.",
                table=str(table.name),
                rule="pek",
            )
        return self._cache.get_all([known[ref] for ref in wanted])

    def check_new_files(self, table: TableRecord, governed: Governed, added: pa.Table) -> None:
        """Hold the key metadata of files that a commit adds against the regime in force, and open it.

        Args:
            table: the table.
            governed: what governs it; it encrypts.
            added: `file_path` and `key_metadata` of the files.

        Raises:
            EncryptionPolicyViolation: a file does not fit the regime.
            DecryptionRefused: key metadata that is malformed, transplanted, under a key that is not the
                table's, or does not open.
        """
        if added.num_rows == 0:
            return
        files = _pairs(added)
        for path, metadata in files:
            decision = judge_new_file(governed.regimes, _stated(metadata, path, str(table.name)))
            if not decision.allowed:
                hint = "Write files of encrypted tables through the engine interface."
                raise _unfit(decision, path, str(table.name), hint)
        peks = {pek.ref: pek for pek in self.writing_peks(table, governed).values()}
        for path, metadata in files:
            self._envelope.open(metadata, FileIdentity.of(table.table_uuid, path), lambda ref: peks[ref])

    def judged_files(
        self, table: TableRecord, governed: Governed, planned: pa.Table
    ) -> list[ScanFile | None]:
        """The files of one scan with all of their keys, each held against the regime of its sequence number.

        Args:
            table: the table.
            governed: what governs it.
            planned: `file_path`, `key_metadata` and `file_sequence_number` of the files.

        Returns:
            for each file its key metadata, None for one in plaintext.

        Raises:
            EncryptionPolicyViolation: a file does not fit the regime of its sequence number.
            DecryptionRefused: key metadata is malformed, or under a key that the regime does not name.
        """
        if not governed.ever_encrypted and planned["key_metadata"].null_count == planned.num_rows:
            # Every regime is plaintext, and so is every file: nothing is left to judge one by one.
            return [None] * planned.num_rows
        files: list[ScanFile | None] = []
        reader, fit = FormReader(), set[tuple[int, Form | None]]()
        numbers = planned["file_sequence_number"].to_pylist()
        for (path, data), number in zip(_pairs(planned), numbers, strict=True):
            metadata, form = (None, None) if data is None else _read(reader, data, path, str(table.name))
            if (number, form) not in fit:
                stated = metadata.file_keys() if metadata else None
                decision = judge_sealed_file(governed.regimes, number, stated)
                if not decision.allowed:
                    raise _unfit(decision, path, str(table.name), "Have an administrator examine it.")
                fit.add((number, form))
            files.append(ScanFile(path, metadata, metadata.entries) if metadata else None)
        return files

    def scan_keys(self, table: TableRecord, files: Sequence[ScanFile | None]) -> ScanKeys | None:
        """The data keys of the files of one scan, or None if no file is encrypted.

        Args:
            table: the table.
            files: judged files with the keys that are released of each; None for one in plaintext.

        Raises:
            DecryptionRefused, KeyNotUsable, KmsUnavailable: a key cannot be had.
        """
        encrypted = [file for file in files if file is not None]
        if not encrypted:
            return None
        bindings = {entry.binding for file in encrypted for entry in file.entries}
        refs = {KeyEntry(binding, b"").bound.pek for binding in bindings}
        wrapper = ScanWrapper(table.table_uuid, self.open_peks(table, refs))
        wrapped = iter(wrapper.rewrap_for_scan(encrypted))
        return ScanKeys(wrapper.transport, [() if file is None else next(wrapped) for file in files])


def _require_recorded(table: TableRecord, refs: Iterable[PekRef], found: Iterable[PekRecord]) -> None:
    if not set(refs) <= {pek.ref for pek in found}:
        raise KeyNotUsable(
            "A key of the table is missing from the catalog.", table=str(table.name), rule="pek"
        )


def _not_active(table: TableRecord, pek: PekRecord) -> KeyNotUsable:
    return KeyNotUsable(
        f"The table's key {pek.id} version {pek.version} is {pek.state}.",
        table=str(table.name),
        rule="pek-state",
        hint=state_hint(pek.state),
    )


def _pairs(files: pa.Table) -> Sequence[tuple[str, bytes | None]]:
    return list(zip(files["file_path"].to_pylist(), files["key_metadata"].to_pylist(), strict=True))


def _unfit(decision: Decision, path: str, table: str, hint: str) -> LakewardenError:
    """A file that does not fit its regime: under a key that is none of the regime's, or in another way."""
    rule = decision.reasons[0].rule
    error = DecryptionRefused if rule == FOREIGN_PEK else EncryptionPolicyViolation
    return error(decision.explanation, table=table, path=path, rule=rule, hint=hint)


def _stated(metadata: bytes | None, path: str, table: str) -> FileKeys | None:
    return None if metadata is None else _parse(metadata, path, table).file_keys()


def _parse(metadata: bytes, path: str, table: str) -> KeyMetadata:
    return _read(FormReader(), metadata, path, table).metadata


def _read(reader: FormReader, data: bytes, path: str, table: str) -> Formed:
    try:
        return reader.read(data)
    except DecryptionRefused as refusal:
        raise DecryptionRefused(
            refusal.message, table=table, path=path, rule=refusal.rule, hint=refusal.hint
        ) from refusal
