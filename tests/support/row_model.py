"""Statements that change rows, and what they do to a list of rows: SQL's three-valued logic in Python.

A table has the columns `id INT, v STRING, p INT`. Each can be NULL, and a row can be there twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pyspark

#: Whether INSERT … REPLACE USING and REPLACE ON work: Spark before 4.3 refuses them for all tables.
REPLACES = pyspark.__version__ >= "4.3"

Row = tuple[int | None, str | None, int | None]
Truth = bool | None


@dataclass(frozen=True)
class Condition:
    """A condition in SQL, and its value for a row."""

    sql: str
    of: Callable[[Row], Truth]


@dataclass(frozen=True)
class Statement:
    """A statement in SQL with `{}` for the table.

    Attributes:
        apply: makes the rows after it out of those before.
        touches: whether a copy-on-write has to read the file of a row; None: not said.
    """

    sql: str
    apply: Callable[[list[Row]], list[Row]]
    touches: Callable[[Row], bool] | None = field(default=None)


def _not(value: Truth) -> Truth:
    return None if value is None else not value


def _compared(value: object, compare: Callable[[], bool]) -> Truth:
    return None if value is None else compare()


def condition(random: Random) -> Condition:
    """A random condition."""
    n, p = random.randrange(12), random.randrange(3)
    plain = [
        Condition(f"id = {n}", lambda r: _compared(r[0], lambda: r[0] == n)),
        Condition(f"id > {n}", lambda r: _compared(r[0], lambda: (r[0] or 0) > n)),
        Condition(f"p = {p}", lambda r: _compared(r[2], lambda: r[2] == p)),
        Condition("p IS NULL", lambda r: r[2] is None),
        Condition("v IS NULL", lambda r: r[1] is None),
        Condition("v LIKE 'a%'", lambda r: _compared(r[1], lambda: str(r[1]).startswith("a"))),
        Condition(f"id <=> {n}", lambda r: r[0] == n),
        Condition(
            f"id IN ({n}, {n + 1}, NULL)", lambda r: True if r[0] in (n, n + 1) and r[0] is not None else None
        ),
        Condition(
            f"id IN (SELECT c FROM VALUES ({n}), (3) AS s(c))",  # noqa: S608
            lambda r: _compared(r[0], lambda: r[0] in (n, 3)),
        ),
        Condition(
            f"id NOT IN (SELECT c FROM VALUES ({n}) AS s(c))",  # noqa: S608
            lambda r: _compared(r[0], lambda: r[0] != n),
        ),
    ]
    first, second = random.choice(plain), random.choice(plain)
    if "SELECT" in first.sql + second.sql:
        return first
    kind = random.randrange(4)
    if kind == 0:
        return Condition(f"NOT ({first.sql})", lambda r: _not(first.of(r)))
    if kind == 1:
        return Condition(
            f"({first.sql}) OR ({second.sql})",
            lambda r: True if first.of(r) or second.of(r) else _and(first.of(r), second.of(r)),
        )
    if kind == 2:
        return Condition(f"({first.sql}) AND ({second.sql})", lambda r: _and(first.of(r), second.of(r)))
    return first


def _and(left: Truth, right: Truth) -> Truth:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def delete(where: Condition) -> Statement:
    """DELETE."""
    return Statement(
        f"DELETE FROM {{}} WHERE {where.sql}",  # noqa: S608
        lambda rows: [r for r in rows if where.of(r) is not True],
        lambda r: where.of(r) is True,
    )


def update(where: Condition) -> Statement:
    """UPDATE of all columns: the partition of a row changes, too."""
    return Statement(
        f"UPDATE {{}} SET v = concat(v, 'u'), p = (p + 1) % 3 WHERE {where.sql}",  # noqa: S608
        lambda rows: [_updated(r) if where.of(r) is True else r for r in rows],
        lambda r: where.of(r) is True,
    )


def _updated(row: Row) -> Row:
    key, text, part = row
    return key, None if text is None else text[:40] + "u", None if part is None else (part + 1) % 3


def merge(random: Random) -> Statement:
    """MERGE with the clauses MATCHED (twice), NOT MATCHED and NOT MATCHED BY SOURCE."""
    keys = sorted(random.sample(range(16), 3))
    source = ", ".join(f"({k}, 's{k}', {k % 3})" for k in keys)
    clauses = ["WHEN MATCHED AND t.v IS NULL THEN DELETE", "WHEN MATCHED THEN UPDATE SET v = s.v"]
    if inserts := random.random() < 0.7:
        clauses.append("WHEN NOT MATCHED THEN INSERT (id, v, p) VALUES (s.id, s.v, s.p)")
    if by_source := random.random() < 0.4:
        clauses.append("WHEN NOT MATCHED BY SOURCE AND t.p = 1 THEN UPDATE SET v = 'gone'")

    def apply(rows: list[Row]) -> list[Row]:
        after: list[Row] = []
        for row in rows:
            if row[0] in keys:
                after += [] if row[1] is None else [(row[0], f"s{row[0]}", row[2])]
            else:
                after.append((row[0], "gone", row[2]) if by_source and row[2] == 1 else row)
        known = {row[0] for row in rows}
        return after + [(k, f"s{k}", k % 3) for k in keys if inserts and k not in known]

    sql = f"MERGE INTO {{}} t USING (VALUES {source} AS s(id, v, p)) s ON t.id = s.id {' '.join(clauses)}"
    return Statement(
        sql.replace("USING (VALUES", "USING (SELECT * FROM VALUES"),
        apply,
        None if by_source else lambda r: r[0] in keys,
    )


def insert(random: Random) -> Statement:
    """INSERT INTO."""
    rows = [_row(random) for _ in range(random.randrange(1, 4))]
    return Statement(
        f"INSERT INTO {{}} VALUES {_values(rows)}",  # noqa: S608
        lambda before: before + rows,
        lambda _: False,
    )


def overwrite(random: Random) -> Statement:
    """INSERT … REPLACE WHERE of a partition."""
    part = random.randrange(3)
    rows: list[Row] = [(random.randrange(12), "r", part)]
    return Statement(
        f"INSERT INTO {{}} REPLACE WHERE p = {part} VALUES {_values(rows)}",  # noqa: S608
        lambda before: [r for r in before if r[2] != part] + rows,
    )


def replace_using(random: Random) -> Statement:
    """INSERT … REPLACE USING: NULL equals nothing, and all rows come."""
    rows = [_row(random) for _ in range(random.randrange(1, 5))]
    found = {row[0] for row in rows} - {None}
    return Statement(
        f"INSERT INTO {{}} REPLACE USING (id) VALUES {_values(rows)}",  # noqa: S608
        lambda before: [r for r in before if r[0] not in found] + rows,
        lambda r: r[0] in found,
    )


def replace_on(random: Random) -> Statement:
    """INSERT … REPLACE ON."""
    rows = [_row(random) for _ in range(random.randrange(1, 4))]
    source = f"(SELECT * FROM VALUES {_values(rows)} AS v(a, b, c)) AS s"  # noqa: S608

    def goes(row: Row) -> bool:
        return any(row[2] == c and None not in (row[0], a) and (row[0] or 0) >= (a or 0) for a, _, c in rows)

    return Statement(
        f"INSERT INTO {{}} AS t REPLACE ON t.p <=> s.c AND t.id >= s.a {source}",
        lambda before: [r for r in before if not goes(r)] + rows,
        goes,
    )


def statement(random: Random, *, partitioned: bool) -> Statement:
    """A random statement; on a table that is not partitioned, none that needs whole files."""
    kinds = [
        lambda: insert(random),
        lambda: delete(condition(random)),
        lambda: update(condition(random)),
        lambda: merge(random),
    ]
    if REPLACES:
        kinds += [lambda: replace_using(random), lambda: replace_on(random)]
    return random.choice(kinds + ([lambda: overwrite(random)] if partitioned else []))()


def _row(random: Random) -> Row:
    return (
        random.choice([None, *range(12)]),
        random.choice([None, "a", "b", "ab"]),
        random.choice([None, 0, 1, 2]),
    )


def _values(rows: list[Row]) -> str:
    return ", ".join(f"({_sql(a)}, {_sql(b)}, {_sql(c)})" for a, b, c in rows)


def _sql(value: object) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
