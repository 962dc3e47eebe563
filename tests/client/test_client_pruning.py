"""Row groups are left out only where no row of them can match, and then they are not read at all."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import expressions as iceberg
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
)

import lakewarden
from catalog.client import filters
from catalog.client import settings as write_settings
from catalog.client.files import opened
from policy.errors import DecryptionRefused, RequestInvalid
from tests.support.lake import ALICE, CAROL, policy, standard_policies
from tests.support.service import Service
from tests.support.tables import ENCRYPTED

Make = Callable[..., str]

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "small", IntegerType()),
    NestedField(3, "money", DecimalType(9, 2)),
    NestedField(4, "name", StringType()),
    NestedField(5, "day", DateType()),
    NestedField(6, "at", TimestampType()),
    NestedField(7, "flag", BooleanType()),
    NestedField(8, "real", DoubleType()),
    NestedField(9, "ssn", StringType()),
)
GROUPS = 8
EPOCH = datetime.datetime(1970, 1, 1)
REALS = (0.0, -0.0, math.nan, 2.0, None)


def row(number: int) -> dict[str, Any]:
    """A row; its values grow with its number, and every fourth group has null in some columns alone."""
    group = number // 8
    values: dict[str, Any] = {
        "small": number - 20,
        "money": Decimal(number - 20).scaleb(-1).quantize(Decimal("0.01")),
        "name": "aé\U0001f600z"[group % 4] * (number % 8),
        "day": EPOCH.date() + datetime.timedelta(number - 20),
        "at": EPOCH + datetime.timedelta(microseconds=number - 20),
        "flag": group % 3 == 0,
        "real": REALS[number % 5] if group % 2 else float(number),
    }
    gone = {
        name for place, name in enumerate(values) if (group + place) % 4 == 0 or (number + place) % 7 == 0
    }
    return {"id": number, "ssn": f"s{number}"} | {
        name: None if name in gone else value for name, value in values.items()
    }


ROWS = [row(number) for number in range(8 * GROUPS)]
STARTS = range(0, len(ROWS), 8)
MODES = {
    "plaintext": {},
    "encrypted": ENCRYPTED,
    "keyed": {"encryption.columns": "pii:ssn;hr:id,name,money"},
    "keyed-signed": {"encryption.columns": "pii:ssn;hr:id,name,money", "encryption.footer": "plaintext"},
}
KEYS = policy("carol-keys", {"key": ["lakewarden", "hr"]}, {CAROL: ["release"]})


def append_in_groups(table: lakewarden.Table, rows: list[dict[str, Any]]) -> None:
    """Append rows as one file with row groups of eight."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_settings, "ROW_GROUP_ROWS", 8)
        table.append(pa.Table.from_pylist(rows, table.scan().to_arrow().schema))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(each, marks=() if each in ("encrypted", "keyed") else pytest.mark.nightly)
        for each in MODES
    ],
)
def carols(request: pytest.FixtureRequest, served: Service) -> Iterator[lakewarden.Table]:
    """A table with a file of many row groups, later altered, for a user without the key of `ssn`."""
    name = f"db.pruned_{request.param.replace('-', '_')}"
    stock = served.lake.catalog().create_table(name, SCHEMA, properties=MODES[request.param])
    append_in_groups(lakewarden.connect(served.url, served.token(ALICE)).table(name), ROWS)
    with stock.update_schema() as change:
        change.rename_column("small", "wide")
        change.update_column("small", LongType())
        change.update_column("money", DecimalType(18, 2))
        change.add_column("new", LongType())
    served.lake.set_policies([*standard_policies(), KEYS])
    yield lakewarden.connect(served.url, served.token(CAROL)).table(name)
    served.lake.set_policies(standard_policies())


WHOLE = st.integers(-30, 70)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "id": WHOLE,
    "wide": WHOLE | st.just(1 << 40),
    "new": WHOLE,
    "money": WHOLE.map(lambda each: Decimal(each).scaleb(-1).quantize(Decimal("0.01"))),
    "name": st.text("aé\U0001f600z", max_size=3),
    "day": WHOLE.map(lambda each: (EPOCH.date() + datetime.timedelta(each)).isoformat()),
    "at": WHOLE.map(lambda each: (EPOCH + datetime.timedelta(microseconds=each)).isoformat()),
    "flag": st.booleans(),
    "real": st.sampled_from([0.0, -0.0, 2.0, 30.0]),
}
COMPARISONS = (
    iceberg.EqualTo,
    iceberg.NotEqualTo,
    iceberg.LessThan,
    iceberg.LessThanOrEqual,
    iceberg.GreaterThan,
    iceberg.GreaterThanOrEqual,
)


def predicates(name: str) -> st.SearchStrategy[Any]:
    value = VALUES[name]
    made = [
        st.builds(lambda kind, each: kind(name, each), st.sampled_from(COMPARISONS), value),
        st.builds(lambda kind, some: kind(name, some), st.sampled_from((iceberg.In, iceberg.NotIn)),
                  st.sets(value, min_size=1, max_size=3)),
        st.sampled_from((iceberg.IsNull(name), iceberg.NotNull(name))),
    ]  # fmt: skip
    if name == "name":
        starts = st.sampled_from((iceberg.StartsWith, iceberg.NotStartsWith))
        made.append(st.builds(lambda kind, each: kind(name, each), starts, value))
    if name == "real":
        made.append(st.sampled_from((iceberg.IsNaN(name), iceberg.NotNaN(name))))
    return st.one_of(made)


FILTERS = st.recursive(
    st.sampled_from(sorted(VALUES)).flatmap(predicates),
    lambda inner: (
        st.builds(iceberg.And, inner, inner)
        | st.builds(iceberg.Or, inner, inner)
        | st.builds(iceberg.Not, inner)
    ),
    max_leaves=3,
)


@pytest.mark.nightly
@settings(max_examples=10, deadline=None)
@given(wanted=st.lists(FILTERS, min_size=5, max_size=5))
def test_no_row_that_matches_is_left_out(carols: lakewarden.Table, wanted: list[Any]) -> None:
    scan = carols.scan(columns=list(VALUES))
    plan = scan._plan()
    fields = [each for each in plan.schema.fields if each.name in VALUES]
    (file,) = plan.files
    with opened(plan, file, scan.storage, fields) as source:
        rows = pa.concat_tables(rows for _, rows in source.row_groups(fields))
        for each in wanted:
            bound = filters.bound(each, Schema(*fields), case_sensitive=True)
            kept = filters.row_filter(bound, Schema(*fields))
            left = [rows for _, rows in source.row_groups(fields, bound)]
            found = pa.concat_tables(left).filter(kept)["id"] if left else []
            assert list(found) == list(rows.filter(kept)["id"])


def read_groups(table: lakewarden.Table, wanted: Any, columns: list[str]) -> list[int]:
    """The numbers of the first rows of the row groups that a filter leaves."""
    plan = table.scan(columns=columns)._plan()
    fields = [each for each in plan.schema.fields if each.name in columns]
    bound = filters.bound(filters.parsed(wanted), Schema(*fields), case_sensitive=True)
    (file,) = plan.files
    with opened(plan, file, table.scan().storage, fields) as source:
        return [start for start, _ in source.row_groups(fields, bound)]


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        ("id >= 9 and id < 17", [8, 16]),
        ("wide = 0", [16]),
        ("day = '1970-01-03'", [16]),
        ("at > '1970-01-01T00:00:00.000041'", [56]),
        ("money < -2.00", []),
        ("id = 3 or id = 60", [0, 56]),
        ("id is null", []),
        ("new = 1", list(STARTS)),
        ("real > 1000", [0, 8, 24, 32, 40, 56]),
    ],
)
def test_row_groups_that_cannot_match_are_left_out(
    carols: lakewarden.Table, wanted: str, left: list[int]
) -> None:
    columns = ["id", "wide", "day", "at", "money", "new", "real"]
    assert read_groups(carols, wanted, columns) == left


@pytest.mark.nightly
def test_a_row_group_that_is_left_out_is_not_read(make: Make, alice: lakewarden.Connection) -> None:
    table = alice.table(make(Schema(NestedField(1, "id", LongType())), properties=ENCRYPTED))
    append_in_groups(table, [{"id": number} for number in range(24)])
    (file,) = table.scan()._plan().files
    path = Path(file.path.removeprefix("file://"))
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    with pytest.raises(DecryptionRefused):
        table.scan("id >= 7").to_arrow()
    assert table.scan("id >= 8").to_arrow()["id"].to_pylist() == list(range(8, 24))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "text", ["", "id >", "id = 1 and", "id in ()", "name like '%x'", "id = 1e999", "(" * 1500]
)
def test_a_text_that_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(RequestInvalid, match="cannot be parsed") as refused:
        filters.parsed(text)
    assert refused.value.rule == "filter"
