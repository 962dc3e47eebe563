"""Files whose key metadata has the digest of their footer: nobody describes their columns otherwise.

Each edit keeps what other checks look at, where it can; with the digest not one of them matters.
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import lakewarden
from catalog.client import footers, thrift
from catalog.client.footers import FileKeys
from catalog.client.thrift import Items, Struct, Value
from catalog.crypto.secret import SecretBytes
from catalog.envelope.file_digests import FooterDigest
from catalog.writes import data_files
from policy.encryption.specification import Algorithm, Footer
from policy.errors import DecryptionRefused
from tests.support.forged_footers import element, forged, local, numbered, read
from tests.support.service import Service

Make = Callable[..., str]

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "pay", LongType()),
    NestedField(3, "bonus", LongType()),
)
ROWS = pa.table({"id": [1, 2], "pay": [2**40, 2**41], "bonus": [3, 4]})
WHOLE = {"encryption.mechanism": "envelope"}
KEYED = {"encryption.columns": "pii:pay,bonus"}
FORMS = {
    "encrypted": KEYED,
    "signed": KEYED | {"encryption.footer": "plaintext"},
    "ctr": KEYED | {"encryption.algorithm": "AES_GCM_CTR_V1"},
    "stock": KEYED | {"encryption.stock-readers": "true"},
}


def exchanged(metadata: Struct) -> None:
    """Two columns of one type under one key change field ids; the file stays as long as it was."""
    numbered(metadata, b"pay", 3)
    numbered(metadata, b"bonus", 2)


def narrower(metadata: Struct) -> None:
    """Numbers of 64 bits are read as if they had 32."""
    element(metadata, b"pay").fields[1] = Value(thrift.I32, 1)


def required(metadata: Struct) -> None:
    """What says where null is would be read as values."""
    element(metadata, b"pay").fields[3] = Value(thrift.I32, 0)


def in_nanoseconds(metadata: Struct) -> None:
    element(metadata, b"pay").fields[6] = Value(thrift.I32, 10)


def without_rows(metadata: Struct) -> None:
    metadata.fields[3] = Value(thrift.I64, 0)
    metadata.fields[4] = Value(thrift.LIST, Items(thrift.STRUCT, []))


@pytest.mark.nightly
@pytest.mark.parametrize("form", FORMS)
def test_files_with_keys_of_columns_are_written_with_the_digest_of_their_footer(
    make: Make, alice: lakewarden.Connection, form: str
) -> None:
    table = alice.table(make(SCHEMA, properties=FORMS[form]))
    table.append(ROWS)
    (file,) = table.scan()._plan().files
    data = local(file).read_bytes()
    (length,) = struct.unpack("<I", data[-8:-4])
    end = data[-length - 8 :]
    assert file.footer_digest == FooterDigest(len(end), hashlib.sha256(end).digest())
    assert table.scan().to_arrow().equals(ROWS)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "properties", [{}, {"encryption.mechanism": "envelope"}, {"encryption.stock-readers": "true"}]
)
def test_other_files_have_none(make: Make, alice: lakewarden.Connection, properties: dict[str, str]) -> None:
    table = alice.table(make(SCHEMA, properties=properties))
    table.append(ROWS)
    (file,) = table.scan()._plan().files
    assert file.footer_digest is None
    assert table.scan().to_arrow().equals(ROWS)


@pytest.mark.parametrize("form", FORMS)
def test_a_footer_that_was_rewritten(make: Make, alice: lakewarden.Connection, form: str) -> None:
    """Also one that says the same, sealed with other nonces."""
    table = alice.table(make(SCHEMA, properties=FORMS[form]))
    table.append(ROWS)
    scan = table.scan()
    path = local(scan._plan().files[0])
    good = path.read_bytes()
    for edit in (exchanged, narrower, required, in_nanoseconds, without_rows, lambda metadata: None):
        path.write_bytes(good)
        assert read(scan, "pay", vouched=True) == ROWS["pay"].to_pylist()
        forged(scan, edit)
        for column in ("id", "pay"):
            with pytest.raises(DecryptionRefused, match="footer-digest"):
                read(scan, column, vouched=True)


def test_columns_of_one_type_under_one_key_do_not_change_places(
    make: Make, alice: lakewarden.Connection
) -> None:
    """The digest alone notices."""
    table = alice.table(make(SCHEMA, properties=KEYED))
    table.append(ROWS)
    forged(table.scan(), exchanged)
    assert read(table.scan(), "pay") == [3, 4]
    with pytest.raises(DecryptionRefused, match="footer-digest") as refused:
        table.scan().to_arrow()
    assert refused.value.table == str(table.name)
    assert refused.value.path is not None and refused.value.path.endswith(".parquet")


def test_a_footer_that_is_changed_once_it_was_read_changes_nothing(
    make: Make, alice: lakewarden.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the footer and PyArrow's."""
    table = alice.table(make(SCHEMA, properties=KEYED))
    table.append(ROWS)
    check = footers.check

    def judged(*given: Any) -> None:
        check(*given)
        forged(table.scan(), exchanged)

    monkeypatch.setattr(footers, "check", judged)
    assert table.scan().to_arrow().equals(ROWS)


def test_a_column_that_was_required_and_may_be_null_now_is_read(
    make: Make, alice: lakewarden.Connection, served: Service
) -> None:
    """Without the digest nobody could tell such a file from a forged one."""
    pay = NestedField(2, "pay", LongType(), required=True)
    name = make(Schema(NestedField(1, "id", LongType()), pay), properties={"encryption.columns": "pii:pay"})
    alice.table(name).append(pa.table({"id": [1, 2], "pay": [5, 6]}))
    with served.lake.catalog().load_table(name).update_schema() as update:
        update.make_column_optional("pay")
    scan = alice.table(name).scan()
    assert scan.to_arrow()["pay"].to_pylist() == [5, 6]
    with pytest.raises(DecryptionRefused, match="column-key"):
        read(scan, "pay")


@pytest.mark.nightly
def test_files_from_before_there_were_digests_of_footers_are_read(
    make: Make, alice: lakewarden.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = alice.table(make(SCHEMA, properties=KEYED))
    with monkeypatch.context() as before:
        before.setattr(data_files, "_footer_digest", lambda file, table: None)
        table.append(ROWS)
    table.append(ROWS)
    digests = [file.footer_digest for file in table.scan()._plan().files]
    assert sorted(digest is None for digest in digests) == [False, True]
    assert table.scan().to_arrow().num_rows == 4


@pytest.mark.nightly
@pytest.mark.parametrize("properties", [{}, WHOLE])
def test_a_plan_with_the_digest_of_a_footer_that_is_under_the_only_key(
    make: Make, alice: lakewarden.Connection, properties: dict[str, str]
) -> None:
    table = alice.table(make(SCHEMA, properties=properties))
    table.append(ROWS)
    plan = table.scan()._plan()
    (file,) = plan.files
    said = dataclasses.replace(file, footer_digest=FooterDigest(12, bytes(32)))
    with pytest.raises(DecryptionRefused, match="data-key"):
        plan.keys(said, plan.location(file))


END = b"m" * 100 + struct.pack("<I4s", 100, b"PARE")
KEYS = FileKeys(Algorithm.AES_GCM_V1, Footer.ENCRYPTED, SecretBytes(bytes(32)), {}, b"prefix")


@pytest.mark.parametrize(
    ("end", "length"),
    [
        (END, 107),
        (END, 109),
        (END, 12),
        (END, 200),
        (END, 300),
        (END, 2**32 - 1),
        (END[:-8] + b"\0" * 8, 108),
    ],
)
def test_a_digest_of_other_bytes_than_the_footer(end: bytes, length: int) -> None:
    """Right as a digest, but not of as many bytes as the file says that its footer has."""
    data = b"PARE" + bytes(88) + end
    asked: list[int] = []

    def piece(start: int, count: int) -> bytes:
        asked.append(count)
        return data[start : start + count]

    digest = FooterDigest(length, hashlib.sha256(data[-length:]).digest())
    with pytest.raises(DecryptionRefused, match="footer-digest"):
        footers.read(piece, len(data), KEYS, digest)
    assert asked == ([length] if length <= len(data) else [])
