"""Random values and conditions in SQL, and what tells the values of a type apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

#: Literals by type: extremes, values that are equal in one order and not in another, dates of old calendars.
LITERALS: Mapping[str, Sequence[str]] = {
    "BOOLEAN": ["true", "false"],
    "INT": ["0", "1", "-1", "3", "7", "2147483647", "-2147483648"],
    "BIGINT": ["0L", "1L", "-1L", "3L", "7L", "9223372036854775807L", "-9223372036854775808L"],
    "FLOAT": [
        "float('0.0')",
        "float('-0.0')",
        "1.5F",
        "float('NaN')",
        "float('Infinity')",
        "float('-Infinity')",
        "1.4E-45F",
        "0.1F",
    ],
    "DOUBLE": [
        "double('0.0')",
        "double('-0.0')",
        "1.5D",
        "double('NaN')",
        "double('Infinity')",
        "double('-Infinity')",
        "4.9E-324D",
        "1.7976931348623157E308D",
        "0.1D",
    ],
    "DECIMAL(9,2)": ["0.00BD", "1.50BD", "-1.50BD", "9999999.99BD", "-9999999.99BD"],
    "DECIMAL(12,2)": ["0.00BD", "1.50BD", "-1.50BD", "9999999999.99BD", "-9999999999.99BD"],
    "DECIMAL(38,10)": [
        "0.0000000000BD",
        "1.5000000000BD",
        "-0.0000000001BD",
        "9999999999999999999999999999.9999999999BD",
        "-9999999999999999999999999999.9999999999BD",
    ],
    "STRING": [
        "''",
        "'a'",
        "'A'",
        "'ab'",
        "'ab '",
        "'a%'",
        "'é'",
        "'𝄞'",
        "'\uffff'",
        "'abcdefghijklmnopqrstuvwxyz'",
        "'abcdefghijklmnopzzzz'",
    ],
    "BINARY": ["X''", "X'00'", "X'00FF'", "X'FF'"],
    "DATE": [
        "date'1970-01-01'",
        "date'1969-12-31'",
        "date'0001-01-01'",
        "date'1582-10-04'",
        "date'1582-10-15'",
        "date'1500-02-28'",
        "date'9999-12-31'",
        "date'2024-02-29'",
        "date'-0044-03-15'",
    ],
    "TIMESTAMP": [
        "timestamp'1970-01-01 00:00:00Z'",
        "timestamp'1969-12-31 23:59:58.999999Z'",
        "timestamp'0001-01-01 00:00:00Z'",
        "timestamp'1582-10-04 12:00:00Z'",
        "timestamp'1900-01-01 00:00:00Z'",
        "timestamp'2024-03-31 01:30:00Z'",
        "timestamp'2024-02-29 23:30:00.000001Z'",
        "timestamp'9999-12-31 23:59:59.999999Z'",
    ],
    "TIMESTAMP_NTZ": [
        "timestamp_ntz'1970-01-01 00:00:00'",
        "timestamp_ntz'1969-12-31 23:59:58.999999'",
        "timestamp_ntz'0001-01-01 00:00:00'",
        "timestamp_ntz'1582-10-10 12:00:00'",
        "timestamp_ntz'2024-02-29 23:30:00.000001'",
        "timestamp_ntz'9999-12-31 23:59:59.999999'",
    ],
    "ARRAY<INT>": ["array()", "array(1, NULL)", "array(2147483647)"],
    "MAP<STRING, INT>": ["map()", "map('a', 1, 'b', NULL)"],
}
STRUCT = "STRUCT<a: INT, x: STRING, d: DOUBLE>"
ORDERED = [each for each in LITERALS if "<" not in each]


def literal(random: Random, kind: str, *, null: float = 0.15) -> str:
    """A random value of a type, in SQL."""
    if random.random() < null:
        return f"CAST(NULL AS {kind})"
    if kind == STRUCT:
        values = (f"'{n}', {literal(random, t)}" for n, t in (("a", "INT"), ("x", "STRING"), ("d", "DOUBLE")))
        return f"named_struct({', '.join(values)})"
    found = random.choice(LITERALS[kind])
    return f"CAST({found} AS {kind})" if "<" in kind or "DECIMAL" in kind else found


def condition(random: Random, columns: Mapping[str, str], prefix: str = "", depth: int = 2) -> str:
    """A random condition on a table's columns.

    Args:
        random: the randomness.
        columns: types by name.
        prefix: before each name.
        depth: how far conditions are nested.
    """
    if depth and random.random() < 0.4:
        left, right = (condition(random, columns, prefix, depth - 1) for _ in range(2))
        return random.choice([f"({left}) AND ({right})", f"({left}) OR ({right})", f"NOT ({left})"])
    name = random.choice([each for each in columns if columns[each] in (*ORDERED, STRUCT)])
    kind, term = columns[name], f"{prefix}{name}"
    if kind == STRUCT:
        inner, kind = random.choice([("a", "INT"), ("x", "STRING"), ("d", "DOUBLE")])
        term = f"{term}.{inner}"
    value = lambda: literal(random, kind, null=0.05)  # noqa: E731
    compared = f"{term} {random.choice(['=', '<', '<=', '>', '>=', '<>', '<=>'])} {value()}"
    kinds = [
        compared,
        compared,
        f"{term} IS NULL",
        f"{term} IS NOT NULL",
        f"{term} IN ({value()}, {value()})",
        f"{term} IN ({value()}, NULL)",
        f"{term} NOT IN ({value()}, {value()})",
        f"{term} BETWEEN {value()} AND {value()}",
        f"coalesce({term} = {value()}, true)",
    ]
    if kind == "STRING":
        patterns = ("a%", "%b", "ab_", "a\\\\%", "", "é%", "abcdefghijklmnopq%")
        kinds += [f"{term} LIKE '{each}'" for each in patterns]
        kinds += [f"length({term}) > 1", f"upper({term}) = 'AB'", f"startswith({term}, 'a')"]
    if kind in ("FLOAT", "DOUBLE"):
        kinds += [f"isnan({term})", f"{term} + 1 > 1", f"{term} = 0", f"{term} > 1", f"nanvl({term}, 0) >= 0"]
    if kind in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        kinds += [f"{term} > date'1970-01-01'", f"{term} < '1969-12-31'"]
        kinds += [f"CAST({term} AS DATE) = date'2024-02-29'"]
    if kind == "DATE":
        kinds += [f"{term} = '2024-02-29'", f"year({term}) < 1970"]
        kinds += [f"{term} <= timestamp'1970-01-01 00:00:00'"]
    if kind in ("INT", "BIGINT"):
        kinds += [f"{term} = 1.0", f"{term} > 0.5", f"{term} = '3'", f"{term} % 2 = 1"]
    same = [f"{prefix}{each}" for each in columns if columns[each] == kind]
    return random.choice([*kinds, f"{term} = {random.choice(same)}"])


def as_shown(name: str, kind: str) -> str:
    """An expression that tells each value of a column from others. Python has too few dates and times."""
    if kind == "BINARY":
        return f"hex({name})"
    if kind == "TIMESTAMP":
        return f"unix_micros({name})"
    return f"CAST({name} AS STRING)"
