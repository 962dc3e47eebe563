"""New files of an encrypted table: in the format of its epoch, with their digest where it is kept."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.manifest import DataFile

from catalog.envelope.file_digests import FileDigest
from catalog.envelope.key_metadata import KeyMetadata
from catalog.tables.alter import SetProperty
from policy.encryption.specification import Algorithm
from policy.errors import EncryptionPolicyViolation
from tests.support import plans
from tests.support.lake import ALICE, Lake
from tests.support.tables import Engine, make, name_of

ORC = {"encryption.mechanism": "envelope", "write.format.default": "orc"}
DIGEST = bytes(range(32))


def key_metadata(lake: Lake, table: Any) -> list[KeyMetadata]:
    files: list[DataFile] = [
        each.file for each in lake.catalog().load_table(table.name()).scan().plan_files()
    ]
    return [KeyMetadata.parse(file.key_metadata or b"") for file in files]


def test_the_digest_of_an_orc_file_is_kept_and_planned(lake: Lake) -> None:
    table = make(lake, properties=ORC)
    engine = Engine.begin(lake, name_of(table))
    engine.append(engine.file(file_format="orc", sha256=DIGEST))
    (metadata,) = key_metadata(lake, table)
    assert metadata.algorithm is Algorithm.ORC_AES_CTR
    assert metadata.digest == FileDigest(1000, DIGEST)
    planned = plans.plan(lake, table)
    assert planned.files["digest"].to_pylist() == [FileDigest(1000, DIGEST).to_bytes()]
    assert planned.files["algorithm"].to_pylist() == ["ORC_AES_CTR"]
    assert planned.header.to_json()["verify-digest"] == "always"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"file_format": "orc"}, "file-digest"),
        ({"file_format": "orc", "sha256": DIGEST[:-1]}, "file-digest"),
        ({"file_format": "parquet", "sha256": DIGEST}, "file-format"),
        ({"file_format": "avro", "sha256": DIGEST}, "file-format"),
    ],
)
def test_a_file_without_its_digest_or_in_another_format_is_refused(
    lake: Lake, given: dict[str, Any], rule: str
) -> None:
    engine = Engine.begin(lake, name_of(make(lake, properties=ORC)))
    with pytest.raises(EncryptionPolicyViolation) as refused:
        engine.append(engine.file(**given))
    assert refused.value.rule == rule and refused.value.path is not None


def test_an_orc_file_is_refused_where_the_table_encrypts_parquet(lake: Lake) -> None:
    engine = Engine.begin(lake, name_of(make(lake, properties={"encryption.mechanism": "envelope"})))
    with pytest.raises(EncryptionPolicyViolation) as refused:
        engine.append(engine.file(file_format="orc", sha256=DIGEST))
    assert refused.value.rule == "file-format"


@pytest.mark.nightly
def test_parquet_files_keep_digests_from_the_moment_that_the_table_asks(lake: Lake) -> None:
    table = make(lake, properties={"encryption.mechanism": "envelope"})
    engine = Engine.begin(lake, name_of(table))
    engine.append(engine.file(sha256=DIGEST))
    change = SetProperty("encryption.verify-digest", "always")
    lake.services.alterer.alter(lake.caller(ALICE), name_of(table), [change])
    engine = Engine.begin(lake, name_of(table))
    with pytest.raises(EncryptionPolicyViolation):
        engine.append(engine.file())
    engine.append(engine.file(sha256=DIGEST))
    kept = {metadata.digest for metadata in key_metadata(lake, table)}
    assert kept == {None, FileDigest(1000, DIGEST)}
    assert plans.plan(lake, table).files.num_rows == 2


def test_another_format_begins_an_epoch_and_older_files_are_planned_by_theirs(lake: Lake) -> None:
    table = make(lake, properties={"encryption.mechanism": "envelope"})
    engine = Engine.begin(lake, name_of(table))
    engine.append(engine.file())
    change = SetProperty("write.format.default", "orc")
    lake.services.alterer.alter(lake.caller(ALICE), name_of(table), [change])
    engine = Engine.begin(lake, name_of(table))
    engine.append(engine.file(file_format="orc", sha256=DIGEST))
    planned = plans.plan(lake, table).files
    assert sorted(zip(planned["file_format"].to_pylist(), planned["algorithm"].to_pylist(), strict=True)) == [
        ("ORC", "ORC_AES_CTR"),
        ("PARQUET", "AES_GCM_V1"),
    ]
    epochs = lake.services.loader.load(name_of(table)).governed.epochs
    assert [epoch.spec.file_format for epoch in epochs.entries] == ["parquet", "orc"]
