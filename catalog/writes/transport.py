"""Transport keys of writes: made when a write begins, kept sealed, and used to take its data keys over.

A transport key is kept between begin and commit under one of the table's PEKs, never in plaintext.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from uuid import UUID

from catalog.crypto.secret import SecretBytes
from catalog.envelope.parquet_key_tools import StockKey, make_stock_keys
from catalog.envelope.peks import Pek
from catalog.envelope.transport import KeyLabel, Purpose, TransportKey, open_transport_key, seal_transport_key
from catalog.envelope.write_keys import WriteRewrapper
from catalog.keyring.keyring import Keyring
from catalog.reading.loading import LoadedTable
from catalog.writes.sessions import SealedTransport, WriteRow
from policy.encryption.epochs import PekRef
from policy.encryption.specification import EncryptionSpec
from policy.errors import KeyNotUsable


def make_transport(
    write_id: UUID, spec: EncryptionSpec, peks: Mapping[str, Pek]
) -> tuple[TransportKey, SealedTransport]:
    """A key for a write to an encrypted table, and how it is kept.

    Args:
        write_id: of the write.
        spec: how the table encrypts.
        peks: the keys that its new files are put under, by master key id.
    """
    pek = peks[spec.key_ids()[0]]
    transport = TransportKey(write_id.bytes, Purpose.WRITE, SecretBytes(secrets.token_bytes(32)))
    return transport, SealedTransport(pek.ref.pek_id, pek.ref.version, seal_transport_key(transport, pek))


def stock_keys_of(
    transport: TransportKey, table: LoadedTable, peks: Mapping[str, Pek]
) -> tuple[StockKey, ...]:
    """What the files of a write carry for stock readers: for each of their keys; none if the table has none.

    Args:
        transport: the write's key.
        table: as it is, or as the write will create it.
        peks: the keys that its new files are put under, by master key id.
    """
    governed = table.governed
    if not governed.spec.stock_readers:
        return ()
    groups = governed.epochs.current.columns
    labels = [
        KeyLabel(governed.spec.key_ids()[0]),
        *(KeyLabel(each.key_id, each.field_ids) for each in groups),
    ]
    return make_stock_keys(transport, table.record.table_uuid, governed.version, labels, peks)


def rewrapper_of(keyring: Keyring, table: LoadedTable, row: WriteRow) -> WriteRewrapper | None:
    """What takes a write's data keys over; None for plaintext.

    Raises:
        KeyNotUsable: the table has been encrypted since the write began, or the write's key is gone.
        KmsUnavailable: the KMS does not answer.
    """
    spec = table.governed.spec
    if not spec.encrypts:
        return None
    if row.transport is None:
        raise KeyNotUsable(
            "The table was encrypted after the write began.",
            table=table.name,
            rule="write-key",
            hint="Begin a new write, and write the rows again.",
        )
    peks = keyring.writing_peks(table.record, table.governed)
    ref = _sealing(keyring, table, row.transport)
    pek = keyring.open_peks(table.record, [ref])[ref]
    transport = open_transport_key(row.transport.sealed, UUID(row.id).bytes, Purpose.WRITE, pek)
    return WriteRewrapper(
        transport,
        table.record.table_uuid,
        spec.algorithm,
        spec.footer,
        peks,
        stock_readers=spec.stock_readers,
    )


def _sealing(keyring: Keyring, table: LoadedTable, transport: SealedTransport) -> PekRef:
    named = (transport.pek_id, transport.pek_version)
    for pek in keyring.records(table.record):
        if (pek.id, pek.version) == named:
            return pek.ref
    raise KeyNotUsable(
        f"The PEK {transport.pek_id} version {transport.pek_version} that the write began under no "
        "longer exists.",
        table=table.name,
        rule="write-key",
        hint="Begin a new write.",
    )
