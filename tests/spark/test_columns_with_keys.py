"""Columns under keys of their own: found by field id, read with the keys that the user may have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Row

from catalog.crypto.secret import SecretBytes
from catalog.envelope.data_keys import new_dek
from catalog.envelope.file_ids import FileIdentity, parquet_aad_prefix
from tests.support.lake import ALICE, CAROL
from tests.support.reads import denied, name_of, refused
from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table, data_files, local_path, master_keys, planned_files
from tests.support.tables import ENCRYPTED, Engine, NewFile, footer_of

pytestmark = pytest.mark.core

COLUMNS = """id BIGINT, open STRING, ssn STRING, email STRING, person STRUCT<name: STRING, street: STRING>,
             tags ARRAY<STRING>, props MAP<STRING, STRING>,
             cards ARRAY<STRUCT<bank: STRING, number: STRING>>"""
KEYS = {
    "encryption.columns": "pii:ssn,email,person.street,tags;hr:props.value,cards.element.number",
    "write.parquet.compression-codec": "uncompressed",
}
ROWS = """SELECT id, 'clear-open', concat('needle-ssn', id), 'needle-email',
    named_struct('name', 'clear-name', 'street', 'needle-street'), array('needle-tag', 'x'),
    map('clear-key', 'needle-value'), array(named_struct('bank', 'clear-bank', 'number', 'needle-card'))
    FROM range(0, 10, 1, 2)"""
HIDDEN = (b"needle-ssn", b"needle-email", b"needle-street", b"needle-tag", b"needle-value", b"needle-card")
#: Py4J hands over as a long what does not fit into an int.
LARGE = 1 << 40
CLEAR = (b"clear-open", b"clear-name", b"clear-key", b"clear-bank")


@pytest.fixture(scope="module")
def database(spark_lake: SparkLake) -> str:
    """The database of which Carol may read all, with master keys for columns."""
    master_keys(spark_lake, "pii", "hr")
    spark_lake.rows("CREATE NAMESPACE IF NOT EXISTS lake.db")
    return "lake.db"


@pytest.fixture(scope="module")
def table(spark_lake: SparkLake, database: str) -> str:
    name = f"{database}.columns_with_keys"
    create_table(spark_lake, name, COLUMNS, KEYS)
    spark_lake.rows(f"INSERT INTO {name} {ROWS}")
    return name


def _by_id(spark_lake: SparkLake, query: str) -> list[Row]:
    """What a query answers, which need not sort its rows."""
    return sorted(spark_lake.rows(query), key=lambda row: int(row["id"]))


# -- honest files


def test_rows_come_back(spark_lake: SparkLake, table: str) -> None:
    rows = _by_id(spark_lake, f"SELECT * FROM {table}")
    assert [row["ssn"] for row in rows] == [f"needle-ssn{number}" for number in range(10)]
    one = rows[3].asDict(recursive=True)
    assert one["person"] == {"name": "clear-name", "street": "needle-street"}
    assert one["tags"] == ["needle-tag", "x"] and one["props"] == {"clear-key": "needle-value"}
    assert one["cards"] == [{"bank": "clear-bank", "number": "needle-card"}]


@pytest.mark.nightly
def test_columns_with_keys_are_ciphertext_and_the_others_are_not(spark_lake: SparkLake, table: str) -> None:
    for file in data_files(spark_lake, table):
        data = local_path(file).read_bytes()
        assert (data[:4], data[-4:]) == (b"PARE", b"PARE") and b"spark_schema" not in data
        assert [each for each in HIDDEN if each in data] == []
        assert [each for each in CLEAR if each not in data] == []


@pytest.mark.nightly
def test_statistics_are_kept_of_columns_in_plaintext_alone(spark_lake: SparkLake, table: str) -> None:
    loaded = spark_lake.lake.services.loader.load(name_of(table))
    schema, epoch = loaded.metadata.schema(), loaded.governed.epochs.current
    hidden = {field_id for group in epoch.columns for field_id in group.field_ids}
    for file in data_files(spark_lake, table):
        for kind in ("column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds"):
            known = dict(file[kind])
            assert known and hidden.isdisjoint(known), kind
        assert dict(file["lower_bounds"])[schema.find_field("open").field_id] == b"clear-open"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("ssn = 'needle-ssn7'", [7]),
        ("person.street = 'needle-street' AND id < 2", [0, 1]),
        ("open = 'clear-open' AND id = 4", [4]),
        ("email IS NULL", []),
    ],
)
def test_filters_find_rows_by_columns_with_keys_and_without(
    spark_lake: SparkLake, table: str, condition: str, found: list[int]
) -> None:
    assert [row[0] for row in _by_id(spark_lake, f"SELECT id FROM {table} WHERE {condition}")] == found


@pytest.mark.nightly
def test_columns_in_plaintext_partition_a_table_and_prune_files(spark_lake: SparkLake, database: str) -> None:
    name = f"{database}.columns_and_parts"
    keys = {"encryption.columns": "pii:ssn"}
    create_table(spark_lake, name, "id BIGINT, day STRING, ssn STRING", keys, "day")
    spark_lake.rows(f"INSERT INTO {name} VALUES (1, 'a', 's1'), (2, 'b', 's2'), (20, 'b', 's20')")
    assert sorted(spark_lake.rows(f"SELECT ssn FROM {name} WHERE day = 'b'")) == [("s2",), ("s20",)]
    assert planned_files(spark_lake, name, filter={"type": "eq", "term": "day", "value": "b"}) == 1
    assert planned_files(spark_lake, name, filter={"type": "gt", "term": "id", "value": 50}) == 0
    with pytest.raises(AnalysisException, match="encrypted-source"):
        create_table(spark_lake, f"{name}_2", "id BIGINT, ssn STRING", keys, "ssn")


@pytest.mark.nightly
def test_a_table_made_with_its_rows_has_column_keys(spark_lake: SparkLake, database: str) -> None:
    name = f"{database}.columns_at_once"
    spark_lake.rows(
        f"CREATE TABLE {name} TBLPROPERTIES ('encryption.columns' = 'pii:ssn',"
        "'write.parquet.compression-codec' = 'uncompressed')"
        " AS SELECT id, concat('needle-', id) AS ssn, 'clear' AS open FROM range(3)"
    )
    assert len(spark_lake.rows(f"SELECT * FROM {name} WHERE ssn LIKE 'needle-%'")) == 3
    for file in data_files(spark_lake, name):
        data = local_path(file).read_bytes()
        assert b"needle-" not in data and b"clear" in data


@pytest.mark.nightly
def test_files_stay_readable_when_keys_and_names_of_columns_change(
    spark_lake: SparkLake, database: str
) -> None:
    name = f"{database}.columns_that_change"
    create_table(spark_lake, name, "id BIGINT, ssn STRING, email STRING", ENCRYPTED)
    steps = [
        f"ALTER TABLE {name} SET TBLPROPERTIES ('encryption.columns' = 'pii:ssn')",
        f"ALTER TABLE {name} RENAME COLUMN ssn TO social",
        f"ALTER TABLE {name} SET TBLPROPERTIES ('encryption.columns' = 'hr:social;pii:email')",
        f"ALTER TABLE {name} UNSET TBLPROPERTIES ('encryption.columns')",
    ]
    spark_lake.rows(f"INSERT INTO {name} VALUES (0, 's0', 'e0')")
    for number, step in enumerate(steps, 1):
        spark_lake.rows(step)
        spark_lake.rows(f"INSERT INTO {name} VALUES ({number}, 's{number}', 'e{number}')")
    rows = _by_id(spark_lake, f"SELECT id, social, email FROM {name}")
    assert rows == [(number, f"s{number}", f"e{number}") for number in range(5)]


@pytest.mark.nightly
def test_a_struct_of_which_a_file_has_no_wanted_field_is_null_where_it_was(
    spark_lake: SparkLake, database: str
) -> None:
    """Spark reads another leaf of the struct to see that, which must not be one without its key."""
    name = f"{database}.columns_of_structs"
    keys = {"encryption.columns": "pii:s.x,t.x,l.element.p"}
    create_table(
        spark_lake,
        name,
        "id INT, s STRUCT<x: INT, y: STRING>, t STRUCT<x: INT>, l ARRAY<STRUCT<p: INT, q: STRING>>",
        keys,
    )
    spark_lake.rows(
        f"""INSERT INTO {name} VALUES
            (1, named_struct('x', 1, 'y', 'one'), named_struct('x', 1),
             array(named_struct('p', 1, 'q', 'a'))),
            (2, NULL, NULL, NULL)"""
    )
    for column in ("s.z STRING", "t.z STRING", "l.element.z STRING"):
        spark_lake.rows(f"ALTER TABLE {name} ADD COLUMN {column}")
    read = partial(_by_id, spark_lake)
    assert read(f"SELECT id, s.z, l.z FROM {name}") == [(1, None, [None]), (2, None, None)]
    assert read(f"SELECT id FROM {name} WHERE s.z IS NULL") == [(1,), (2,)]
    assert read(f"SELECT id, s IS NULL FROM {name}") == [(1, False), (2, True)]
    # With a column of the struct whose key is released, it is seen by that one.
    assert read(f"SELECT id, t.x, t.z FROM {name}") == [(1, 1, None), (2, None, None)]
    refused(spark_lake, f"SELECT t.z FROM {name}", "NOT_SUPPORTED_YET", "absent-column")


@pytest.mark.nightly
@pytest.mark.parametrize("using", ["iceberg", "orc"])
def test_a_struct_under_a_key_gives_it_for_a_field_that_the_file_lacks(
    spark_lake: SparkLake, database: str, using: str
) -> None:
    name = f"{database}.columns_of_a_struct_in_{using}"
    properties = "'encryption.columns' = 'pii:s'"
    columns = "id INT, s STRUCT<x: INT, y: STRING>"
    spark_lake.rows(f"CREATE TABLE {name} ({columns}) USING {using} TBLPROPERTIES ({properties})")
    spark_lake.rows(f"INSERT INTO {name} VALUES (1, named_struct('x', 1, 'y', 'one')), (2, NULL)")
    spark_lake.rows(f"ALTER TABLE {name} ADD COLUMN s.z INT")
    spark_lake.rows(f"INSERT INTO {name} VALUES (3, named_struct('x', 3, 'y', 'three', 'z', 3))")
    assert _by_id(spark_lake, f"SELECT id, s.z FROM {name}") == [(1, None), (2, None), (3, 3)]
    assert spark_lake.rows(f"SELECT id FROM {name} WHERE s.z IS NULL AND s IS NOT NULL") == [(1,)]


# -- users


@pytest.mark.nightly
def test_a_user_reads_what_he_may_and_the_refusal_names_the_column(spark_lake: SparkLake, table: str) -> None:
    assert len(spark_lake.rows(f"SELECT ssn FROM {table}", CAROL)) == 10
    with denied(spark_lake, "email"):
        assert len(spark_lake.rows(f"SELECT id, open, props FROM {table}", CAROL)) == 10
        assert "email" in refused(
            spark_lake, f"SELECT email FROM {table}", "NOT_AUTHORIZED", "policy-deny", CAROL
        )
        told = refused(spark_lake, f"SELECT ssn FROM {table}", "NOT_AUTHORIZED", "policy-deny", CAROL)
        assert "The key 'pii' also opens the column 'email'" in told
        assert len(spark_lake.rows(f"SELECT ssn FROM {table}", ALICE)) == 10


# -- files of a writer who has keys, and puts columns under others than the table says


@dataclass
class Writer:
    """Writes one file with parquet-java's own classes, as a process with keys could; then commits it."""

    spark_lake: SparkLake
    engine: Engine
    deks: Mapping[str, SecretBytes]

    @classmethod
    def of(cls, spark_lake: SparkLake, table: str) -> Writer:
        engine = Engine.begin(spark_lake.lake, name_of(table))
        return cls(spark_lake, engine, {label.key_name: new_dek(32) for label in engine.labels()})

    def publish(
        self, columns: Mapping[str, str | None], *, ids: tuple[int, ...] = (1, 2, 3, 4), more: int = 0
    ) -> Path:
        """Commit a file of one row.

        Args:
            columns: the key that each column is under; None for the footer's, for all or for none of them;
                a column that is left out is in plaintext.
            ids: the field ids of id, open, ssn and email.
            more: see `footer_of`.
        """
        path = self.engine.path()
        local = Path(path.removeprefix("file://"))
        local.parent.mkdir(parents=True, exist_ok=True)
        self._write(local, self._properties(path, columns), ids)
        keys = tuple(self.engine.key(path, self.deks[each.key_name], each) for each in self.engine.labels())
        data = local.read_bytes()
        footer = footer_of(data, more) if len(keys) > 1 else {}
        self.engine.append(NewFile(path, "parquet", 1, len(data), keys=keys, **footer))
        return local

    def _properties(self, path: str, columns: Mapping[str, str | None]) -> Any:
        crypto = self._jvm.org.apache.parquet.crypto
        identity = FileIdentity.of(self.engine.session.table.record.table_uuid, path)
        footer = self.deks[self.engine.labels()[0].key_name].reveal()
        builder = crypto.FileEncryptionProperties.builder(footer).withAADPrefix(parquet_aad_prefix(identity))
        builder = builder.withoutAADPrefixStorage()
        if None in columns.values():
            return builder.build()
        own = self._jvm.java.util.HashMap()
        for column, key in columns.items():
            place = self._jvm.org.apache.parquet.hadoop.metadata.ColumnPath.fromDotString(column)
            dek = (self.deks[key] if key in self.deks else new_dek(32)).reveal()
            own.put(place, crypto.ColumnEncryptionProperties.builder(place).withKey(dek).build())
        return builder.withEncryptedColumns(own).build()

    def _write(self, local: Path, properties: Any, ids: tuple[int, ...]) -> None:
        hadoop = self._jvm.org.apache.parquet.hadoop
        names = ("open", "ssn", "email")
        texts = "".join(
            f"optional binary {name} (STRING) = {number};"
            for name, number in zip(names, ids[1:], strict=True)
        )
        message = f"message m {{ optional int64 id = {ids[0]}; {texts} }}"
        schema = self._jvm.org.apache.parquet.schema.MessageTypeParser.parseMessageType(message)
        where = self._jvm.org.apache.hadoop.fs.Path(f"file://{local}")
        builder = hadoop.example.ExampleParquetWriter.builder(where).withType(schema)
        writer = builder.withEncryption(properties).build()
        group = self._jvm.org.apache.parquet.example.data.simple.SimpleGroup(schema)
        group.add("id", LARGE)
        for name in names:
            group.add(name, f"value of {name}")
        writer.write(group)
        writer.close()

    @property
    def _jvm(self) -> Any:
        return self.spark_lake.session()._jvm


@pytest.fixture
def fresh(spark_lake: SparkLake, namespace: str, database: str) -> str:
    """A table without rows whose columns `ssn` and `email` have keys."""
    name = f"{namespace}.t"
    keys = {"encryption.columns": "pii:ssn;hr:email"}
    create_table(spark_lake, name, "id BIGINT, open STRING, ssn STRING, email STRING", keys)
    return name


@pytest.mark.nightly
def test_a_file_as_the_table_says_is_read_whoever_wrote_it(spark_lake: SparkLake, fresh: str) -> None:
    Writer.of(spark_lake, fresh).publish({"ssn": "pii", "email": "hr"})
    read = spark_lake.rows(f"SELECT * FROM {fresh}")
    assert read == [(LARGE, "value of open", "value of ssn", "value of email")]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("columns", "rule", "readable"),
    [
        pytest.param({"email": "hr"}, "column-key", "email", id="in plaintext"),
        pytest.param({"ssn": None}, "column-key", None, id="under the footer's key"),
        pytest.param({"ssn": "hr", "email": "pii"}, "file-authentic", "open", id="keys swapped"),
        pytest.param({"ssn": "unknown", "email": "hr"}, "file-authentic", "email", id="unknown key"),
    ],
)
def test_a_column_that_is_not_under_its_key_is_refused(
    spark_lake: SparkLake, fresh: str, columns: dict[str, str | None], rule: str, readable: str | None
) -> None:
    Writer.of(spark_lake, fresh).publish(columns)
    refused(spark_lake, f"SELECT ssn FROM {fresh}", "DECRYPTION_REFUSED", rule)
    refused(spark_lake, f"SELECT * FROM {fresh}", "DECRYPTION_REFUSED", rule)
    if readable:
        assert spark_lake.rows(f"SELECT {readable} FROM {fresh}") == [(f"value of {readable}",)]
    else:
        refused(spark_lake, f"SELECT open FROM {fresh}", "DECRYPTION_REFUSED", rule)


@pytest.mark.nightly
def test_a_column_that_should_be_in_plaintext_is_refused_under_a_key(
    spark_lake: SparkLake, fresh: str
) -> None:
    Writer.of(spark_lake, fresh).publish({"open": "unknown", "ssn": "pii", "email": "hr"})
    refused(spark_lake, f"SELECT open FROM {fresh}", "DECRYPTION_REFUSED", "column-key")
    assert spark_lake.rows(f"SELECT ssn FROM {fresh}") == [("value of ssn",)]


@pytest.mark.nightly
@pytest.mark.parametrize("more", [-1, 1])
def test_the_digest_of_a_footer_is_of_that_and_of_nothing_else(
    spark_lake: SparkLake, fresh: str, more: int
) -> None:
    Writer.of(spark_lake, fresh).publish({"ssn": "pii", "email": "hr"}, more=more)
    refused(spark_lake, f"SELECT ssn FROM {fresh}", "DECRYPTION_REFUSED", "footer-digest")


def test_columns_are_checked_against_their_ids_not_their_names(spark_lake: SparkLake, fresh: str) -> None:
    """What the file calls `open` has the id of `ssn`, and is in plaintext."""
    Writer.of(spark_lake, fresh).publish({"ssn": "pii", "email": "hr"}, ids=(1, 3, 2, 4))
    refused(spark_lake, f"SELECT ssn FROM {fresh}", "DECRYPTION_REFUSED", "column-key")


@pytest.mark.nightly
def test_a_file_encrypted_whole_does_not_stand_in_for_one_with_column_keys(
    spark_lake: SparkLake, namespace: str, fresh: str
) -> None:
    """Nor the other way round: what the plan says of a file is what it has to be."""
    whole = f"{namespace}.whole"
    columns = "id BIGINT, open STRING, ssn STRING, email STRING"
    create_table(spark_lake, whole, columns, ENCRYPTED)
    writer = Writer.of(spark_lake, whole)
    writer.publish({"ssn": "other"})
    refused(spark_lake, f"SELECT open FROM {whole}", "DECRYPTION_REFUSED", "algorithm")


@pytest.mark.nightly
def test_a_file_of_another_table_with_the_same_keys_is_refused(
    spark_lake: SparkLake, namespace: str, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by its prefix alone, where no digest of the footer is kept."""
    monkeypatch.setattr("catalog.writes.data_files._footer_digest", lambda file, table: None)
    other = f"{namespace}.other"
    columns = "id BIGINT, open STRING, ssn STRING, email STRING"
    create_table(spark_lake, other, columns, {"encryption.columns": "pii:ssn;hr:email"})
    theirs = Writer.of(spark_lake, other).publish({"ssn": "pii", "email": "hr"})
    ours = Writer.of(spark_lake, fresh).publish({"ssn": "pii", "email": "hr"})
    ours.write_bytes(theirs.read_bytes())
    refused(spark_lake, f"SELECT open FROM {fresh}", "DECRYPTION_REFUSED", "file-authentic")
