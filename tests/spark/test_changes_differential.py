"""Changes of random statements are the differences of the states before and after, in each protection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

import pytest
from pyspark.sql import Row

from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table, master_keys, stock_table
from tests.support.tables import ENCRYPTED

pytestmark = pytest.mark.nightly

PROTECTIONS: Mapping[str, Mapping[str, str]] = {
    "plaintext": {},
    "uniform": ENCRYPTED,
    "column keys": {"encryption.columns": "pii:id,v,s"},
    "ORC": {"write.format.default": "orc"},
    "ORC column keys": {"write.format.default": "orc", "encryption.columns": "pii:id,v"},
}
COLUMNS = "id INT, p STRING, v STRING, d DOUBLE, s STRUCT<x: INT, l: ARRAY<INT>>, m MAP<STRING, INT>"
VALUES = (
    "int(id % 7) AS id, if(id % 3 = 0, 'a', 'b') AS p, if(id % 5 = 0, NULL, string(id % 4)) AS v, "
    "if(id % 6 = 0, double('NaN'), id / 2) AS d, "
    "named_struct('x', int(id % 2), 'l', array(1, NULL)) AS s, map('k', int(id % 3), 'a', 1) AS m"
)
STATEMENTS: Sequence[str] = (
    "INSERT INTO {t} SELECT " + VALUES + " FROM range({n}, {n} + 6, 1, 2)",
    "DELETE FROM {t} WHERE id = {k}",
    "DELETE FROM {t} WHERE p = 'a' AND id < {k}",
    "UPDATE {t} SET v = 'new', d = {n} WHERE id = {k}",
    "UPDATE {t} SET p = 'b' WHERE id = {k}",
    "MERGE INTO {t} USING (SELECT int({k}) AS k) ON id = k WHEN MATCHED AND p = 'a' THEN DELETE "
    "WHEN MATCHED THEN UPDATE SET v = NULL WHEN NOT MATCHED THEN INSERT (id, p) VALUES (k, 'a')",
    "INSERT OVERWRITE {t} PARTITION (p = 'a') SELECT * EXCEPT (p) FROM (SELECT " + VALUES + " FROM range(3))",
    "DELETE FROM {t} WHERE p = 'b'",
    "CALL lake.system.rewrite_data_files('{t}', options => map('rewrite-all', 'true'))",
    "ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = '{mode}', 'write.update.mode' = '{mode}', "
    "'write.merge.mode' = '{mode}')",
)
CHANGED = ("_change_type", "_change_ordinal", "_commit_snapshot_id", "_commit_version", "_commit_timestamp")


def counted(rows: Iterable[Row], *kinds: str, ordinal: int | None = None) -> Counter[str]:
    """How often each row is there, of changes those of a kind and snapshot."""
    return Counter(
        repr([value for name, value in each.asDict(recursive=True).items() if name not in CHANGED])
        for each in rows
        if not kinds or (each._change_type.lower() in kinds and ordinal in (None, each._change_ordinal))
    )


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("protection", PROTECTIONS)
def test_changes_are_the_differences_of_states(
    spark_lake: SparkLake, namespace: str, protection: str, seed: int
) -> None:
    random = Random(f"{protection} {seed}")
    master_keys(spark_lake, "pii")
    table = f"{namespace}.t"
    partition = "p" if "columns" not in str(PROTECTIONS[protection]) and protection != "uniform" else None
    create_table(spark_lake, table, COLUMNS, PROTECTIONS[protection], partition)
    spark_lake.rows(STATEMENTS[0].format(t=table, n=0))
    for number in range(14):
        statement = random.choice(STATEMENTS)
        if partition is None and "PARTITION (p" in statement:
            continue
        values = {"k": random.randrange(7), "n": random.randrange(9) + number}
        mode = random.choice(["merge-on-read", "copy-on-write"])
        spark_lake.rows(statement.format(t=table, mode=mode, **values))
    snapshots = list(stock_table(spark_lake, table).snapshots())
    states = {
        each.snapshot_id: spark_lake.rows(f"SELECT * FROM {table} VERSION AS OF {each.snapshot_id}")
        for each in snapshots
    }
    before: Counter[str] = Counter()
    steps: list[tuple[int, Counter[str], Counter[str]]] = []
    for each in snapshots:
        after = counted(states[each.snapshot_id])
        if each.summary is not None and each.summary.operation.value != "replace":
            steps.append((each.snapshot_id, after - before, before - after))
        else:
            assert after == before
        before = after

    def view(**arguments: Any) -> list[Row]:
        given = "".join(f", {name} => {value}" for name, value in arguments.items())
        spark_lake.rows(f"CALL lake.system.create_changelog_view('{table}', 'changed'{given})")
        return spark_lake.rows("SELECT * FROM changed")

    raw = spark_lake.rows(f"SELECT * FROM {table}.changes")
    shown = view()
    changes = spark_lake.rows(f"SELECT * FROM {table} CHANGES FROM VERSION {snapshots[0].snapshot_id}")
    for ordinal, (_, added, removed) in enumerate(steps):
        for found in (shown, changes):
            assert counted(found, "insert", ordinal=ordinal) == added, ordinal
            assert counted(found, "delete", ordinal=ordinal) == removed, ordinal
        ins, dels = (counted(raw, kind, ordinal=ordinal) for kind in ("insert", "delete"))
        assert (ins - dels, dels - ins) == (added, removed), ordinal
    first, last = sorted(random.sample(range(len(snapshots)), 2))
    start, end = (snapshots[each].snapshot_id for each in (first, last))
    options = f"map('start-snapshot-id', '{start}', 'end-snapshot-id', '{end}')"
    net = view(options=options, net_changes="true")
    one, other = counted(states[start]), counted(states[end])
    assert (counted(net, "insert"), counted(net, "delete")) == (other - one, one - other)
