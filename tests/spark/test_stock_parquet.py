"""Tables that let standard readers in: standard Spark and PyArrow read what Spark and the client without it
wrote, with keys from the KMS endpoint.

The standard clients are those of docs/stock-readers.md. Readers of ours go on believing the manifest alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakewarden
from tests.support.lake import ALICE, BOB, CAROL, policy, standard_policies
from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table, data_files, master_keys
from tests.support.stock_readers import with_pyarrow, with_spark

pytestmark = [pytest.mark.core, pytest.mark.nightly]

STOCK = {"encryption.stock-readers": "true"}
COLUMN_KEYS = {"encryption.columns": "pii:ssn;hr:salary"}
COLUMNS = "id BIGINT, name STRING, ssn STRING, salary BIGINT"
ROWS = "SELECT id, concat('n', id), concat('s', id), id * 10 FROM range(0, 4, 1, 2)"
ALL = ["id", "name", "ssn", "salary"]
LAST = pa.table({"id": [2, 3], "name": ["n2", "n3"], "ssn": ["s2", "s3"], "salary": [20, 30]})
#: Every way of encrypting that a table can ask for.
MODES = {
    "one key": {},
    "column keys": COLUMN_KEYS,
    "CTR": {"encryption.algorithm": "AES_GCM_CTR_V1", "encryption.data-key-length": "16"},
    "plaintext footer": {"encryption.footer": "plaintext"},
    "plaintext footer, column keys, CTR": {
        "encryption.footer": "plaintext",
        "encryption.columns": "pii:ssn;hr:salary",
        "encryption.algorithm": "AES_GCM_CTR_V1",
        "encryption.data-key-length": "24",
    },
    "every column with a key": {"encryption.columns": "pii:id,name,ssn;hr:salary"},
    "a group under the footer's master key": {"encryption.columns": "lakewarden:ssn"},
}


@pytest.fixture(scope="module")
def tables(spark_lake: SparkLake) -> Iterator[dict[str, list[str]]]:
    """The files of a table of each mode, by Spark and by the client without it. Carol has no salaries."""
    master_keys(spark_lake, "pii", "hr")
    spark_lake.rows("CREATE NAMESPACE IF NOT EXISTS lake.stock")
    client = lakewarden.connect(spark_lake.service.url, spark_lake.service.token(ALICE))
    files = {}
    for mode, properties in MODES.items():
        create_table(spark_lake, named(mode), COLUMNS, {**STOCK, **properties})
        spark_lake.rows(f"INSERT INTO {named(mode)} {ROWS} WHERE id < 2")
        client.table(named(mode).removeprefix("lake.")).append(LAST)
        files[mode] = paths(spark_lake, named(mode))
    read = {"database": ["stock"], "table": ["*"], "column": ["id", "name", "ssn"]}
    rules = [
        policy("stock-carol", read, {CAROL: ["select"]}),
        policy("stock-keys", {"key": ["lakewarden", "pii", "hr"]}, {CAROL: ["release"]}),
        policy("stock-bob", {**read, "column": ["*"]}, {BOB: ["select"]}),
    ]
    spark_lake.lake.set_policies([*standard_policies(), *rules])
    yield files
    spark_lake.lake.set_policies(standard_policies())


def named(mode: str) -> str:
    """The table of a mode."""
    return f"lake.stock.m{list(MODES).index(mode)}"


def paths(spark_lake: SparkLake, table: str) -> list[str]:
    """Where a table's files lie."""
    return sorted(file["file_path"].removeprefix("file://") for file in data_files(spark_lake, table))


def expected(columns: list[str]) -> list[list[Any]]:
    rows = [{"id": n, "name": f"n{n}", "ssn": f"s{n}", "salary": n * 10} for n in range(4)]
    return [[row[column] for column in columns] for row in rows]


def arrow_rows(spark_lake: SparkLake, user: str, files: list[str], columns: list[str]) -> list[list[Any]]:
    token = spark_lake.service.token(user)
    first, rows = with_pyarrow(spark_lake.service.url, token, files, columns)
    assert 0 < first.num_rows < 4
    return sorted([list(row.values()) for row in rows.to_pylist()])


def test_stock_pyarrow_gets_the_columns_that_its_user_may_have(
    spark_lake: SparkLake, tables: dict[str, list[str]]
) -> None:
    mine = ["id", "name", "ssn"]
    assert arrow_rows(spark_lake, CAROL, tables["column keys"], mine) == expected(mine)
    with pytest.raises(OSError, match="salary"):
        arrow_rows(spark_lake, CAROL, tables["column keys"], ["salary"])
    # One key opens everything: who may not have a column has none.
    with pytest.raises((OSError, PermissionError), match="carol is not authorized"):
        arrow_rows(spark_lake, CAROL, tables["one key"], ["id"])
    # Bob may select all and release nothing.
    with pytest.raises((OSError, PermissionError), match="bob is not authorized"):
        arrow_rows(spark_lake, BOB, tables["column keys"], ["id"])


@pytest.mark.parametrize("mode", MODES)
def test_every_way_of_encrypting_is_read_by_stock_pyarrow_and_by_us(
    spark_lake: SparkLake, tables: dict[str, list[str]], mode: str
) -> None:
    assert arrow_rows(spark_lake, ALICE, tables[mode], ALL) == expected(ALL)
    assert ours(spark_lake, named(mode)) == expected(ALL)


def test_stock_pyarrow_reads_nested_columns_with_keys(
    spark_lake: SparkLake, tables: dict[str, list[str]]
) -> None:
    person = "person STRUCT<name: STRING, street: STRING>"
    columns = f"id BIGINT, {person}, tags ARRAY<STRING>, props MAP<STRING, STRING>"
    keys = {**STOCK, "encryption.columns": "pii:person.street,tags;hr:props.value"}
    create_table(spark_lake, "lake.stock.nested", columns, keys)
    spark_lake.rows("""INSERT INTO lake.stock.nested SELECT id, named_struct('name', 'n', 'street', 's'),
        array('a', 'b'), map('k', 'v') FROM range(0, 4, 1, 2)""")
    wanted = ["id", "person", "tags", "props"]
    rows = arrow_rows(spark_lake, ALICE, paths(spark_lake, "lake.stock.nested"), wanted)
    assert rows == [[n, {"name": "n", "street": "s"}, ["a", "b"], [("k", "v")]] for n in range(4)]


# -- readers of ours


def ours(spark_lake: SparkLake, table: str) -> list[list[Any]]:
    return [list(row) for row in spark_lake.rows(f"SELECT * FROM {table} ORDER BY id")]


@pytest.fixture
def table(spark_lake: SparkLake, tables: dict[str, list[str]], request: pytest.FixtureRequest) -> str:
    """A table of its own with column keys, whose files a test may change."""
    return made(spark_lake, f"lake.stock.t{abs(hash(request.node.name))}", COLUMN_KEYS)


@pytest.fixture
def whole(spark_lake: SparkLake, tables: dict[str, list[str]], request: pytest.FixtureRequest) -> str:
    """Another one, whose files are encrypted whole."""
    return made(spark_lake, f"lake.stock.w{abs(hash(request.node.name))}", {})


def made(spark_lake: SparkLake, name: str, keys: dict[str, str]) -> str:
    create_table(spark_lake, name, COLUMNS, {**STOCK, **keys})
    spark_lake.rows(f"INSERT INTO {name} {ROWS}")
    return name


def replaced(file: str, old: bytes, new: bytes) -> None:
    """Put other bytes in the place of some, which stand in the file once."""
    data = Path(file).read_bytes()
    assert len(old) == len(new) and data.count(old) == 1
    Path(file).write_bytes(data.replace(old, new))


def test_another_kms_that_a_file_names_is_not_looked_at(spark_lake: SparkLake, whole: str) -> None:
    """What stands before the encrypted footer of a file with one key is authenticated by nothing."""
    for file in paths(spark_lake, whole):
        replaced(file, b'"kmsInstanceURL":"lakewarden"', b'"kmsInstanceURL":"evil.test:"')
        replaced(file, b'"masterKeyID":"lakewarden"', b'"masterKeyID":"laketanden"')
    assert ours(spark_lake, whole) == expected(ALL)


def test_with_column_keys_what_stands_before_the_footer_is_checked_against_its_digest(
    spark_lake: SparkLake, table: str
) -> None:
    replaced(paths(spark_lake, table)[0], b'"masterKeyID":"lakewarden"', b'"masterKeyID":"laketanden"')
    with pytest.raises(Exception, match="footer-digest"):
        ours(spark_lake, table)


def test_standard_clients_of_the_page_go_where_they_were_told(spark_lake: SparkLake, table: str) -> None:
    for file in paths(spark_lake, table):
        replaced(file, b'"kmsInstanceURL":"lakewarden"', b'"kmsInstanceURL":"evil.test:"')
    assert arrow_rows(spark_lake, ALICE, paths(spark_lake, table), ALL) == expected(ALL)


def test_keys_that_a_file_says_it_has_are_not_used(spark_lake: SparkLake, whole: str) -> None:
    for file in paths(spark_lake, whole):
        data = Path(file).read_bytes()
        at = data.rindex(b'"wrappedDEK":"') + len(b'"wrappedDEK":"')
        Path(file).write_bytes(data[:at] + b"AAAA" + data[at + 4 :])
    assert ours(spark_lake, whole) == expected(ALL)
    with pytest.raises(OSError):
        arrow_rows(spark_lake, ALICE, paths(spark_lake, whole), ALL)


def test_a_stored_prefix_that_is_not_the_files_own_is_refused(spark_lake: SparkLake, table: str) -> None:
    file = paths(spark_lake, table)[0]
    digits = Path(file).stem.rpartition("-")[2]
    replaced(file, bytes.fromhex(digits), bytes.fromhex(digits)[:-1] + b"?")
    with pytest.raises(Exception, match="DecryptionRefused"):
        ours(spark_lake, table)


def test_swapped_files_are_refused_though_each_says_how_to_open_it(spark_lake: SparkLake, table: str) -> None:
    first, second = paths(spark_lake, table)
    one, other = Path(first).read_bytes(), Path(second).read_bytes()
    Path(first).write_bytes(other)
    Path(second).write_bytes(one)
    with pytest.raises(Exception, match="DecryptionRefused"):
        ours(spark_lake, table)


# -- standard Spark


@pytest.mark.slow
def test_standard_spark_reads_with_keys_from_the_kms_endpoint(
    spark_lake: SparkLake, tables: dict[str, list[str]], tmp_path: Path
) -> None:
    token = spark_lake.service.token
    mine = ["id", "name", "ssn"]
    keyed = tables["column keys"]
    *whole, some, salaries, denied, released = with_spark(
        tmp_path,
        spark_lake.service.url,
        [
            *((token(ALICE), tables[mode], ALL) for mode in MODES),
            (token(CAROL), keyed, mine),
            (token(CAROL), keyed, ["salary"]),
            (token(CAROL), tables["one key"], ["id"]),
            (token(BOB), keyed, ["id"]),
        ],
    )
    assert dict(zip(MODES, whole, strict=True)) == dict.fromkeys(MODES, expected(ALL))
    assert some == expected(mine)
    assert "salary" in salaries
    assert "carol is not authorized" in denied
    assert "bob is not authorized" in released
