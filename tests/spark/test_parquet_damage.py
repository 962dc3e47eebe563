"""A part of an encrypted Parquet file that is damaged, or in the place of another, is refused when read.

A part (a "module" of the format) is a length of 4 bytes, a nonce, ciphertext and a tag; page headers, pages,
dictionaries, indexes and bloom filters are parts that follow one another.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row

from tests.support.reads import refused
from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table, data_files, local_path

pytestmark = pytest.mark.core

Part = tuple[int, int]

PROPERTIES = {
    "encryption.mechanism": "envelope",
    "write.parquet.compression-codec": "uncompressed",
    "write.parquet.page-row-limit": "100",
    "write.parquet.row-group-size-bytes": "5000",
    "write.parquet.bloom-filter-enabled.column.name": "true",
    "write.parquet.bloom-filter-max-bytes": "1024",
}
ROWS = (
    "SELECT id, format_string('n%04d', 2 * id) AS name, concat('c', id % 4) AS code FROM range(0, 500, 1, 1)"
)
#: Without a shuffle, so that one DataFrame reads the files each time that it runs.
ALL = "SELECT id, name, code FROM {}"
BY_INDEX = "SELECT id, name, code FROM {} WHERE id BETWEEN 20 AND 30"
BY_BLOOM = "SELECT name FROM {} WHERE name = 'n0021'"
#: In each column of a row group three pages with their headers; the last column has a dictionary too.
GROUPS, COLUMNS, PER_COLUMN, PER_GROUP = 3, 3, 6, 20
#: What is around the ciphertext of a part: its length, a nonce and a tag.
AROUND = 4 + 12 + 16


@pytest.fixture(scope="module")
def table(spark_lake: SparkLake) -> str:
    """A table of two files with the same rows, encrypted whole."""
    name = f"{spark_lake.namespace()}.t"
    create_table(spark_lake, name, "id BIGINT, name STRING, code STRING", PROPERTIES)
    for _ in range(2):
        spark_lake.rows(f"INSERT INTO {name} {ROWS}")
    return name


@pytest.fixture(scope="module")
def one(spark_lake: SparkLake) -> tuple[str, Path]:
    """A table of one such file."""
    name = f"{spark_lake.namespace()}.t"
    create_table(spark_lake, name, "id BIGINT, name STRING, code STRING", PROPERTIES)
    spark_lake.rows(f"INSERT INTO {name} {ROWS}")
    (file,) = data_files(spark_lake, name)
    return name, local_path(file)


def parts(data: bytes) -> list[Part]:
    """Where each part before the footer begins and ends."""
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    found, at = [], 4
    while at < end:
        after = at + 4 + int.from_bytes(data[at : at + 4], "little")
        found.append((at, after))
        at = after
    assert at == end
    return found


class Damage:
    """A file that is damaged again and again, and restored in the end."""

    def __init__(self, spark_lake: SparkLake, table: str, path: Path) -> None:
        self._spark_lake, self._table, self._path = spark_lake, table, path
        self.data = path.read_bytes()
        self.parts = parts(self.data)
        self._true: dict[str, tuple[DataFrame, list[Row]]] = {}

    def noticed(self, data: bytes, statement: str) -> bool:
        """Whether a query is refused with other bytes in the file; else its answer has to be the true one."""
        if statement not in self._true:
            asked = self._spark_lake.session().sql(statement.format(self._table))
            self._true[statement] = asked, sorted(asked.collect())
        frame, rows = self._true[statement]
        self._path.write_bytes(data)
        try:
            assert sorted(frame.collect()) == rows
        except PySparkException as refusal:
            assert refusal.getCondition() in ("LAKEWARDEN.DECRYPTION_REFUSED", "LAKEWARDEN.DATA_FILE_DAMAGED")
            return True
        finally:
            self._path.write_bytes(self.data)
        return False

    def flipped(self, *places: int) -> bytes:
        """The bytes with one bit changed in each of some places."""
        changed = bytearray(self.data)
        for at in places:
            changed[at] ^= 1
        return bytes(changed)

    def put(self, part: Part, data: bytes) -> bytes:
        """The bytes with others in the place of a part."""
        return self.data[: part[0]] + data + self.data[part[1] :]

    def swapped(self, one: Part, other: Part) -> bytes:
        """The bytes with two stretches exchanged, the first one before the other."""
        first, second = self.data[slice(*one)], self.data[slice(*other)]
        between = self.data[one[1] : other[0]]
        return self.data[: one[0]] + second + between + first + self.data[other[1] :]

    @property
    def pages(self) -> list[Part]:
        """Pages, dictionaries and their headers."""
        return self.parts[: -2 * GROUPS * COLUMNS - 2 * GROUPS]

    @property
    def indexes(self) -> list[Part]:
        """Column indexes, then offset indexes."""
        return self.parts[len(self.pages) : -2 * GROUPS]

    @property
    def blooms(self) -> list[Part]:
        """Of each row group the header of the filter and the filter."""
        return self.parts[-2 * GROUPS :]

    @property
    def footer(self) -> Part:
        """The encrypted part of the footer, which the algorithm stands before."""
        end = len(self.data) - 8
        for start in range(self.parts[-1][1], end):
            if start + 4 + int.from_bytes(self.data[start : start + 4], "little") == end:
                return start, end
        raise AssertionError("the file has no encrypted footer")


@pytest.fixture(scope="module")
def damage(spark_lake: SparkLake, one: tuple[str, Path]) -> Damage:
    return Damage(spark_lake, *one)


def places(part: Part, turn: int) -> int:
    """A place in a part: in its nonce, ciphertext or tag."""
    return (part[0] + 4, part[0] + 16, part[1] - 1)[turn % 3]


def test_the_file_has_every_kind_of_part(damage: Damage) -> None:
    assert len(damage.indexes) == 2 * GROUPS * COLUMNS
    assert len(damage.blooms) == 2 * GROUPS
    assert len(damage.pages) > 2 * PER_GROUP
    lengths = [end - start for start, end in damage.pages]
    assert lengths[:PER_GROUP] == lengths[PER_GROUP : 2 * PER_GROUP]


@pytest.mark.nightly
def test_no_part_is_filled_up_with_bytes_that_mean_nothing(damage: Damage) -> None:
    """Parquet's own writer encrypts structures together with the rest of a buffer of 100, 200, 400… bytes."""
    structures = damage.pages[::2] + damage.indexes + damage.blooms[::2] + [damage.footer]
    lengths = [end - start - AROUND for start, end in structures]
    assert min(lengths) < 20 and max(lengths) > 400
    assert not set(lengths) & {100 << doubled for doubled in range(12)}


@pytest.mark.nightly
def test_the_bits_of_a_bloom_filter_are_all_kept(spark_lake: SparkLake, namespace: str) -> None:
    """They are no structure, whatever they look like: those of a column without values are zeros."""
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT, name STRING, code STRING", PROPERTIES)
    spark_lake.rows(f"INSERT INTO {table} SELECT id, NULL, NULL FROM range(0, 100, 1, 1)")
    (file,) = data_files(spark_lake, table)
    start, end = parts(local_path(file).read_bytes())[-1]
    assert end - start - AROUND == 1024
    assert spark_lake.rows(f"SELECT count(*) FROM {table} WHERE name = 'n'") == [(0,)]


def test_a_flipped_bit_in_any_page_or_header_is_refused(damage: Damage) -> None:
    for turn, part in enumerate(damage.pages[:PER_GROUP]):
        assert damage.noticed(damage.flipped(places(part, turn)), ALL), part


@pytest.mark.nightly
def test_a_flipped_bit_in_an_index_is_refused_where_the_index_is_used(damage: Damage) -> None:
    """So the indexes of encrypted columns are used; those of row groups that are left out are not read."""
    column, offset = damage.indexes[0], damage.indexes[GROUPS * COLUMNS]
    for turn in range(3):
        for part in (column, offset):
            assert damage.noticed(damage.flipped(places(part, turn)), BY_INDEX)
            assert not damage.noticed(damage.flipped(places(part, turn)), ALL)


@pytest.mark.nightly
def test_bloom_filters_of_encrypted_columns_are_used_and_a_damaged_one_leaves_out_nothing(
    damage: Damage,
) -> None:
    """It keeps a row group from being read, so that damage in a page is not seen; without it, it is."""
    page = places(damage.pages[PER_COLUMN + 1], 1)
    assert not damage.noticed(damage.flipped(page), BY_BLOOM)
    for part in damage.blooms[:2]:
        for turn in range(3):
            assert damage.noticed(damage.flipped(page, places(part, turn)), BY_BLOOM)
            assert not damage.noticed(damage.flipped(places(part, turn)), BY_BLOOM)


def test_a_length_that_is_no_longer_true_gives_no_wrong_row(damage: Damage) -> None:
    for part in (damage.pages[1], damage.indexes[0], damage.blooms[0]):
        for byte in (0, 3):
            for statement in (BY_INDEX, BY_BLOOM):
                damage.noticed(damage.flipped(part[0] + byte), statement)
    assert damage.noticed(damage.flipped(damage.pages[0][0]), ALL)


def test_parts_that_changed_places_are_refused(damage: Damage) -> None:
    """Pages of a column, of two columns, of two row groups; headers, too."""
    by_length: dict[int, list[Part]] = {}
    for part in damage.pages[: 2 * PER_GROUP]:
        by_length.setdefault(part[1] - part[0], []).append(part)
    pairs = [pair for alike in by_length.values() for pair in pairwise(alike)]
    assert len(pairs) > 8
    for one, other in pairs[::3]:
        assert damage.noticed(damage.swapped(one, other), ALL), (one, other)


@pytest.mark.nightly
def test_row_groups_and_columns_that_changed_places_are_refused(damage: Damage) -> None:
    def stretch(first: int, count: int) -> Part:
        return damage.pages[first][0], damage.pages[first + count - 1][1]

    assert damage.noticed(damage.swapped(stretch(0, PER_GROUP), stretch(PER_GROUP, PER_GROUP)), ALL)
    for column in range(0, PER_GROUP, PER_COLUMN):
        pair = stretch(column, PER_COLUMN), stretch(PER_GROUP + column, PER_COLUMN)
        assert damage.noticed(damage.swapped(*pair), ALL)


@pytest.mark.nightly
def test_parts_of_another_file_are_refused_in_the_very_same_place(spark_lake: SparkLake, table: str) -> None:
    """The other file has the same rows, keys of its own, and lies in the same table."""
    first, second = (local_path(file) for file in data_files(spark_lake, table))
    damage, foreign = Damage(spark_lake, table, first), second.read_bytes()
    assert damage.parts == parts(foreign)
    for part in damage.pages[::9]:
        assert damage.noticed(damage.put(part, foreign[slice(*part)]), ALL)
    for part in (damage.indexes[0], damage.indexes[GROUPS * COLUMNS]):
        assert damage.noticed(damage.put(part, foreign[slice(*part)]), BY_INDEX)
    footer = damage.parts[-1][1]
    assert damage.noticed(damage.data[:footer] + foreign[footer:], ALL)
    assert damage.noticed(foreign, ALL)


@pytest.mark.nightly
def test_a_truncated_file_and_one_that_lost_its_middle_are_refused(damage: Damage) -> None:
    for part in (damage.pages[3], damage.indexes[0], damage.blooms[0]):
        assert damage.noticed(damage.data[: part[0]], ALL)
        shorter = damage.data[: part[0]] + damage.data[part[1] :]
        assert damage.noticed(bytes(len(damage.data) - len(shorter)) + shorter, ALL)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("digest", "rule"), [("never", None), ("first-read", "file-digest"), ("always", "file-digest")]
)
def test_a_flipped_bit_in_a_page_without_a_tag_is_seen_by_the_digest_alone(
    spark_lake: SparkLake, namespace: str, digest: str, rule: str | None
) -> None:
    """AES_GCM_CTR_V1: headers have tags, pages do not. What is changed in one changes a value."""
    table = f"{namespace}.t"
    properties = {"encryption.algorithm": "AES_GCM_CTR_V1", "encryption.verify-digest": digest}
    create_table(
        spark_lake, table, "id BIGINT", properties | {"write.parquet.compression-codec": "uncompressed"}
    )
    spark_lake.rows(f"INSERT INTO {table} SELECT id * 7919 FROM range(0, 100, 1, 1)")
    (file,) = data_files(spark_lake, table)
    path, statement = local_path(file), f"SELECT sum(id) FROM {table}"
    data = bytearray(path.read_bytes())
    header, page = parts(bytes(data))[:2]
    data[page[1] - 8] ^= 1
    path.write_bytes(data)
    if rule is None:
        assert spark_lake.rows(statement) == [(sum(range(100)) * 7919 - 1,)]
    else:
        refused(spark_lake, statement, "DECRYPTION_REFUSED", rule)
    data[page[1] - 8] ^= 1
    data[header[1] - 1] ^= 1
    path.write_bytes(data)
    refused(spark_lake, statement, "DECRYPTION_REFUSED", rule or "file-authentic")
    data[header[1] - 1] ^= 1
    path.write_bytes(data)
    assert spark_lake.rows(statement) == [(sum(range(100)) * 7919,)]
