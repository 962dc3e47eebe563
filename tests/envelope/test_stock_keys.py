"""Keys for standard readers: bound to table, PEK, governed version and role; nothing else passes for one."""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import UUID, uuid4

import pytest
import second_stock_keys
from second_implementation import VECTORS

from catalog.crypto.aead import Aead
from catalog.crypto.secret import SecretBytes
from catalog.envelope.data_keys import NewKey, new_dek, wrap_deks
from catalog.envelope.file_ids import FileIdentity, new_file_name
from catalog.envelope.parquet_key_tools import claims_of, make_stock_keys, open_kek, transport_kek_aad
from catalog.envelope.peks import Pek
from catalog.envelope.transport import KeyLabel, Purpose, TransportKey, seal_transport_key
from policy.encryption.epochs import PekRef
from policy.encryption.specification import Algorithm, Footer
from policy.errors import DecryptionRefused
from tests.support.vectors import each_row

DOCUMENT = json.loads((VECTORS / "stock-keys.json").read_text(encoding="utf-8"))
TABLE = UUID(int=7)
FOOTER, GROUP = KeyLabel("lake"), KeyLabel("pii", (2, 9))


def pek_of(case: dict[str, Any]) -> Pek:
    named = case["pek"]
    ref = PekRef(UUID(hex=named["id"]), named["version"], case["key_name"])
    return Pek(ref, UUID(hex=case["table_uuid"]), Aead(SecretBytes(bytes.fromhex(named["key"]))))


def make_pek(name: str, table: UUID = TABLE) -> Pek:
    return Pek(PekRef(uuid4(), 1, name), table, Aead(new_dek(32)))


def test_the_vectors_are_those_that_the_second_implementation_writes() -> None:
    assert second_stock_keys.document() == DOCUMENT


@each_row("case", DOCUMENT["valid"], ids=lambda case: case["key_name"])
def test_what_a_second_implementation_wrapped_opens(case: dict[str, Any]) -> None:
    claims = claims_of(case["wrapped"])
    assert (claims.table_uuid, claims.governed_version) == (UUID(hex=case["table_uuid"]), 7)
    assert claims.of_group is case["of_group"]
    assert open_kek(case["wrapped"], pek_of(case)).reveal().hex() == case["kek"]
    transport = TransportKey(
        bytes.fromhex(case["transport_id"]), Purpose.WRITE, SecretBytes(bytes.fromhex(case["transport_key"]))
    )
    label = KeyLabel(case["key_name"], tuple(case["field_ids"]))
    aad = transport_kek_aad(transport, claims.table_uuid, bytes.fromhex(case["kek_id"]), label)
    assert Aead(transport.key).open(bytes.fromhex(case["sent"]), aad).hex() == case["kek"]


@each_row("case", DOCUMENT["refused"], count=16, ids=lambda case: case["name"])
def test_what_was_changed_or_is_anothers_does_not_open(case: dict[str, Any]) -> None:
    with pytest.raises(DecryptionRefused):
        open_kek(case["wrapped"], pek_of(case))


def test_each_key_of_a_write_has_one_of_its_own_which_engine_and_kms_endpoint_open_alike() -> None:
    lake, pii = make_pek("lake"), make_pek("pii")
    transport = TransportKey.new(Purpose.WRITE)
    made = make_stock_keys(transport, TABLE, 3, [FOOTER, GROUP], {"lake": lake, "pii": pii})
    opened = []
    for key, pek in zip(made, (lake, pii), strict=True):
        sent = Aead(transport.key).open(key.kek, transport_kek_aad(transport, TABLE, key.kek_id, key.label))
        assert open_kek(key.wrapped, pek).reveal() == sent and len(sent) == 32
        assert claims_of(key.wrapped).of_group is bool(key.label.field_ids)
        opened.append(sent)
    assert opened[0] != opened[1] and made[0].kek_id != made[1].kek_id


def test_only_a_writes_transport_key_and_the_tables_own_pek_take_part() -> None:
    with pytest.raises(DecryptionRefused):
        make_stock_keys(TransportKey.new(Purpose.SCAN), TABLE, 1, [FOOTER], {"lake": make_pek("lake")})
    foreign = {"lake": make_pek("lake", UUID(int=8))}
    with pytest.raises(DecryptionRefused):
        make_stock_keys(TransportKey.new(Purpose.WRITE), TABLE, 1, [FOOTER], foreign)


def test_data_keys_and_transport_keys_do_not_pass_for_one() -> None:
    """All are 32 bytes under one PEK; the KMS endpoint must not open what a manifest or a database holds."""
    pek, transport = make_pek("lake"), TransportKey.new(Purpose.WRITE)
    (key,) = make_stock_keys(transport, TABLE, 1, [FOOTER], {"lake": pek})
    head = base64.b64decode(key.wrapped)[:42]
    file = FileIdentity.of(TABLE, f"s3://b/t/{new_file_name('part', 'parquet')}")
    metadata = wrap_deks(Algorithm.AES_GCM_V1, Footer.ENCRYPTED, file, [NewKey(pek, (), new_dek(32))])
    for other in (metadata.entries[0].wrapped, seal_transport_key(transport, pek)):
        with pytest.raises(DecryptionRefused):
            open_kek(base64.b64encode(head + other).decode(), pek)
