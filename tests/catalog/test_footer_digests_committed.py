"""New Parquet files with keys of columns: each brings the digest of its footer, and no other file does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from catalog.envelope.file_digests import FileDigest, FooterDigest
from catalog.tables.alter import SetProperty
from policy.errors import EncryptionPolicyViolation
from tests.support import plans
from tests.support.column_keys import COLUMNS, PERSON, alter, make_persons, open_lake_with_keys
from tests.support.lake import ALICE, Lake
from tests.support.table_keys import rewrap
from tests.support.tables import ENCRYPTED, Engine, make, name_of

SHA256 = bytes(range(32))
FOOTER = {"footer_bytes": 70, "footer_sha256": SHA256}
DIGEST = FooterDigest(70, SHA256)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with open_lake_with_keys(tmp_path_factory.mktemp("lake")) as lake:
        yield lake


def planned(lake: Lake, table: Any, *columns: str) -> list[bytes | None]:
    found: list[bytes | None] = plans.plan(lake, table, *columns).files["footer_digest"].to_pylist()
    return found


def test_the_digest_is_kept_and_planned_whatever_is_read(lake: Lake) -> None:
    table = make_persons(lake)
    engine = Engine.begin(lake, name_of(table))
    engine.append(engine.file(**FOOTER))
    assert planned(lake, table) == planned(lake, table, "id") == [DIGEST.to_bytes()]


def test_it_stays_where_keys_are_rewrapped(lake: Lake) -> None:
    table = make_persons(lake)
    engine = Engine.begin(lake, name_of(table))
    engine.append(engine.file(**FOOTER))
    lake.services.key_rotation.rotate(lake.caller(ALICE), name_of(table))
    assert rewrap(lake, name_of(table)) == {"main": 1}
    assert planned(lake, table) == [DIGEST.to_bytes()]


def test_it_stands_beside_the_digest_of_the_whole_file(lake: Lake) -> None:
    table = make_persons(lake)
    alter(lake, table, SetProperty("encryption.verify-digest", "always"))
    engine = Engine.begin(lake, name_of(table))
    engine.append(engine.file(sha256=SHA256, **FOOTER))
    files = plans.plan(lake, table).files
    assert files["digest"].to_pylist() == [FileDigest(1000, SHA256).to_bytes()]
    assert files["footer_digest"].to_pylist() == [DIGEST.to_bytes()]


def refuse(lake: Lake, table: Any, **given: Any) -> None:
    engine = Engine.begin(lake, name_of(table))
    file = engine.file(**given)
    with pytest.raises(EncryptionPolicyViolation) as refused:
        engine.append(file)
    assert (refused.value.rule, refused.value.path) == ("footer-digest", file.path)


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "given",
    [
        {"footer_bytes": None, "footer_sha256": None},
        {"footer_bytes": None},
        {"footer_sha256": None},
        {"footer_sha256": SHA256[:-1]},
        {"footer_sha256": b""},
        {"footer_bytes": 11},
        {"footer_bytes": 1001},
    ],
    ids=str,
)
def test_without_it_or_with_none_that_is_one(lake: Lake, given: dict[str, Any]) -> None:
    refuse(lake, make_persons(lake), **FOOTER | given)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("properties", "given"),
    [
        ({}, {}),
        (ENCRYPTED, {}),
        ({COLUMNS: "pii:ssn", "write.format.default": "orc"}, {"file_format": "orc", "sha256": SHA256}),
    ],
    ids=["plaintext", "whole", "orc"],
)
def test_other_files_with_it(lake: Lake, properties: dict[str, str], given: dict[str, Any]) -> None:
    table = make(lake, schema=PERSON, properties=properties)
    for part in ({"footer_bytes": 70}, {"footer_sha256": SHA256}, FOOTER):
        refuse(lake, table, **given, **part)
    engine = Engine.begin(lake, name_of(table))
    engine.append(engine.file(**given))
    assert planned(lake, table) == [None]
