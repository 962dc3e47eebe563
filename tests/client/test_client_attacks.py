"""Files that an attacker put into a table: a client without Spark refuses what Spark refuses.

An attacker who can write the directory of a table has no keys. They swap, cut, edit and plant files. The
catalog's own checks stand before these; here the client is handed plans as if nobody had checked.
"""

from __future__ import annotations

import dataclasses
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

import lakewarden
from catalog.client import files
from catalog.client.encrypting import KeyedWriter
from catalog.client.errors import DataFileDamaged, DataFileMissing
from catalog.client.plan import Plan, PlannedFile
from catalog.client.scan import Scan
from policy.errors import DecryptionRefused, LakewardenError, LocationNotAllowed
from tests.support.tables import ENCRYPTED

Make = Callable[..., str]

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "ssn", StringType()),
)
ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", None], "ssn": ["x", "y", "z"]})
MODES: dict[str, dict[str, str]] = {
    "whole": ENCRYPTED,
    "signed": {"encryption.footer": "plaintext"},
    "keyed": {"encryption.columns": "pii:ssn"},
    "keyed-signed": {"encryption.columns": "pii:ssn", "encryption.footer": "plaintext"},
}
UNCOMPRESSED = {"write.parquet.compression-codec": "uncompressed"}


@pytest.fixture(scope="module")
def tables() -> dict[Any, tuple[Scan, Path, bytes]]:
    """The tables of this module, each with its file as it was written."""
    return {}


@pytest.fixture
def table(
    make: Make, alice: lakewarden.Connection, tables: dict[Any, tuple[Scan, Path, bytes]]
) -> Iterator[Callable[[dict[str, str]], Scan]]:
    """Gives a table with one file, another one each time in a test, and returns its scan.

    After the test the file is as it was written, for the next test.
    """
    used: list[Any] = []

    def made(properties: dict[str, str]) -> Scan:
        key = (len(used), *sorted(properties.items()))
        used.append(key)
        if key not in tables:
            found = alice.table(make(SCHEMA, properties=properties | UNCOMPRESSED))
            found.append(ROWS)
            path = planned(found.scan())[2]
            tables[key] = (found.scan(), path, path.read_bytes())
        return tables[key][0]

    yield made
    for _, path, good in map(tables.__getitem__, used):
        path.unlink(missing_ok=True)
        path.write_bytes(good)


def planned(scan: Scan) -> tuple[Plan, PlannedFile, Path]:
    """A plan, its one file, and where that lies."""
    plan = scan._plan()
    (file,) = plan.files
    return plan, file, Path(file.path.removeprefix("file://"))


def read(scan: Scan, plan: Plan, file: PlannedFile) -> pa.Table:
    """The rows of a planned file."""
    wanted = plan.schema.as_struct().fields
    with files.opened(plan, file, scan.storage, wanted) as source:
        return pa.concat_tables(rows for _, rows in source.row_groups(wanted))


def resized(file: PlannedFile, path: Path) -> PlannedFile:
    """The file as if the table knew its present size, and nothing of its footer."""
    return dataclasses.replace(file, size=path.stat().st_size, footer_digest=None)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", MODES)
def test_the_file_as_it_was_written_is_read(table: Any, mode: str) -> None:
    scan = table(MODES[mode])
    plan, file, _ = planned(scan)
    assert read(scan, plan, file).equals(ROWS)


@pytest.mark.parametrize("mode", MODES)
def test_another_file_of_the_same_table_in_its_place(
    make: Make, alice: lakewarden.Connection, mode: str
) -> None:
    found = alice.table(make(SCHEMA, properties=MODES[mode]))
    found.append(ROWS)
    found.append(ROWS)
    one, other = (Path(each.path.removeprefix("file://")) for each in found.scan()._plan().files)
    shutil.copyfile(other, one)
    with pytest.raises(DecryptionRefused):
        found.scan().to_arrow()


@pytest.mark.parametrize("mode", MODES)
def test_a_file_of_another_table_with_its_keys(table: Any, mode: str) -> None:
    scan = table(MODES[mode])
    plan, file, path = planned(scan)
    _, foreign, foreign_path = planned(table(MODES[mode]))
    shutil.copyfile(foreign_path, path)
    with pytest.raises(DecryptionRefused, match="rule=data-key"):
        read(scan, plan, dataclasses.replace(foreign, location=file.location, size=path.stat().st_size))


@pytest.mark.parametrize("mode", MODES)
def test_a_file_under_another_name(table: Any, mode: str) -> None:
    scan = table(MODES[mode])
    plan, file, path = planned(scan)
    moved = path.with_name(path.name.replace(path.stem[-32:], "0" * 32))
    shutil.copyfile(path, moved)
    with pytest.raises(DecryptionRefused):
        read(scan, plan, dataclasses.replace(file, location=f"file://{moved}"))


@pytest.mark.parametrize("mode", MODES)
def test_a_file_in_plaintext(table: Any, mode: str) -> None:
    scan = table(MODES[mode])
    plan, file, path = planned(scan)
    pq.write_table(with_ids(ROWS), path)
    with pytest.raises(DecryptionRefused):
        read(scan, plan, resized(file, path))


def test_a_file_that_is_encrypted_where_the_table_is_not(table: Any) -> None:
    scan = table({})
    plan, file, path = planned(scan)
    shutil.copyfile(planned(table(ENCRYPTED))[2], path)
    with pytest.raises(DataFileDamaged, match="encrypted-file"):
        read(scan, plan, resized(file, path))


@pytest.mark.parametrize(("planted", "mode"), [("keyed", "whole"), ("whole", "keyed"), ("signed", "whole")])
def test_a_file_that_is_encrypted_otherwise_than_its_epoch_says(table: Any, planted: str, mode: str) -> None:
    """The keys are right; how they were used is not."""
    scan = table(MODES[planted])
    plan, file, _ = planned(scan)
    _, like, _ = planned(table(MODES[mode]))
    keys = file.keys if mode == "keyed" else file.keys[:1]
    claimed = dataclasses.replace(
        file, footer=like.footer, column_keys=like.column_keys, keys=keys, footer_digest=None
    )
    with pytest.raises(DecryptionRefused):
        read(scan, plan, claimed)


@pytest.mark.parametrize(("mode", "rule"), [("keyed", "column-key"), ("whole", "algorithm")])
def test_a_column_in_plaintext_whose_key_was_released(table: Any, mode: str, rule: str) -> None:
    """The footer is the right one, under the right key."""
    scan = table(MODES[mode])
    plan, file, path = planned(scan)
    location = plan.location(file)
    keys = plan.keys(file, location)
    assert keys is not None
    bare = dataclasses.replace(keys, columns={})
    path.unlink()
    with scan.storage.open_output(location) as stream:
        writer = KeyedWriter(stream, with_ids(ROWS).schema, bare, {})
        writer.write_table(with_ids(ROWS), 100)
        writer.close()
    with pytest.raises(DecryptionRefused, match=f"rule={rule}"):
        read(scan, plan, resized(file, path))


def test_a_column_under_a_key_of_which_the_plan_says_nothing(table: Any) -> None:
    scan = table(MODES["keyed"])
    plan, file, _ = planned(scan)
    with pytest.raises(DecryptionRefused, match="rule=column-key"):
        read(scan, plan, dataclasses.replace(file, keys=file.keys[:1]))


@pytest.mark.parametrize("mode", MODES)
def test_no_flipped_bit_gives_other_rows(table: Any, mode: str) -> None:
    scan = table(MODES[mode])
    plan, file, path = planned(scan)
    good = path.read_bytes()
    changed = 0
    for at in range(0, len(good), 29):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        try:
            rows = read(scan, plan, file)
        except DecryptionRefused:
            changed += 1
        else:
            clear = mode.startswith("keyed")
            assert rows["ssn"].equals(ROWS["ssn"]) and (clear or rows.equals(ROWS))
    assert changed > len(good) // 29 * 0.5


@pytest.mark.parametrize("mode", ["signed", "keyed-signed"])
def test_a_signed_footer_that_was_changed(table: Any, mode: str) -> None:
    scan = table(MODES[mode])
    plan, file, path = planned(scan)
    good = path.read_bytes()
    start = len(good) - 8 - int.from_bytes(good[-8:-4], "little")
    for at in range(start, len(good) - 8, 11):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        with pytest.raises(DecryptionRefused):
            read(scan, plan, file)
    signed = good[: len(good) - 8 - 28]
    path.write_bytes(signed + struct.pack("<I4s", len(signed) - start, b"PAR1"))
    with pytest.raises(DecryptionRefused, match="footer-signature"):
        read(scan, plan, resized(file, path))


@pytest.mark.parametrize("mode", ["whole", "keyed"])
def test_no_flipped_bit_passes_where_digests_are_verified(table: Any, mode: str) -> None:
    """Neither under CTR, whose pages are not authenticated, nor in columns that are in plaintext."""
    properties = {"encryption.algorithm": "AES_GCM_CTR_V1", "encryption.verify-digest": "always"}
    scan = table(MODES[mode] | properties)
    plan, file, path = planned(scan)
    assert read(scan, plan, file).equals(ROWS)
    good = path.read_bytes()
    for at in range(0, len(good), 97):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        with pytest.raises(DecryptionRefused, match="file-digest"):
            read(scan, plan, file)


@pytest.mark.parametrize("mode", ["plaintext", *MODES])
def test_a_file_that_was_cut(table: Any, mode: str) -> None:
    scan = table(MODES.get(mode, {}))
    plan, file, path = planned(scan)
    good = path.read_bytes()
    refusal = DataFileDamaged if mode == "plaintext" else DecryptionRefused
    for length in (0, 3, 4, 11, 12, len(good) // 2, len(good) - 9, len(good) - 1):
        path.write_bytes(good[:length])
        for claimed in (file, resized(file, path)):
            with pytest.raises(refusal):
                read(scan, plan, claimed)


@pytest.mark.parametrize("tail", [b"", b"PAR1", b"PARE", b"\xff\xff\xff\xffPARE", b"\x08\x00\x00\x00PARE"])
def test_rubbish(table: Any, tail: bytes) -> None:
    scan = table(ENCRYPTED)
    plan, file, path = planned(scan)
    path.write_bytes(bytes(range(256)) * 8 + tail)
    with pytest.raises(DecryptionRefused):
        read(scan, plan, resized(file, path))


def test_a_file_that_is_not_there(table: Any) -> None:
    scan = table(ENCRYPTED)
    planned(scan)[2].unlink()
    with pytest.raises(DataFileMissing, match="does not exist"):
        scan.to_arrow()


def test_a_link_in_its_place(table: Any) -> None:
    scan = table(ENCRYPTED)
    _, _, path = planned(scan)
    path.rename(path.with_suffix(".aside"))
    path.symlink_to(path.with_suffix(".aside"))
    with pytest.raises(LocationNotAllowed, match="no-links"):
        scan.to_arrow()


def test_a_planned_path_outside_the_allowed_list_is_not_opened(table: Any, tmp_path: Path) -> None:
    scan = table({})
    plan, file, path = planned(scan)
    outside = tmp_path / path.name
    shutil.copyfile(path, outside)
    with pytest.raises(LocationNotAllowed, match="allowed-paths"):
        read(scan, plan, dataclasses.replace(file, location=f"file://{outside}"))


@pytest.mark.parametrize("path", ["file:///a/../b.parquet", "relative.parquet", "file:///a%2f..%2fb.parquet"])
def test_a_planned_path_that_is_ambiguous_is_not_opened(table: Any, path: str) -> None:
    scan = table({})
    plan, file, _ = planned(scan)
    with pytest.raises(LocationNotAllowed):
        read(scan, plan, dataclasses.replace(file, location=path))


@pytest.mark.parametrize(
    "ids", [{"id": 1, "name": 1, "ssn": 3}, {"id": 1, "name": 2}], ids=["an id twice", "no id"]
)
def test_columns_that_could_be_mistaken_for_one_another(table: Any, ids: dict[str, int]) -> None:
    scan = table({})
    plan, file, path = planned(scan)
    pq.write_table(with_ids(ROWS, ids), path)
    with pytest.raises(DataFileDamaged, match="field-id"):
        read(scan, plan, resized(file, path))


def test_a_column_of_another_type(table: Any) -> None:
    scan = table({})
    plan, file, path = planned(scan)
    pq.write_table(with_ids(ROWS.set_column(0, "id", ROWS["name"])), path)
    with pytest.raises(DataFileDamaged, match="column-type"):
        read(scan, plan, resized(file, path))


def test_a_refusal_names_table_path_and_rule_and_no_key(table: Any) -> None:
    scan = table(ENCRYPTED)
    plan, file, path = planned(scan)
    path.write_bytes(path.read_bytes()[:-20] + bytes(20))
    with pytest.raises(LakewardenError) as caught:
        scan.to_arrow()
    assert (caught.value.table, caught.value.path) == (plan.table, file.path)
    assert caught.value.rule and caught.value.hint
    keys = plan.keys(file, plan.location(file))
    assert keys is not None
    for shown in (repr(plan), repr(file), repr(keys), repr(scan), str(caught.value)):
        assert keys.footer.reveal().hex() not in shown
        assert repr(keys.footer.reveal()) not in shown


def with_ids(rows: pa.Table, ids: dict[str, int] | None = None) -> pa.Table:
    """The rows with field ids in the schema."""
    known = {"id": 1, "name": 2, "ssn": 3} if ids is None else ids
    fields = [
        each.with_metadata({"PARQUET:field_id": str(known[each.name])} if each.name in known else {})
        for each in rows.schema
    ]
    return rows.cast(pa.schema(fields))
