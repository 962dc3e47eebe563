# ruff: noqa: S608 - statements and conditions are made up from random parts.
"""Random statements for a guarded table, and the same in plain Spark on a temporary view that is its model.

The model is a view of the rows in the driver. A statement that changes rows is a query of the view: what
DELETE leaves is what a SELECT finds. So Spark's own evaluation, on rows that come from no file, is compared
with what the catalog and the plugin make of the same condition by partitions, bounds, row groups and deletes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.random_conditions import ORDERED, STRUCT, as_shown, condition, literal
from tests.support.row_model import REPLACES

Rows = Counter[tuple[Any, ...]]
ZONES = ["UTC", "America/Los_Angeles", "Asia/Kolkata", "Europe/Berlin"]

FIRST: Mapping[str, str] = {
    "id": "INT",
    "p": "INT",
    "l": "BIGINT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "n": "DECIMAL(9,2)",
    "m": "DECIMAL(38,10)",
    "s": "STRING",
    "b": "BOOLEAN",
    "r": "BINARY",
    "dt": "DATE",
    "ts": "TIMESTAMP",
    "tn": "TIMESTAMP_NTZ",
    "st": STRUCT,
    "ar": "ARRAY<INT>",
    "mp": "MAP<STRING, INT>",
}
PARTITIONS = [
    None,
    "p",
    "bucket(3, id)",
    "truncate(2, s)",
    "s",
    "d",
    "f",
    "dt",
    "months(dt)",
    "years(ts)",
    "hours(tn)",
    "truncate(10, l)",
    "truncate(3, n)",
    "m",
    "b, bucket(2, s)",
    "ts",
    "r",
]
WIDER = {"INT": "BIGINT", "FLOAT": "DOUBLE", "DECIMAL(9,2)": "DECIMAL(12,2)"}


@dataclass
class Table:
    """A guarded table and its model.

    Attributes:
        spark: the session of both.
        name: the guarded table, empty.
        random: the randomness.
        modes: how commands change rows, where it is not copy-on-write.
        columns: the table's, types by name.
        refused: what was refused although plain Spark does it, by statement and error.
        trace: statements, for the message of a failure.
        states: columns and rows of snapshots.
    """

    spark: SparkSession
    name: str
    random: Random
    modes: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=lambda: dict(FIRST))
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)
    states: dict[int, tuple[dict[str, str], Rows]] = field(default_factory=dict)
    added: int = 0

    def __post_init__(self) -> None:
        self.view = f"model_{self.name.replace('.', '_')}"
        names = ", ".join(f"CAST(NULL AS {kind}) {name}" for name, kind in self.columns.items())
        self._keep(self._made(f"SELECT {names} WHERE false"))

    # --- the model

    def _made(self, query: str) -> Any:
        numbered = self.spark.sql(f"SELECT monotonically_increasing_id() AS rid, * FROM ({query})")
        java = numbered._jdf
        return self.spark._jsparkSession.createDataFrame(java.collectAsList(), java.schema())

    def _keep(self, made: Any) -> None:
        made.createOrReplaceTempView(self.view)

    def shown(self, source: str, columns: Mapping[str, str] | None = None) -> Rows:
        """The rows of a source, so that all that differs is seen: zeros, NaN, times."""
        known = self.columns if columns is None else columns
        shown = (as_shown(f"`{name}`", kind) for name, kind in known.items())
        return Counter(map(tuple, self.spark.sql(f"SELECT {', '.join(shown)} FROM {source}").collect()))

    # --- statements

    def step(self) -> None:
        """Run a random statement on both, and compare them."""
        random = self.random
        self.spark.conf.set("spark.sql.session.timeZone", random.choice(ZONES))
        kinds: list[tuple[int, Callable[[], None]]] = [
            (5, self.insert),
            (6, self.delete),
            (6, self.update),
            (6, self.merge),
            (2, self.replace_where),
            (3 if REPLACES else 0, self.replace_using),
            (1, self.overwrite),
            (2, self.overwrite_by_itself),
            (3, self.alter),
            (1, self.truncate),
        ]
        (kind,) = random.choices([k for _, k in kinds], [w for w, _ in kinds])
        kind()
        self.compare()

    def run(self, statement: str, model: str | None, *, fails: bool = False) -> bool:
        """Run a statement, and its query of the model; return whether the table took it.

        Args:
            statement: with `{}` for the table.
            model: what the rows are then, with `{}` for the model; None: they stay as they are.
            fails: whether Spark has to refuse the statement. It has to as well if it refuses the query.
        """
        zone = self.spark.conf.get("spark.sql.session.timeZone")
        self.trace.append(f"-- {zone}\n{statement.format(self.name)};")
        try:
            made = None if model is None else self._made(model.format(self.view))
        except PySparkException as problem:
            made, fails = None, True
            self.trace.append(f"-- model: {str(problem)[:200]}")
        try:
            self.spark.sql(statement.format(self.name)).collect()
        except PySparkException as problem:
            self.trace.append(f"-- {problem.getCondition()}")
            if not fails:
                word = statement.split(" {}")[0] + (
                    " … REPLACE WHERE" if "REPLACE WHERE" in statement else ""
                )
                self.refused[word, f"{problem.getCondition()} {str(problem)[:160]}"] += 1
            return False
        assert not fails, "\n".join(self.trace)
        if made is not None:
            self._keep(made)
        return True

    def rows(self, count: int, columns: Mapping[str, str]) -> str:
        """VALUES, as a query."""
        random = self.random
        names = ", ".join(columns)
        values = (", ".join(literal(random, kind) for kind in columns.values()) for _ in range(count))
        return f"SELECT * FROM VALUES {', '.join(f'({each})' for each in values)} AS v({names})"

    def insert(self) -> None:
        """INSERT INTO."""
        rows = self.rows(self.random.randrange(1, 9), self.columns)
        hint = self.random.choice(["", "/*+ COALESCE(1) */ "])
        names = ", ".join(self.columns)
        self.run(
            f"INSERT INTO {{}} SELECT {hint}* FROM ({rows})", f"SELECT {names} FROM {{}} UNION ALL ({rows})"
        )

    def _where(self) -> str:
        random = self.random
        if random.random() < 0.75:
            return condition(random, self.columns)
        name = self._one_of("INT", "STRING", "DATE")
        some = self.rows(3, {"c": self.columns[name]})
        return random.choice(
            [
                f"{name} IN (SELECT c FROM ({some}))",
                f"{name} NOT IN (SELECT c FROM ({some}) WHERE c IS NOT NULL)",
                f"EXISTS (SELECT 1 FROM ({some}) v WHERE v.c = {name})",
                f"{name} = (SELECT max(c) FROM ({some}))",
                f"{name} IN (SELECT c FROM ({some})) OR {condition(random, self.columns, depth=0)}",
            ]
        )

    def delete(self) -> None:
        """DELETE."""
        where = self._where()
        names = ", ".join(self.columns)
        self.run(
            f"DELETE FROM {{}} WHERE {where}",
            f"SELECT {names} FROM (SELECT *, ({where}) AS gone FROM {{}}) WHERE NOT coalesce(gone, false)",
        )

    def _assigned(self, source: str = "") -> dict[str, str]:
        random, found = self.random, {}
        for name in random.sample(list(self.columns), random.randrange(1, 4)):
            kind = self.columns[name]
            same = [f"t.{each}" for each in self.columns if self.columns[each] == kind]
            choices = [literal(random, kind), random.choice(same)]
            found[name] = f"{source}.{name}" if source and random.random() < 0.5 else random.choice(choices)
        return found

    def _case(self, name: str, when: Sequence[tuple[str, str]], default: str) -> str:
        if not when:
            return f"{default} AS {name}"
        parts = " ".join(f"WHEN {flag} THEN CAST({value} AS {self.columns[name]})" for flag, value in when)
        return f"CASE {parts} ELSE {default} END AS {name}"

    def update(self) -> None:
        """UPDATE."""
        where, assigned = self._where(), self._assigned()
        sets = ", ".join(f"{name} = {value}" for name, value in assigned.items())
        columns = ", ".join(
            self._case(name, [("hit", assigned[name])] if name in assigned else [], f"t.{name}")
            for name in self.columns
        )
        self.run(
            f"UPDATE {{}} t SET {sets} WHERE {where}",
            f"SELECT {columns} FROM (SELECT *, coalesce({where}, false) AS hit FROM {{}}) t",
        )

    def truncate(self) -> None:
        """TRUNCATE TABLE, or DELETE without a condition."""
        if self.random.random() < 0.5:
            statement = self.random.choice(["TRUNCATE TABLE {}", "DELETE FROM {}"])
            self.run(statement, self._named("{} WHERE false"))

    def _named(self, source: str) -> str:
        return f"SELECT {', '.join(self.columns)} FROM {source}"

    def replace_where(self) -> None:
        """INSERT INTO … REPLACE WHERE: refused where the rows that match are not whole files."""
        where = condition(self.random, self.columns, depth=1)
        rows = self.rows(2, self.columns)
        self.run(
            f"INSERT INTO {{}} REPLACE WHERE {where} {rows}",
            f"SELECT {', '.join(self.columns)} FROM (SELECT *, ({where}) AS gone FROM {{}}) "
            f"WHERE NOT coalesce(gone, false) UNION ALL ({rows})",
        )

    def replace_using(self) -> None:
        """INSERT INTO … REPLACE USING."""
        names = ", ".join(self.columns)
        comparable = [name for name, kind in self.columns.items() if "MAP" not in kind]
        keys = self.random.sample(comparable, self.random.randrange(1, 3))
        rows = self.rows(3, self.columns)
        equal = " AND ".join(f"s.{key} = t.{key}" for key in keys)
        self.run(
            f"INSERT INTO {{}} REPLACE USING ({', '.join(keys)}) {rows}",
            f"SELECT {names} FROM {{}} t WHERE NOT EXISTS (SELECT 1 FROM ({rows}) s WHERE {equal}) "
            f"UNION ALL ({rows})",
        )

    def overwrite(self) -> None:
        """INSERT OVERWRITE of all rows."""
        rows = self.rows(4, self.columns)
        self.run(f"INSERT OVERWRITE {{}} {rows}", rows)

    def overwrite_by_itself(self) -> None:
        """INSERT OVERWRITE of a table that is read."""
        where = self._where()
        statement = f"INSERT OVERWRITE {{0}} SELECT * FROM {{0}} WHERE {where}"
        self.run(statement, self._named(f"{{}} WHERE {where}"))

    def merge(self) -> None:
        """MERGE with random clauses."""
        random = self.random
        source = self._source()
        key = self._one_of("INT", "STRING", "DATE", "DOUBLE", "TIMESTAMP")
        on = random.choice([f"t.{key} = s.{key}", f"t.{key} <=> s.{key}"])
        if random.random() < 0.4:
            on += f" AND {condition(random, self.columns, 't.', depth=0)}"
        matched = [
            (self._test(random.choice(["t.", "s."])), None if random.random() < 0.4 else self._assigned("s"))
            for _ in range(random.randrange(3))
        ]
        by_source = [
            (condition(random, self.columns, "t.", 0), None if random.random() < 0.4 else self._assigned())
            for _ in range(random.choice([0, 0, 1, 2]))
        ]
        inserts = [self._test("s.") for _ in range(random.choice([0, 1, 1]))]
        matched = _until_always(matched)
        if not (matched or by_source or inserts):
            return
        text = f"MERGE INTO {{}} t USING {source} s ON {on}"
        text += _clauses("WHEN MATCHED", matched)
        text += "".join(
            f" WHEN NOT MATCHED{'' if test is None else f' AND {test}'} THEN INSERT *" for test in inserts
        )
        text += _clauses("WHEN NOT MATCHED BY SOURCE", by_source)
        pairs = f"{self.view} t JOIN {source} s ON {on}"
        twice = self.spark.sql(f"SELECT 1 FROM {pairs} GROUP BY t.rid HAVING count(*) > 1").collect()
        # Copy-on-write would keep a row once for each match.
        kept = not matched and bool(by_source) and self.modes.get("merge") != "merge-on-read"
        checked = kept or (bool(matched) and matched != [(None, None)])
        queries = [
            self._acted(pairs if matched else pairs.replace(" JOIN ", " LEFT SEMI JOIN ", 1), matched),
            self._acted(f"{self.view} t LEFT ANTI JOIN {source} s ON {on}", by_source),
        ]
        if inserts:
            test = "" if inserts[0] is None else f" WHERE {inserts[0]}"
            names = ", ".join(f"s.{each}" for each in self.columns)
            queries.append(f"SELECT {names} FROM {source} s LEFT ANTI JOIN {self.view} t ON {on}{test}")
        self.run(text, " UNION ALL ".join(f"({each})" for each in queries), fails=bool(twice) and checked)

    def _one_of(self, *kinds: str) -> str:
        """A column of one of some types; there always is one, since some are never dropped."""
        return self.random.choice([each for each, kind in self.columns.items() if kind in kinds])

    def _test(self, prefix: str) -> str | None:
        if self.random.random() < 0.5:
            return None
        return condition(self.random, self.columns, prefix, depth=0)

    def _acted(self, source: str, clauses: Sequence[tuple[str | None, dict[str, str] | None]]) -> str:
        tests = " ".join(f"WHEN {test or 'true'} THEN {place}" for place, (test, _) in enumerate(clauses))
        act = f"CASE {tests} ELSE -1 END" if clauses else "-1"
        updates = [(f"{act} = {at}", sets) for at, (_, sets) in enumerate(clauses) if sets]
        columns = ", ".join(
            self._case(name, [(flag, sets[name]) for flag, sets in updates if name in sets], f"t.{name}")
            for name in self.columns
        )
        gone = [str(place) for place, (_, sets) in enumerate(clauses) if sets is None]
        where = f" WHERE {act} NOT IN ({', '.join(gone)})" if gone else ""
        return f"SELECT {columns} FROM {source}{where}"

    def _source(self) -> str:
        """A view with rows to merge; some have keys of the table's rows."""
        view = f"{self.view}_source"
        some = self.rows(self.random.randrange(1, 5), self.columns)
        known = f"({some}) UNION ALL ({self._named(self.view)} LIMIT 3)"
        self._made(some if self.random.random() < 0.3 else known).createOrReplaceTempView(view)
        return view

    def alter(self) -> None:
        """Evolution of schema, partitions, order, and modes."""
        self.random.choice(
            [
                self._add_column,
                self._drop_column,
                self._rename_column,
                self._widen_column,
                self._partition_field,
                self._mode,
                self._property,
            ]
        )()

    def _add_column(self) -> None:
        self.added += 1
        name, kind = f"c{self.added}", self.random.choice([*ORDERED, STRUCT])
        model = f"SELECT {', '.join(self.columns)}, CAST(NULL AS {kind}) AS {name} FROM {{}}"
        if self.run(f"ALTER TABLE {{}} ADD COLUMN {name} {kind}", model):
            self.columns[name] = kind

    def _drop_column(self) -> None:
        name = self.random.choice([each for each in self.columns if each not in ("id", "s", "dt")])
        rest = {each: kind for each, kind in self.columns.items() if each != name}
        if self.run(f"ALTER TABLE {{}} DROP COLUMN {name}", f"SELECT {', '.join(rest)} FROM {{}}"):
            self.columns = rest

    def _rename_column(self) -> None:
        name = self.random.choice([each for each in self.columns if each not in ("id", "s", "dt")])
        self.added += 1
        new = f"c{self.added}"
        names = ", ".join(f"{each} AS {new}" if each == name else each for each in self.columns)
        if self.run(f"ALTER TABLE {{}} RENAME COLUMN {name} TO {new}", f"SELECT {names} FROM {{}}"):
            self.columns = {new if each == name else each: kind for each, kind in self.columns.items()}

    def _widen_column(self) -> None:
        some = [each for each, kind in self.columns.items() if kind in WIDER and each != "id"]
        if not some:
            return
        name = self.random.choice(some)
        kind = WIDER[self.columns[name]]
        names = (f"CAST({each} AS {kind}) AS {each}" if each == name else each for each in self.columns)
        if self.run(
            f"ALTER TABLE {{}} ALTER COLUMN {name} TYPE {kind}", f"SELECT {', '.join(names)} FROM {{}}"
        ):
            self.columns[name] = kind

    def _partition_field(self) -> None:
        fields = self.random.choice(["bucket(2, id)", "p", "truncate(1, s)", "days(ts)", "b", "dt"])
        self.run(f"ALTER TABLE {{}} {self.random.choice(['ADD', 'DROP'])} PARTITION FIELD {fields}", None)

    def _mode(self) -> None:
        command = self.random.choice(["delete", "update", "merge"])
        mode = self.random.choice(["merge-on-read", "copy-on-write"])
        if self.run(f"ALTER TABLE {{}} SET TBLPROPERTIES ('write.{command}.mode' = '{mode}')", None):
            self.modes[command] = mode

    def _property(self) -> None:
        change = self.random.choice(
            [
                "WRITE ORDERED BY s, id",
                "WRITE LOCALLY ORDERED BY dt DESC",
                "WRITE UNORDERED",
                "SET TBLPROPERTIES ('write.delete.granularity' = 'partition')",
                "SET TBLPROPERTIES ('write.format.default' = 'orc')",
                "SET TBLPROPERTIES ('write.format.default' = 'parquet')",
                "SET TBLPROPERTIES ('write.parquet.page-row-limit' = '2')",
                "SET TBLPROPERTIES ('write.distribution-mode' = 'none')",
                "SET TBLPROPERTIES ('write.spark.fanout.enabled' = 'true')",
            ]
        )
        self.run(f"ALTER TABLE {{}} {change}", None)

    # --- comparison

    def compare(self) -> None:
        """Compare all rows, the rows of two conditions, aggregates, and an earlier snapshot."""
        self._same(self.name, self.view)
        for _ in range(2):
            where = condition(self.random, self.columns)
            self._same(f"{self.name} WHERE {where}", f"{self.view} WHERE {where}")
        self._same_history()

    def _same(self, found: str, expected: str) -> None:
        ours, theirs = self.shown(found), self.shown(expected)
        told = [f"-- SELECT … FROM {found}", f"-- missing: {theirs - ours}", f"-- too many: {ours - theirs}"]
        assert ours == theirs, "\n".join([*self.trace, *told])

    def _same_history(self) -> None:
        if self.states and self.random.random() < 0.5:
            snapshot, (columns, rows) = self.random.choice(list(self.states.items()))
            found = self.shown(f"{self.name} VERSION AS OF {snapshot}", columns)
            assert found == rows, "\n".join([*self.trace, f"-- VERSION AS OF {snapshot}"])

    def remember(self, snapshot: int | None) -> None:
        """Keep what the table has now, for a later look, if it has a new snapshot."""
        if snapshot is not None and snapshot not in self.states:
            self.states[snapshot] = (dict(self.columns), self.shown(self.view))


def _until_always(clauses: list[tuple[str | None, dict[str, str] | None]]) -> list[Any]:
    """SQL takes a clause without a condition as the last one alone."""
    kept = []
    for each in clauses:
        kept.append(each)
        if each[0] is None:
            break
    return kept


def _clauses(when: str, clauses: Sequence[tuple[str | None, dict[str, str] | None]]) -> str:
    found = ""
    for test, sets in clauses:
        act = "DELETE" if sets is None else "UPDATE SET " + ", ".join(f"t.{n} = {v}" for n, v in sets.items())
        found += f" {when}{'' if test is None else f' AND {test}'} THEN {act}"
    return found
