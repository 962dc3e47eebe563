"""The engine opens and wraps data keys as docs/key-metadata.md says, held to the shared vectors."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest
from py4j.protocol import Py4JJavaError

from catalog.crypto.secret import SecretBytes
from catalog.envelope.file_ids import FileIdentity, parquet_aad_prefix
from catalog.envelope.transport import KeyLabel, Purpose, TransportKey, open_transported
from tests.support.spark import SparkLake
from tests.support.wycheproof import aead_cases

DIRECTORY = Path(__file__).parents[1] / "vectors"
TRANSPORT = json.loads((DIRECTORY / "transport.json").read_text())
FILE_IDS = json.loads((DIRECTORY / "key-metadata.json").read_text())["file_ids"]


class EngineKeys:
    """The engine's side of data keys."""

    def __init__(self, spark_lake: SparkLake) -> None:
        self._jvm = spark_lake.spark.sparkContext._jvm
        self.package = self._jvm.org.apache.spark.sql.lakewarden.crypto

    def file(self, table: UUID, location: str):
        """The identity of a file, by its name."""
        return self.package.FileIdentity.of(self._jvm.java.util.UUID.fromString(str(table)), location)

    def label(self, name: str, field_ids: list[int]):
        """Which key is meant."""
        ids = self._jvm.java.util.ArrayList()
        for each in field_ids:
            ids.add(each)
        listed = self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(ids).toSeq()
        return self.package.KeyLabel(name, listed)

    def transport(self, case: dict[str, str]):
        """The transport key of a vector."""
        secret = self.package.Secret(bytes.fromhex(case["transport_key"]))
        return self.package.TransportKey(bytes.fromhex(case["transport_id"]), case["purpose"], secret)

    def open(self, case: dict) -> bytes:
        """The data key of a vector."""
        wrapped = self.package.WrappedKey(
            self.label(case["key_name"], case["field_ids"]), bytes.fromhex(case["wrapped"])
        )
        file = self.file(UUID(case["table_uuid"]), f"file:///t/part-{case['file_id']}.parquet")
        return bytes(self.package.DataKeys.open(self.transport(case), wrapped, file).reveal())


@pytest.fixture(scope="module")
def keys(spark_lake: SparkLake) -> EngineKeys:
    return EngineKeys(spark_lake)


def test_every_valid_vector_opens_to_its_data_key(keys):
    assert [keys.open(case).hex() for case in TRANSPORT["valid"]] == [
        case["dek"] for case in TRANSPORT["valid"]
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("case", TRANSPORT["refused"], ids=lambda case: case["name"])
def test_what_is_of_another_scan_table_file_or_key_does_not_open(keys, case):
    with pytest.raises(Exception, match="DecryptionRefused"):
        keys.open(case)


@pytest.mark.nightly
def test_file_ids_are_read_from_names_as_the_vectors_say(keys):
    table = UUID(int=1)
    for case in FILE_IDS["valid"]:
        expected = parquet_aad_prefix(FileIdentity(table, bytes.fromhex(case["file_id"])))
        assert bytes(keys.file(table, case["location"]).aadPrefix()) == expected


@pytest.mark.nightly
@pytest.mark.parametrize("location", FILE_IDS["refused"], ids=ascii)
def test_a_name_without_a_file_id_is_refused(keys, location):
    with pytest.raises(Exception, match="DecryptionRefused"):
        keys.file(UUID(int=1), location)


@pytest.mark.nightly
@pytest.mark.parametrize("length", [16, 24, 32])
def test_the_catalog_opens_what_the_engine_wraps(keys, length):
    table, case = UUID(int=7), TRANSPORT["valid"][0] | {"purpose": "write"}
    location = f"file:///t/part-{keys.package.DataKeys.newFileId()}.parquet"
    dek = keys.package.DataKeys.create(length)
    wrapped = keys.package.DataKeys.wrap(
        keys.transport(case), dek, keys.file(table, location), keys.label("lake", [])
    )
    transport = TransportKey(
        bytes.fromhex(case["transport_id"]), Purpose.WRITE, SecretBytes(bytes.fromhex(case["transport_key"]))
    )
    opened = open_transported(
        transport, bytes(wrapped.wrapped()), FileIdentity.of(table, location), KeyLabel("lake")
    )
    assert opened.reveal() == bytes(dek.reveal())


def opened(ask):
    """What is opened; None if that is refused."""
    try:
        return bytes(ask())
    except Py4JJavaError as refusal:
        java = refusal.java_exception.getClass().getName()
        assert java.startswith(("javax.crypto.", "java.security.", "org.apache.parquet.")), java
        return None


@pytest.mark.nightly
def test_wycheproof_of_the_engine(keys):
    """Nonces of 12 bytes alone, whatever else the primitive takes."""
    aead = keys.package.AesGcm
    for case in aead_cases():
        key = keys.package.Secret(case.key)
        found = opened(lambda case=case, key=key: aead.decrypt(key, case.iv, case.sealed, case.aad))
        assert found == (case.message if case.opens else None), case.id
        if case.opens:
            assert bytes(aead.encrypt(key, case.iv, case.message, case.aad)) == case.sealed, case.id
        elif len(case.iv) != 12:
            assert opened(lambda case=case, key=key: aead.encrypt(key, case.iv, b"", case.aad)) is None, (
                case.id
            )


@pytest.mark.nightly
def test_wycheproof_of_parquet_in_the_engine(keys, spark_lake):
    """Modules as Parquet stores them: length, nonce of 12 bytes, ciphertext, tag."""
    parquet = spark_lake.spark.sparkContext._jvm.org.apache.parquet.crypto
    for case in aead_cases():
        if len(case.iv) == 12 and case.message:
            reader = parquet.ModuleCipherFactory.getDecryptor(parquet.AesMode.GCM, case.key)
            module = case.iv + case.sealed
            stored = len(module).to_bytes(4, "little") + module
            found = opened(lambda stored=stored, case=case, reader=reader: reader.decrypt(stored, case.aad))
            assert found == (case.message if case.opens else None), case.id


@pytest.mark.nightly
def test_no_key_is_printed(keys):
    case = TRANSPORT["valid"][0]
    shown = " ".join(
        each.toString()
        for each in (keys.transport(case), keys.package.DataKeys.create(32), keys.transport(case).key())
    )
    assert shown == "TransportKey(scan) Secret(***) Secret(***)"
