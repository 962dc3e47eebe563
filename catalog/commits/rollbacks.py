"""Checks whether a rollback of an encrypted table is possible, and whether it drops protection.

- The restored snapshot has to be readable: none of its files is of a forbidden encryption epoch, and none
  needs a key that is disabled, scheduled for destruction or destroyed.
- A rollback across a change of the table's encryption drops protection. So does a rollback that restores a
  file or key metadata which differs from the current epoch under the latest versions of its keys, for example
  across a rewrap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyiceberg.table.snapshots import Snapshot

from catalog.envelope.key_metadata_columns import Form, read_forms, stated
from catalog.envelope.peks import PekRecord, PekState, state_hint
from catalog.keyring.keyring import Keyring
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import SnapshotReader
from catalog.snapshot_checks.branches import Rollback
from catalog.snapshot_checks.entries import alive
from policy.encryption.epochs import Epochs, PekRef, check_migrated, epoch_for, kind
from policy.errors import KeyNotUsable

#: States of keys that can decrypt.
_READABLE = (PekState.ACTIVE, PekState.DECRYPT_ONLY)

#: A file, with its key metadata.
_Keyed = tuple[str, bytes | None]


class Rollbacks:
    """Checks rollbacks of encrypted tables.

    Args:
        reader: reads manifests.
        keyring: looks up the tables' keys.
    """

    def __init__(self, reader: SnapshotReader, keyring: Keyring) -> None:
        self._reader = reader
        self._keyring = keyring

    def drop_protection(self, table: LoadedTable, found: Sequence[Rollback]) -> bool:
        """Check that rollbacks are possible, and return whether they drop protection of the table.

        Args:
            table: the table, sealed.
            found: the rollbacks.

        Raises:
            EncryptionPolicyViolation, DecryptionRefused: a file is of a forbidden epoch.
            KeyNotUsable: a file needs a key that is disabled or destroyed.
            MetadataTampered, MetadataInvalid, LocationNotAllowed: a snapshot failed verification.
        """
        if not table.governed.ever_encrypted:
            return False
        drops = [self._drops(table, each) for each in found]
        return any(drops)

    def _drops(self, table: LoadedTable, rollback: Rollback) -> bool:
        if rollback.base is None:
            return False
        outdated = self._readable_outdated(table, rollback.base)
        head = rollback.head
        if _crosses_change(table.governed.epochs, rollback.base, head):
            return True
        latest = self._keyring.latest(table.record, table.governed)
        for entries in () if head is None else self._files(table, head):
            forms = read_forms(entries["key_metadata"], entries["file_path"])
            outdated -= _outdated(table.governed.epochs, entries, forms, latest)
        return bool(outdated)

    def _readable_outdated(self, table: LoadedTable, snapshot: Snapshot) -> set[_Keyed]:
        """Check that a snapshot is readable, and return its outdated files. Each manifest is opened once."""
        states = {pek.ref: pek for pek in self._keyring.records(table.record)}
        latest, found = self._keyring.latest(table.record, table.governed), set[_Keyed]()
        for entries in self._files(table, snapshot):
            forms = self._keyring.checked_files(table.record, table.governed, entries).forms
            _require_readable(table, snapshot, forms, states)
            found |= _outdated(table.governed.epochs, entries, forms, latest)
        return found

    def _files(self, table: LoadedTable, snapshot: Snapshot) -> Iterator[pa.Table]:
        for manifest in self._reader.open(table, self._reader.manifests(table, snapshot)):
            entries = alive(manifest.entries)
            if entries.num_rows:
                yield entries


def _require_readable(
    table: LoadedTable, snapshot: Snapshot, forms: Sequence[Form], states: Mapping[PekRef, PekRecord]
) -> None:
    for ref in {entry.bound.pek for form in forms for entry in form.metadata.entries}:
        pek = states.get(ref)
        if pek is None or pek.state not in _READABLE:
            raise KeyNotUsable(
                f"The snapshot needs version {ref.version} of the PEK {ref.pek_id}, which is "
                f"{'unknown' if pek is None else pek.state}.",
                table=table.name,
                snapshot=snapshot.snapshot_id,
                rule="pek-state",
                hint=state_hint(PekState.DESTROYED if pek is None else pek.state),
            )


def _outdated(
    epochs: Epochs, entries: pa.Table, forms: Sequence[Form], latest: Mapping[UUID, PekRef]
) -> set[_Keyed]:
    """Return the files that differ from the current epoch under the latest versions of its keys."""
    old = np.zeros(entries.num_rows, np.bool_)
    for rows, keys, deletes in stated(entries, forms):
        old[rows] = not check_migrated(epochs, keys, deletes=deletes).allowed
    for form in forms:
        old[form.rows] |= _is_behind(form, latest)
    kept = entries.filter(pa.array(old))
    return set(zip(kept["file_path"].to_pylist(), kept["key_metadata"].to_pylist(), strict=True))


def _crosses_change(epochs: Epochs, back: Snapshot, head: Snapshot | None) -> bool:
    """Return whether a change of encryption lies between the snapshots. A rotation is not a change."""
    was = epochs.current if head is None else epoch_for(epochs, head.sequence_number or 0)
    first = epoch_for(epochs, back.sequence_number or 0).from_sequence_number
    between = [
        each for each in epochs.entries if first <= each.from_sequence_number < was.from_sequence_number
    ]
    return any(kind(each) != kind(was) for each in between)


def _is_behind(form: Form, latest: Mapping[UUID, PekRef]) -> bool:
    refs = (entry.bound.pek for entry in form.metadata.entries)
    return any(ref.version < latest.get(ref.pek_id, ref).version for ref in refs)
