"""No way of writing a property, a path or a key gets it past lint: it is asked for, or denied.

Mallory may make and alter every table, and has no right on any location or key.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from policy.encryption.governed import is_governed
from policy.encryption_rules import EncryptionRules
from policy.principal import Principal
from policy.ranger import PolicySet
from policy.sql_lint import Dialect, LintContext
from tests.support.ddl import KEY, NOW, needs, rule, the_answer
from tests.support.lake import policy, tables
from tests.support.vectors import each_row

MALLORY = "mallory"
VICTIM = "s3://victim/t"
PATHS = "read.allowed.data.paths"
GRANTS = policy("mallory", tables("*"), {MALLORY: ["create", "alter", "select", "update", "drop"]})
SECRET = policy(
    "secret",
    {"database": ["v"], "table": ["t"], "column": ["secret"]},
    {},
    denyPolicyItems=[{"users": [MALLORY], "accesses": [{"type": "select", "isAllowed": True}]}],
)


def _judged_by(*policies: dict[str, Any]) -> LintContext:
    found = PolicySet.parse({"p.json": json.dumps({"policies": policies})})
    return LintContext(
        Principal(MALLORY),
        found,
        EncryptionRules.empty(),
        NOW,
        catalog="lake",
        database="db",
        master_key_id=KEY,
    )


JUDGED_BY = _judged_by(GRANTS)
WITHOUT_SECRET = _judged_by(GRANTS, SECRET)

#: What needs a right that Mallory does not have, as name and value.
WANTED = [
    (PATHS, VICTIM),
    ("option." + PATHS, VICTIM),
    ("write.data.path", VICTIM),
    ("write.metadata.path", VICTIM),
    ("write.object-storage.path", VICTIM),
    ("write.folder-storage.path", VICTIM),
    ("encryption.mechanism", "envelope"),
    ("encryption.key-id", "k"),
    ("encryption.master-key-id", "k"),
    ("parquet.encryption.footer.key", "k"),
    ("parquet.encryption.uniform.key", "k"),
    ("encryption.data-key-length", "16"),
    ("orc.encrypt", "k:id"),
    ("s3.endpoint", "http://evil"),
]
#: Ways to write properties into a statement; @K and @V stand for a name and a value.
FORMS: list[tuple[Dialect, str]] = [
    ("spark", "CREATE TABLE lake.s.t (id INT) TBLPROPERTIES ('@K'='@V')"),
    ("spark", 'CREATE TABLE lake.s.t (id INT) USING iceberg TBLPROPERTIES (`@K` "@V")'),
    ("spark", "CREATE TABLE lake.s.t (id INT) OPTIONS ('@K'='@V')"),
    ("spark", "CREATE TABLE lake.s.t (id INT) OPTIONS (`@K`='@V', a 'b')"),
    ("spark", "CREATE TABLE lake.s.t (id INT) TBLPROPERTIES ('option.@K'='@V')"),
    ("spark", "CREATE TABLE IF NOT EXISTS lake.s.t TBLPROPERTIES ('@K'='@V') AS SELECT 1 AS id"),
    (
        "spark",
        "CREATE TABLE lake.s.t (id INT) COMMENT 'x' TBLPROPERTIES ('a'='b', '@K'='@V') LOCATION 's3://victim'",
    ),
    ("spark", "ALTER TABLE lake.s.t SET TBLPROPERTIES ('@K'='@V')"),
    ("spark", "ALTER TABLE s.t SET TBLPROPERTIES ('a'='b', /* c */ '@K' = \n '@V') -- d"),
    ("spark", "EXPLAIN ALTER TABLE t SET TBLPROPERTIES ('@K'='@V')"),
    ("hive", "CREATE TABLE s.t (id INT) STORED BY ICEBERG TBLPROPERTIES ('@K'='@V')"),
    ("hive", "CREATE EXTERNAL TABLE s.t (id INT) STORED BY ICEBERG WITH SERDEPROPERTIES ('@K'='@V')"),
    ("hive", "CREATE TABLE s.t LIKE s.u STORED BY ICEBERG TBLPROPERTIES ('@K'='@V')"),
    ("hive", "CREATE TABLE s.t STORED BY ICEBERG TBLPROPERTIES ('@K'='@V') AS SELECT 1 AS id"),
    ("hive", "ALTER TABLE s.t SET TBLPROPERTIES ('@K'='@V')"),
]
#: Letters that look like others, and what stands for nothing.
LOOKS = {"a": "а", "e": "е", "o": "ο", "p": "р", "c": "с", "i": "ı", "s": "ѕ", ".": "·", "-": "‐"}


@each_row(("dialect", "form"), FORMS, count=15)
def test_every_property_counts_wherever_it_stands(dialect: Dialect, form: str) -> None:
    harmless = form.replace("@K", "owner-team").replace("@V", "sales")
    if "victim" not in form:
        assert the_answer(harmless, JUDGED_BY, dialect).decision.allowed
    for name, value in WANTED:
        answer = the_answer(form.replace("@K", name).replace("@V", value), JUDGED_BY, dialect)
        assert not answer.decision.allowed, name


@st.composite
def _disguised(draw: st.DrawFn) -> str:
    """A name that is written, or looks, like a governed one."""
    name = draw(st.sampled_from([name for name, _ in WANTED[:-1]]))
    at = draw(st.integers(0, len(name) - 1))
    character = name[at]
    instead = draw(
        st.sampled_from(
            [
                character.upper(),
                LOOKS.get(character, character),
                f"{character}\u200b",
                f"{character} ",
                f"\\u{ord(character):04x}",
                f"\\{character}",
                f"{character}' '",
                "${x}" + character,
                chr(ord(character) + 0xFEE0),
                character,
            ]
        )
    )
    return name[:at] + instead + name[at + 1 :]


@given(_disguised(), st.sampled_from(FORMS))
def test_a_disguised_name_is_denied_or_is_another_property(name: str, form: tuple[Dialect, str]) -> None:
    dialect, text = form
    answer = the_answer(text.replace("@K", name).replace("@V", VICTIM), JUDGED_BY, dialect)
    if answer.decision.allowed:
        # An ordinary property, which the catalog would keep as it is, and which means nothing.
        assert not is_governed(name)
        assert "`" in text or ("\\" not in name and "'" not in name)  # in backticks all is literal


@each_row(
    "sql",
    [
        "CREATE TABLE lake.s.t (id INT) LOCATION 's3://victim/t'",
        "CREATE TABLE lake.s.t (id INT) OPTIONS (path='s3://victim/t')",
        "CREATE TABLE lake.s.t (id INT) OPTIONS ('PaTh'='s3://victim/t')",
        "CREATE TABLE lake.s.t LOCATION 's3://victim/t' AS SELECT 1 AS id",
        "CREATE TABLE lake.s.t (id INT) TBLPROPERTIES ('Location'='s3://victim/t')",
        "CREATE TABLE lake.s.t (id INT) TBLPROPERTIES (' location'='s3://victim/t')",
        "CREATE NAMESPACE lake.n LOCATION 's3://victim/t'",
        "CREATE DATABASE n LOCATION 's3://victim/t' WITH DBPROPERTIES ('a'='b')",
        "CREATE NAMESPACE n WITH PROPERTIES ('location'='s3://victim/t')",
        "CREATE NAMESPACE n WITH PROPERTIES ('LOCATION'='s3://victim/t')",
        "ALTER NAMESPACE n SET LOCATION 's3://victim/t'",
        "ALTER NAMESPACE n SET PROPERTIES ('location'='s3://victim/t')",
        "ALTER NAMESPACE n SET PROPERTIES ('lakewarden.unsealed'='allow')",
        "ALTER NAMESPACE n UNSET PROPERTIES ('lakewarden.unsealed')",
        "ALTER TABLE lake.s.t SET LOCATION 's3://victim/t'",
        "ALTER TABLE lake.s.t SET SERDEPROPERTIES ('path'='s3://victim/t')",
        "ALTER TABLE lake.s.t PARTITION (a=1) SET LOCATION 's3://victim/t'",
        "INSERT OVERWRITE DIRECTORY 's3://victim/t' SELECT 1",
        "LOAD DATA INPATH 's3://victim/t' INTO TABLE s.t",
        "SELECT * FROM parquet.`s3://victim/t`",
        "SELECT x FROM read_files('s3://victim/t')",
        "CREATE TABLE lake.s.t (id INT) USING parquet LOCATION 's3://victim/t'",
        "CALL lake.system.register_table('s.t', 's3://victim/t/metadata.json')",
        "SET spark.sql.catalog.lake.uri=http://evil",
        "SET spark.sql.catalog.evil=org.apache.iceberg.spark.SparkCatalog",
        "SET `spark.sql.catalog.evil`=x",
        "SET spark.sql.extensions=x",
        "SET spark.sql.parser.escapedStringLiterals=true",
        "RESET spark.sql.extensions",
    ],
)
@each_row("dialect", ["spark", "hive"])
def test_no_clause_leads_to_anothers_place(dialect: Dialect, sql: str) -> None:
    assert not the_answer(sql, JUDGED_BY, dialect).decision.allowed


@each_row(
    "sql",
    [
        "CREATE TABLE s.t (id INT) STORED BY ICEBERG TBLPROPERTIES ('metadata_location'='s3://victim/m.json')",
        "CREATE TABLE s.t (id INT) STORED BY ICEBERG TBLPROPERTIES ('iceberg.catalog'='other')",
        "CREATE TABLE s.t (id INT) STORED BY ICEBERG TBLPROPERTIES ('iceberg.catalog.x.uri'='http://evil')",
        "ALTER TABLE s.t SET TBLPROPERTIES ('metadata_location'='s3://victim/m.json')",
        "ALTER TABLE s.t SET TBLPROPERTIES ('Metadata_Location'='s3://victim/m.json')",
    ],
)
def test_hive_does_not_take_over_metadata_by_a_property(sql: str) -> None:
    assert rule(the_answer(sql, JUDGED_BY, "hive")) == "reserved-property"


@each_row(
    "sql",
    [
        "CREATE TABLE lake.s.t (id INT) OPTIONS ('a'='b') TBLPROPERTIES ('a'='c')",
        "CREATE TABLE lake.s.t (id INT) TBLPROPERTIES ('option.a'='b', 'a'='c')",
        "CREATE TABLE lake.s.t (id INT) OPTIONS ('encryption.mechanism'='plaintext') "
        "TBLPROPERTIES ('encryption.mechanism'='envelope')",
    ],
)
def test_two_spellings_that_contradict_each_other(sql: str) -> None:
    assert rule(the_answer(sql, JUDGED_BY)) == "option"
    agreed = sql.replace("'c'", "'b'").replace("plaintext", "envelope")
    assert rule_or_none(agreed) != "option"


def rule_or_none(sql: str) -> str | None:
    """By what a statement is denied, if it is."""
    answer = the_answer(sql, JUDGED_BY)
    return None if answer.decision.allowed else rule(answer)


@each_row("keys", ["'a'='b','a'='b'", "'a'='b','a'='c'", "a='b','a'='c'", "`a`='b', a='c'"])
@each_row("clause", ["TBLPROPERTIES", "OPTIONS"])
def test_a_key_stands_once(clause: str, keys: str) -> None:
    assert rule_or_none(f"CREATE TABLE lake.s.t (id INT) {clause} ({keys})") == "duplicate-key"


@each_row(
    "query",
    [
        "SELECT secret FROM lake.v.t",
        "SELECT s.SECRET FROM lake.v.t s",
        "SELECT 1 FROM lake.v.t WHERE secret = 'x'",
        "SELECT 1 AS a FROM lake.o.t ORDER BY (SELECT max(secret) FROM lake.v.t)",
        "WITH t AS (SELECT secret FROM lake.v.t) SELECT 1 FROM t",
        "WITH t AS (SELECT 1 AS a) SELECT (WITH u AS (SELECT secret FROM lake.v.t) SELECT 1 FROM u) FROM t",
        "SELECT a FROM lake.o.t JOIN lake.v.t USING (secret)",
        "SELECT a FROM lake.o.t NATURAL JOIN lake.v.t",
        "SELECT a FROM lake.o.t o JOIN lake.v.t v ON o.a = v.secret",
        "SELECT a FROM lake.o.t, LATERAL (SELECT secret FROM lake.v.t)",
        "SELECT a FROM lake.o.t LATERAL VIEW explode(array((SELECT max(secret) FROM lake.v.t))) e AS x",
        "SELECT a FROM lake.o.t UNION ALL SELECT secret FROM lake.v.t",
        "SELECT a FROM lake.o.t WHERE a IN (SELECT secret FROM lake.v.t)",
        "SELECT a FROM lake.o.t LIMIT (SELECT max(secret) FROM lake.v.t)",
        "SELECT sum(a) OVER (ORDER BY (SELECT max(secret) FROM lake.v.t)) FROM lake.o.t",
        "SELECT a FROM lake.o.t VERSION AS OF (SELECT max(secret) FROM lake.v.t)",
        "SELECT a FROM VALUES ((SELECT max(secret) FROM lake.v.t)) AS x(a)",
        "SELECT struct(*) FROM lake.v.t",
        "SELECT count(*) FROM lake.v.t",
        "SELECT x.* FROM lake.v.t x",
        "SELECT * FROM (TABLE lake.v.t)",
        "SELECT 1 WHERE 1 IN (TABLE lake.v.t)",
        "SELECT f(TABLE(lake.v.t))",
        "FROM lake.v.t",
        "FROM lake.v.t SELECT secret",
        "FROM lake.v.t |> SELECT secret",
        "SELECT IDENTIFIER('secret') FROM lake.v.t",
        "SELECT secret FROM IDENTIFIER('lake.v.t')",
        "SELECT a FROM lake.o.t INTERSECT SELECT secret FROM lake.v.t",
        "SELECT a FROM lake.o.t WHERE EXISTS (SELECT 1 FROM lake.v.t WHERE secret = a)",
        "SELECT a FROM lake.o.t GROUP BY a HAVING max(a) > (SELECT max(secret) FROM lake.v.t)",
        "SELECT 1 FROM lake.v.t GROUP BY secret",
        "SELECT a FROM lake.o.t PIVOT (max(a) FOR b IN ((SELECT secret FROM lake.v.t)))",
        "SELECT CASE WHEN secret = 'a' THEN 1 END FROM lake.v.t",
        "SELECT transform(array(1), x -> x + secret) FROM lake.v.t",
        "SELECT named_struct('a', secret).a FROM lake.v.t",
        "SELECT map('a', 1)[secret] FROM lake.v.t",
        "SELECT /*+ BROADCAST(t) */ secret FROM lake.v.t",
        "SELECT date_add(current_date, secret) FROM lake.v.t DISTRIBUTE BY secret",
    ],
)
def test_no_form_of_a_query_reads_a_column_that_is_denied(query: str) -> None:
    for around in ("{}", "INSERT INTO lake.o.t {}", "CREATE TABLE lake.o.n AS {}", "EXPLAIN {}"):
        assert the_answer(around.format("SELECT a FROM lake.v.t"), WITHOUT_SECRET).decision.allowed
        assert not the_answer(around.format(query), WITHOUT_SECRET).decision.allowed, around


@each_row(
    "sql",
    [
        "SELECT id, t.ssn FROM hr.people LATERAL VIEW explode(array(ssn)) t AS ssn",
        "SELECT id FROM hr.people LATERAL VIEW explode(array(ssn)) t AS a LATERAL VIEW explode(a) u AS ssn",
        "SELECT id, ssn FROM hr.people LEFT SEMI JOIN (SELECT 1 AS ssn) d ON people.id = 1",
        "SELECT id, ssn FROM hr.people LEFT ANTI JOIN (SELECT 1 AS ssn) d ON people.id = 1",
        "SELECT id, ssn.b FROM hr.people LEFT SEMI JOIN (SELECT 1 AS a) ssn ON people.id = 1",
        "WITH ssn AS (SELECT 1 AS a) SELECT id, ssn.b FROM hr.people LEFT SEMI JOIN ssn ON people.id = 1",
        "SELECT id FROM hr.people a JOIN hr.people b ON a.id = ssn CROSS JOIN (SELECT 1 AS ssn) d",
    ],
)
def test_a_column_is_read_where_a_derived_one_of_its_name_is_not_seen(sql: str) -> None:
    asked = needs(the_answer(sql))
    assert "select column hr.people.ssn" in asked


@each_row(
    "sql",
    [
        "SELECT id, ssn FROM hr.people LATERAL VIEW explode(array(id)) t AS ssn",
        "SELECT id, t.ssn FROM hr.people LATERAL VIEW explode(array(id)) t AS ssn WHERE t.ssn = 1",
        "SELECT id FROM hr.people LATERAL VIEW explode(arr) t AS ssn LATERAL VIEW explode(ssn) u AS a",
        "SELECT id FROM hr.people LEFT SEMI JOIN (SELECT 1 AS ssn) d ON people.id = d.ssn",
        "SELECT id FROM hr.people JOIN (SELECT 1 AS ssn) d ON id = ssn WHERE ssn = 1",
    ],
)
def test_a_derived_column_is_none_of_a_table_where_it_is_seen(sql: str) -> None:
    assert not [each for each in needs(the_answer(sql)) if each.endswith((".ssn", ".t", ".d"))]
