"""REPLACE TABLE, CREATE TABLE LIKE and WITH SCHEMA EVOLUTION, by what is known of the tables."""

from __future__ import annotations

from dataclasses import replace

from policy.encryption.file_formats import FileFormat
from policy.encryption.specification import EncryptionSpec
from policy.encryption_rules import TableFacts as RuleFacts
from policy.identifiers import TableName
from policy.location.allow_list import AllowList
from policy.location.location import Location
from policy.sql_lint import LintContext, TableFacts
from tests.support.ddl import ANN, BOB, KEY, answers, context, needs, rule, the_answer
from tests.support.rules import rule as encryption_rule
from tests.support.rules import rules_of

HERE = Location.parse("s3://lake/s/t")


def _table(spec: dict[str, str], **more: object) -> TableFacts:
    parsed = EncryptionSpec.parse(spec, catalog_master_key_id=KEY)
    leaves = RuleFacts.of_names("s", "t", ("id", "ssn"), parsed).columns
    facts = TableFacts(
        ANN,
        ("id", "ssn"),
        (),
        leaves,
        AllowList.of([HERE]),
        parsed,
        FileFormat.PARQUET,
        HERE,
        default_location=True,
    )
    return replace(facts, **more)  # type: ignore[arg-type]


def _known(facts: TableFacts, **more: object) -> LintContext:
    there = TableName(("s",), "t")
    return context(ANN, known=lambda name: facts if name == there else None, **more)


def _unprotects(spec: dict[str, str], sql: str) -> bool:
    needed = needs(the_answer(sql, _known(_table(spec))))
    assert {"alter table s.t", "update table s.t"} <= set(needed)
    return "unprotect table s.t" in needed


def test_a_replacement_that_protects_less_asks_for_unprotect() -> None:
    plaintext = "TBLPROPERTIES ('encryption.mechanism'='plaintext')"
    keyed = {"encryption.columns": "pii:ssn"}
    listed = {"encryption.mechanism": "envelope", "encryption.plaintext-columns": "id"}
    for spec in ({"encryption.mechanism": "envelope"}, keyed, listed):
        assert _unprotects(spec, f"REPLACE TABLE lake.s.t (id INT, ssn STRING) {plaintext}")
        assert not _unprotects(spec, "REPLACE TABLE lake.s.t (id INT, ssn STRING)")
    assert _unprotects(
        listed, "REPLACE TABLE lake.s.t (id INT, n INT) TBLPROPERTIES ('encryption.plaintext-columns'='id')"
    )
    assert not _unprotects(keyed, "REPLACE TABLE lake.s.t (ssn STRING)")
    assert not _unprotects({}, f"REPLACE TABLE lake.s.t (ssn STRING) {plaintext}")


def test_columns_of_a_replaced_table_leave_its_lists() -> None:
    keyed = _known(_table({"encryption.columns": "pii:ssn,id"}))
    gone, *_ = answers("REPLACE TABLE lake.s.t (other INT)", keyed)
    assert rule(gone) == "last-column"
    named = "REPLACE TABLE lake.s.t (other INT) TBLPROPERTIES ('encryption.columns'='pii:other')"
    assert the_answer(named, keyed).decision.allowed
    partitioned = "REPLACE TABLE lake.s.t (id INT, other INT) PARTITIONED BY ({})"
    assert the_answer(partitioned.format("other"), keyed).decision.allowed
    assert rule(the_answer(partitioned.format("id"), keyed)) == "encrypted-source"


def test_a_replacement_whose_columns_are_not_known() -> None:
    keyed = _known(_table({"encryption.columns": "pii:ssn"}, partitions=("id",)))
    replaced, read = answers(
        "REPLACE TABLE lake.s.t AS SELECT * FROM lake.s.t; SELECT * FROM lake.s.t", keyed
    )
    assert replaced.decision.allowed and rule(read) == "columns-unknown"
    ruled = _known(_table({}), encryption=rules_of(encryption_rule("r", columns=["ssn"], mustEncrypt=True)))
    assert rule(the_answer("REPLACE TABLE lake.s.t AS SELECT * FROM lake.s.t", ruled)) == "encryption-rules"
    assert rule(the_answer("REPLACE TABLE lake.s.t (ssn INT, n INT)", ruled)) == "must-encrypt"
    assert the_answer("REPLACE TABLE lake.s.t (id INT)", ruled).decision.allowed


def test_a_dropped_table_is_created_again() -> None:
    script = "DROP TABLE lake.s.t; {} TABLE lake.s.t (n INT); SELECT n FROM lake.s.t"
    _, made, read = answers(script.format("CREATE OR REPLACE"), _known(_table({})))
    assert needs(made) == ["create table s.t"] and read.decision.allowed
    _, refused, _ = answers(script.format("REPLACE"), _known(_table({})))
    assert rule(refused) == "no-such-table"


def test_a_table_like_an_encrypted_one_is_encrypted_as_it_is() -> None:
    known = _known(_table({"encryption.columns": "pii:ssn"}, partitions=("id", "gone")))
    made, read = answers("CREATE TABLE lake.s.n LIKE lake.s.t; SELECT * FROM lake.s.n", known)
    assert "use key pii" in needs(made) and "select table s.t" in needs(made)
    assert "select column s.n.ssn" in needs(read)
    same = "CREATE TABLE lake.s.n LIKE lake.s.t TBLPROPERTIES ('{}'='{}')"
    assert the_answer(same.format("encryption.columns", "pii:ssn"), known).decision.allowed
    assert the_answer(same.format("read.allowed.data.paths", "s3://b/x"), known).decision.allowed
    assert rule(the_answer(same.format("encryption.mechanism", "plaintext"), known)) == "create-table-like"
    plain = _known(_table({}, partitions=("id",), leaves=None, file_format=FileFormat.AVRO))
    assert "use key lakewarden" in needs(the_answer(same.format("encryption.mechanism", "envelope"), plain))
    script = "CREATE TEMP VIEW v AS SELECT id FROM lake.s.t; CREATE TABLE lake.s.n LIKE v"
    assert rule(answers(script, known)[1]) == "view"


def test_evolution_takes_alter_and_forgets_the_columns() -> None:
    known = _known(_table({}))
    for statement in (
        "INSERT WITH SCHEMA EVOLUTION INTO lake.s.t BY NAME SELECT 1 AS n",
        "MERGE WITH SCHEMA EVOLUTION INTO lake.s.t a USING lake.s.t b ON a.id = b.id WHEN MATCHED THEN "
        "DELETE",
    ):
        evolved, read = answers("; ".join((statement, "SELECT * FROM lake.s.t")), known)
        assert "alter table s.t" in needs(evolved)
        assert rule(read) == "columns-unknown"


def test_changes_of_rows_read_what_partitioned_the_table() -> None:
    known = _known(_table({}, partitions=("gone",)))
    for statement in (
        "DELETE FROM lake.s.t WHERE id = 1",
        "INSERT OVERWRITE lake.s.t WITH ('isolation-level' = 'snapshot') SELECT 1, 'x'",
        "INSERT OVERWRITE lake.s.t SELECT 1, 'x'",
    ):
        assert "select column s.t.gone" in needs(the_answer(statement, known))
    for statement in ("TRUNCATE TABLE lake.s.t", "INSERT INTO lake.s.t VALUES (1, 'x')"):
        assert needs(the_answer(statement, known)) == ["update table s.t"]
    script = (
        "ALTER TABLE lake.s.t ADD PARTITION FIELD id; ALTER TABLE lake.s.t RENAME COLUMN id TO n; "
        "DELETE FROM lake.s.t WHERE n = 1"
    )
    needed = needs(answers(script, _known(_table({})))[2])
    assert {"select column s.t.id", "select column s.t.n"} <= set(needed)


def test_a_user_without_permission_replaces_nothing() -> None:
    there = TableName(("s",), "t")
    facts = _table({})
    known = context(BOB, known=lambda name: facts if name == there else None)
    assert rule(the_answer("REPLACE TABLE lake.s.t (id INT)", known)) == "policy-no-match"
