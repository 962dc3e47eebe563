"""Statements that overlap give the rows of one after the other, or one of them fails and leaves nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException

from tests.spark.test_row_commands import FIRST, MORE, PROTECTIONS, compared, in_files
from tests.support import row_model
from tests.support.lake import ALICE
from tests.support.row_model import Row, Statement
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_tables import stock_table

INSERTS = " WHEN NOT MATCHED THEN INSERT (id, v, p) VALUES (s.id, s.v, s.p)"
KINDS = ["plain, partitioned", "uniform key, merge-on-read", "ORC, bucketed", "plain, merge-on-read"]


def _inserting_merge(random: Random) -> Statement:
    """MERGE that only inserts."""
    keys = sorted(random.sample(range(12), 3))

    def apply(rows: list[Row]) -> list[Row]:
        known = {row[0] for row in rows}
        return rows + [(key, "m", key % 3) for key in keys if key not in known]

    source = ", ".join(f"({key}, 'm', {key % 3})" for key in keys)
    return Statement(
        f"MERGE INTO {{}} t USING (SELECT * FROM VALUES {source} AS s(id, v, p)) s ON t.id = s.id" + INSERTS,
        apply,
    )


def _static_overwrite(random: Random) -> Statement:
    """INSERT OVERWRITE of a partition."""
    part = random.randrange(3)
    return Statement(
        f"INSERT OVERWRITE {{}} PARTITION (p = {part}) SELECT {part}, 'o'",
        lambda before: [row for row in before if row[2] != part] + [(part, "o", part)],
    )


def _rewrite(_: Random) -> Statement:
    """A compaction, which changes no row."""
    options = "map('rewrite-all', 'true')"
    return Statement(f"CALL {CATALOG}.system.rewrite_data_files(table => '{{}}', options => {options})", list)


def _statement(random: Random, *, partitioned: bool) -> Statement:
    more = [_inserting_merge, _rewrite] + ([_static_overwrite] if partitioned else [])
    if random.random() < 0.35:
        return random.choice(more)(random)
    return row_model.statement(random, partitioned=partitioned)


def _text(statement: Statement, table: str) -> str:
    return statement.sql.format(table.removeprefix(f"{CATALOG}.") if "CALL" in statement.sql else table)


class _Overlapping:
    """Runs one statement between the reading and the commit of another one."""

    def __init__(self, spark_lake: SparkLake, table: str) -> None:
        self.spark_lake, self.table = spark_lake, table
        self.other = spark_lake.new_session(ALICE)

    def run(self, first: Statement, meanwhile: Statement) -> tuple[bool, PySparkException | None]:
        """Whether the second one ran, and what refused the first one."""
        writes, ran = self.spark_lake.lake.services.writes, list[bool]()
        commit: Callable[..., Any] = writes.commit

        def late(*given: Any) -> Any:
            if not ran:
                ran.append(True)
                self.other.sql(_text(meanwhile, self.table)).collect()
            return commit(*given)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(writes, "commit", late)
            try:
                self.spark_lake.rows(_text(first, self.table))
            except PySparkException as error:
                return bool(ran), error
        return bool(ran), None

    def rows(self) -> Counter[Row]:
        return Counter(map(tuple, self.spark_lake.rows(f"SELECT id, v, p FROM {self.table}")))

    def strangers(self) -> set[str]:
        """Files in storage that no snapshot has."""
        data = Path(stock_table(self.spark_lake, self.table).location().removeprefix("file://")) / "data"
        stored = {f"file://{path}" for path in data.rglob("*") if path.is_file() and path.suffix != ".crc"}
        return stored - {
            row[0] for row in self.spark_lake.rows(f"SELECT file_path FROM {self.table}.all_files")
        }


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=3, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_statements_that_overlap_are_serializable(spark_lake: SparkLake, kind: str, seed: int) -> None:
    random = Random(seed)
    table = compared(spark_lake, spark_lake.namespace(), kind)
    for statement in in_files(FIRST):
        table.run(statement)
    overlapping = _Overlapping(spark_lake, table.name)
    partitioned = {**PROTECTIONS, **MORE}[kind][1] == "p"
    for _ in range(8):
        first, second = (_statement(random, partitioned=partitioned) for _ in range(2))
        if random.random() < 0.25:  # Two of one kind.
            second = first
        before = list(overlapping.rows().elements())
        ran, refused = overlapping.run(first, second)
        told = f"{seed}: {first.sql} // {second.sql}"
        found = overlapping.rows()
        if refused is not None:
            assert ran and "CONCURRENT_MODIFICATION" in str(refused.getCondition()), f"{told}: {refused}"
            assert found == Counter(second.apply(before)), told
        elif ran:
            orders = [Counter(second.apply(first.apply(before))), Counter(first.apply(second.apply(before)))]
            if (
                "WHEN MATCHED" not in first.sql and INSERTS in first.sql
            ):  # Files that it only read can go: docs/threat-model.md.
                orders.append(Counter(second.apply(before)) + Counter(first.apply(before)) - Counter(before))
            assert found in orders, told
        else:
            assert found == Counter(first.apply(before)), told
        assert not overlapping.strangers(), told
