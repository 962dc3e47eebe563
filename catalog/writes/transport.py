"""Makes and seals the transport keys of writes, and opens them to rewrap data keys.

Between begin and commit, a transport key is stored under one of the table's PEKs, never in plaintext.
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
    """Make the transport key of a write to an encrypted table, and its sealed form.

    Args:
        write_id: of the write.
        spec: the table's encryption specification.
        peks: the PEKs for new files, by master key id.
    """
    pek = peks[spec.key_ids()[0]]
    transport = TransportKey(write_id.bytes, Purpose.WRITE, SecretBytes(secrets.token_bytes(32)))
    return transport, SealedTransport(pek.ref.pek_id, pek.ref.version, seal_transport_key(transport, pek))


def stock_keys_of(
    transport: TransportKey, table: LoadedTable, peks: Mapping[str, Pek]
) -> tuple[StockKey, ...]:
    """Make the key material for standard readers, one entry per key; empty if the table has none.

    Args:
        transport: the write's key.
        table: the existing table, or the table that the write will create.
        peks: the PEKs for new files, by master key id.
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
    """Return the rewrapper for a write's data keys; None if the table is in plaintext.

    Raises:
        KeyNotUsable: the table was encrypted after the write began, or the PEK of the transport key is gone.
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
