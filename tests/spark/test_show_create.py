"""SHOW CREATE TABLE prints a statement that makes the same table again, by the user who created it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.lake import MASTER_KEY, policy, standard_policies, tables
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_tables import stock_table

pytestmark = pytest.mark.nightly

#: She creates and reads tables, and can neither alter them nor weaken their protection.
DORA = "dora"
_NUMBERS = count()
_NAMES = ["id", "odd name", "an`other", "select", "größe", 'q"uote', "x'y", "Upper"]
_TEXTS = st.text("ab '\"\\`;\n\té%$-{}", max_size=12)
_FLAT = ["INT", "BIGINT", "STRING", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "DECIMAL(12,3)", "BINARY", "DOUBLE"]
_TRANSFORMS = {
    "INT": ["{}", "bucket(4, {})", "truncate(10, {})"],
    "BIGINT": ["{}", "bucket(4, {})"],
    "STRING": ["{}", "truncate(2, {})"],
    "DATE": ["{}", "months({})"],
    "TIMESTAMP": ["days({})", "hours({})"],
}


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _commented(text: str) -> str:
    return f" COMMENT {_literal(text)}" if text else ""


@st.composite
def _types(draw: st.DrawFn, depth: int = 2) -> str:
    """A type, which can be nested."""
    kind = draw(st.sampled_from(["flat", "flat", "flat", "struct", "array", "map"])) if depth else "flat"
    if kind == "flat":
        return draw(st.sampled_from(_FLAT))
    inner = draw(_types(depth - 1))
    if kind == "array":
        return f"ARRAY<{inner}>"
    if kind == "map":
        return f"MAP<STRING, {inner}>"
    names = draw(st.lists(st.sampled_from(_NAMES), min_size=1, max_size=2, unique=True))
    required = draw(st.sampled_from(["", " NOT NULL"]))
    fields = [f"{_quoted(name)}: {inner}{required}{_commented(draw(_TEXTS))}" for name in names]
    return f"STRUCT<{', '.join(fields)}>"


@st.composite
def _definitions(draw: st.DrawFn) -> tuple[str, bool]:
    """What follows the name of a table in CREATE TABLE, `{location}` in it, and whether it has one."""
    names = draw(st.lists(st.sampled_from(_NAMES), min_size=3, max_size=5, unique=True))
    kinds = [draw(st.sampled_from(list(_TRANSFORMS))), *(draw(_types()) for _ in names[1:])]
    required = [draw(st.sampled_from(["", " NOT NULL"])) for _ in names]
    columns = ", ".join(
        f"{_quoted(name)} {kind}{needed}{_commented(draw(_TEXTS))}"
        for name, kind, needed in zip(names, kinds, required, strict=True)
    )
    properties = {
        "owner.note": draw(_TEXTS),
        "write.format.default": draw(st.sampled_from(["parquet", "orc"])),
    }
    source = _quoted(names[0])
    protection = draw(st.sampled_from(["plaintext", "uniform", "columns", "plaintext-columns"]))
    if protection == "uniform":
        properties["encryption.mechanism"] = "envelope"
    if protection == "columns":
        properties["encryption.columns"] = f"{MASTER_KEY}:{names[1]}"
    if protection == "plaintext-columns":
        properties |= {"encryption.mechanism": "envelope", "encryption.plaintext-columns": names[0]}
    if protection not in ("plaintext", "uniform"):
        properties["write.format.default"] = "parquet"
    clear = protection != "uniform"
    if clear and draw(st.booleans()):
        properties["sort-order"] = f"{source} DESC NULLS LAST"
    if required[0] and kinds[0] != "DECIMAL(12,3)" and draw(st.booleans()):
        properties["identifier-fields"] = f"[{source}]"
    transform = draw(st.sampled_from(_TRANSFORMS[kinds[0]])).format(source)
    partitioned = f" PARTITIONED BY ({transform})" if clear and draw(st.booleans()) else ""
    given = ", ".join(f"{_literal(name)} = {_literal(value)}" for name, value in properties.items())
    comment = draw(_TEXTS)
    located = draw(st.booleans())
    rest = f"{partitioned}{_commented(comment)}{' LOCATION {location}' if located else ''}"
    return f"({columns}) USING iceberg{rest} TBLPROPERTIES ({given})", located


@pytest.fixture(scope="module")
def of_dora(spark_lake: SparkLake) -> Iterator[str]:
    """A namespace where Dora creates tables."""
    namespace = spark_lake.namespace()
    database = namespace.removeprefix(f"{CATALOG}.")
    rights = [
        policy("dora-tables", tables(database), {DORA: ["select", "create"]}),
        policy("dora-storage", {"storage-type": ["*"], "storage-url": ["*"]}, {DORA: ["rwstorage"]}),
        policy("dora-keys", {"key": ["*"]}, {DORA: ["use"]}),
    ]
    spark_lake.lake.set_policies([*standard_policies(), *rights])
    yield namespace
    spark_lake.lake.set_policies(standard_policies())


def _governed(spark_lake: SparkLake, table: str) -> dict[str, str]:
    rows = spark_lake.rows(f"SHOW TBLPROPERTIES {table}", DORA)
    return {row.key: row.value for row in rows if row.key.startswith("encryption.") and "pek" not in row.key}


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(defined=_definitions())
def test_the_statement_makes_the_same_table_again(
    spark_lake: SparkLake, of_dora: str, defined: tuple[str, bool]
) -> None:
    definition, located = defined
    table = f"{of_dora}.t{next(_NUMBERS)}"
    location = _literal(f"{spark_lake.lake.warehouse}/{table}")
    spark_lake.rows(f"CREATE TABLE {table} {definition.replace('{location}', location)}", DORA)
    (shown,) = spark_lake.rows(f"SHOW CREATE TABLE {table}", DORA)[0]
    first, governed = stock_table(spark_lake, table), _governed(spark_lake, table)
    # A location belongs to one table.
    again = table if located else f"{table}_again"
    if located:
        spark_lake.rows(f"DROP TABLE {table} PURGE")
    spark_lake.rows(shown.replace(table, again, 1), DORA)
    assert spark_lake.rows(f"SHOW CREATE TABLE {again}", DORA)[0][0] == shown.replace(table, again, 1)
    second = stock_table(spark_lake, again)
    assert second.schema().as_struct() == first.schema().as_struct()
    assert second.schema().identifier_field_ids == first.schema().identifier_field_ids
    assert second.spec().fields == first.spec().fields
    assert second.sort_order().fields == first.sort_order().fields
    assert _governed(spark_lake, again) == governed
    assert (second.location() == first.location()) == located
