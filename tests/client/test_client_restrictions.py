"""Row filters and masks without Spark: what they make of rows in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType

from catalog.client.columns import arrow_schema, arrow_type
from catalog.client.errors import DataFileDamaged
from catalog.client.masks import masked
from catalog.client.restricted import Restricted, types_of
from catalog.client.row_filters import kept
from policy.errors import NotSupportedYet
from policy.restrictions.actions import MaskAction, takes
from policy.restrictions.predicate import Compare, Comparison, In, IsNan, IsNull, Literal, Not, Predicate
from policy.restrictions.predicate import all_of as both
from policy.restrictions.predicate import any_of as either
from policy.restrictions.wire import predicate_json
from policy.restrictions.wire_reading import MAX_LEVELS, restriction_of
from tests.support import naive_restrictions as naive

FILTERS = naive.vectors("filters")
SCHEMA = Schema.model_validate({"type": "struct", **FILTERS["schema"]})
KINDS = types_of(SCHEMA)


def arrow(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """Plain values of the vectors as Arrow has them."""
    if pa.types.is_temporal(kind):
        stored = pa.int32() if kind.bit_width == pa.int32().bit_width else pa.int64()
        return pa.array(values, stored).view(kind)
    if pa.types.is_struct(kind):
        names = [(each.name, int(each.metadata[b"PARQUET:field_id"])) for each in kind]
        children = [
            arrow(each.type, [None if row is None else row[number] for row in values])
            for each, (_, number) in zip(kind, names, strict=True)
        ]
        gone = pa.array([row is None for row in values], pa.bool_())
        return pa.StructArray.from_arrays(
            children, fields=[each.remove_metadata() for each in kind], mask=gone
        )
    return pa.array(values, kind)


def table(rows: list[Mapping[int, Any]]) -> pa.Table:
    """Rows of the vectors' schema."""
    columns = [
        arrow(arrow_type(each.field_type, ids=True), [row[each.field_id] for row in rows])
        for each in SCHEMA.fields
    ]
    return pa.table(columns, schema=arrow_schema(SCHEMA.fields))


def plain_row(said: Mapping[str, Any]) -> dict[int, Any]:
    """A row of the vectors by field id."""
    return {
        each["id"]: naive.value_of(each["type"], said[str(each["id"])])
        for each in FILTERS["schema"]["fields"]
    }


ROWS = [plain_row(each) for each in FILTERS["rows"]]


def types_in_arrow() -> Iterator[tuple[dict[str, Any], IcebergType]]:
    """The groups of masks whose types there are in Arrow."""
    for group in naive.vectors("masks")["masks"]:
        field = {"id": 1, "name": "c", "type": group["type"], "required": False}
        if not str(group["type"]).endswith("_ns"):
            yield group, Schema.model_validate({"type": "struct", "fields": [field]}).fields[0].field_type


def test_masks_are_those_of_the_vectors() -> None:
    for group, iceberg in types_in_arrow():
        kind, salt = arrow_type(iceberg, ids=iceberg.is_struct), bytes.fromhex(group.get("salt", ""))
        held = (
            [naive.value_of(group["type"], case[side]) for case in group["cases"]]
            for side in ("value", "masked")
        )
        values, shown = (arrow(kind, each) for each in held)
        action = MaskAction(group["action"])
        # The two zeros are equal to Arrow, and their texts differ.
        assert str(masked(action, values, salt)) == str(shown), group
        assert masked(action, values, salt).equals(shown)
        part = masked(action, values.slice(1, 1), salt)
        assert part.type == shown.type and part.equals(shown.slice(1, 1))
        assert len(masked(action, values.slice(0, 0), salt)) == 0


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "raw", [[b"\x80\x81secret"], [b"078-05-\xbf\xbf\xbf\xbf"], [b"\xf0\x9f", b"\x98\x80"]]
)
@pytest.mark.parametrize("action", [each for each in MaskAction if takes(each, "string")])
def test_masks_show_nothing_of_texts_that_are_not_utf_8(action: MaskAction, raw: list[bytes]) -> None:
    """A code point would otherwise have any number of bytes, and four of them show the whole text."""
    texts = pa.array([*raw, b"ab"]).view(pa.string())
    if action.value.startswith(("sha", "replace", "mask-to")):
        assert len(masked(action, texts, b"")) == len(texts)
        return
    with pytest.raises(DataFileDamaged, match="not UTF-8"):
        masked(action, texts, b"")


def test_row_filters_keep_the_rows_of_the_vectors() -> None:
    every = table(ROWS)
    for each in FILTERS["filters"]:
        restriction = restriction_of({"required-row-filter": each["filter"]}, KINDS)
        shown = Restricted(restriction, SCHEMA.fields[:1], SCHEMA).shown(every, SCHEMA.fields)
        assert shown["id"].to_pylist() == each["kept"], each["sql"]


@pytest.mark.parametrize(
    "said",
    [
        {"required-row-filter": {"type": "not", "child": True}},
        {"required-row-filter": {"type": "is-null", "child": {"type": "reference", "id": 99}}},
        {"required-row-filter": {"type": "is-null", "child": {"type": "reference", "name": "i"}}},
        {"required-row-filter": {"type": "in", "child": {"type": "reference", "id": 3}, "values": [None]}},
        {"required-row-filter": {"type": "eq", "left": {"type": "reference", "id": 3},
                                 "right": {"type": "literal", "value": "1"}}},
        {"required-column-projections": [{"field-id": 8, "action": "apply-expression"}]},
        {"required-column-projections": [{"field-id": 3, "action": "mask-alphanum"}]},
        {"required-column-projections": [{"field-id": 12, "action": "mask-to-fixed-value"}]},
        {"required-column-projections": [{"field-id": 8, "action": "hive-mask"}] * 2},
        {"required-column-projections": [{"field-id": 99, "action": "replace-with-null"}]},
        {"required-sample": 0.5},
    ],
)  # fmt: skip
def test_restrictions_that_are_not_known_are_refused(said: dict[str, Any]) -> None:
    with pytest.raises(NotSupportedYet) as caught:
        restriction_of(said, KINDS)
    assert caught.value.rule == "read-restrictions"


def test_a_row_filter_of_any_depth_is_read_or_refused() -> None:
    """Python's own limit would end the scan without a sentence, and as late as rows are read."""
    condition: Any = True
    for _ in range(MAX_LEVELS):
        condition = {"type": "or", "left": condition, "right": False}
    deep = restriction_of({"required-row-filter": condition}, KINDS)
    assert kept(deep.row_filter, table(ROWS), SCHEMA.fields).to_pylist() == [True] * len(ROWS)
    with pytest.raises(NotSupportedYet, match="levels"):
        restriction_of({"required-row-filter": {"type": "or", "left": condition, "right": False}}, KINDS)


def plain(shown: pa.Table) -> list[str]:
    """Columns as texts of plain values: NaN is itself, and the two zeros differ."""
    stored = {pa.date32(): pa.int32(), pa.timestamp("us"): pa.int64(), pa.timestamp("us", "UTC"): pa.int64()}
    return [str(each.cast(stored.get(each.type, each.type)).to_pylist()) for each in shown.columns]


PRIMITIVES = {number: kind for number, kind in KINDS.items() if kind != "struct"}
SPECIAL: dict[str, Any] = {
    kind: sorted({repr(row[number]): row[number] for row in ROWS if row[number] is not None}.items())
    for number, kind in PRIMITIVES.items()
    if number < 12
}


def values_of(kind: str) -> st.SearchStrategy[Any]:
    """Plain values of a type, most of them those of the vectors."""
    special = st.sampled_from([each for _, each in SPECIAL[kind]])
    texts = st.text("aZ9é٣ß-@ 中\U0001f600\U0001d400\u0301", max_size=7)
    return special | {
        "string": texts,
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1),
    }.get(kind, special)


def rows_of_table() -> st.SearchStrategy[list[dict[int, Any]]]:
    nullable = {
        number: st.none() | values_of(kind)
        for number, kind in PRIMITIVES.items()
        if number not in (1, 13, 14)
    }
    inner = st.fixed_dictionaries({13: st.none() | values_of("string"), 14: st.none() | values_of("int")})
    row = st.fixed_dictionaries({1: values_of("int"), **nullable, 12: st.none() | inner})
    return st.lists(row, max_size=12)


def literals(kind: str) -> st.SearchStrategy[Literal]:
    """Literals of the vectors' filters: values that people write, and no NaN."""
    found = {
        "boolean": [True, False],
        "int": [0, 42, -1],
        "long": [0, 42, 2**53 + 1],
        "float": [0.0, -0.0, 1.5],
        "double": [0.0, -0.0, 0.1],
        "decimal(38,10)": [Decimal("0E-10"), Decimal("42.0000000000")],
        "string": ["", "a", "\uffff", "\U0001f600"],
    }
    return st.sampled_from([Literal(kind, each) for each in found[kind]])


def conditions() -> st.SearchStrategy[Predicate]:
    ids = st.sampled_from(
        [each for each, kind in PRIMITIVES.items() if kind not in ("date", "timestamp", "timestamptz")]
    )
    orders = st.sampled_from([each for each in Comparison if not each.endswith("starts-with")])
    compared = ids.flatmap(lambda each: st.builds(Compare, orders, st.just(each), literals(PRIMITIVES[each])))
    listed = ids.flatmap(
        lambda each: st.builds(
            In,
            st.just(each),
            st.lists(literals(PRIMITIVES[each]), min_size=1, max_size=2).map(tuple),
            st.booleans(),
        )
    )
    leaf = compared | listed | st.builds(IsNull, ids) | st.builds(IsNan, st.sampled_from([5, 6]))
    return st.recursive(
        leaf,
        lambda inner: st.builds(Not, inner) | st.builds(both, inner, inner) | st.builds(either, inner, inner),
    )


def masks_of_table() -> st.SearchStrategy[dict[int, str]]:
    taken = {
        number: [each.value for each in MaskAction if takes(each, kind.partition("(")[0])]
        for number, kind in KINDS.items()
    }
    chosen = st.dictionaries(st.sampled_from(sorted(taken)), st.integers(0, 99), max_size=6)
    return chosen.map(
        lambda found: {
            number: taken[number][pick % len(taken[number])]
            for number, pick in found.items()
            if not (12 in found and number in (13, 14))
        }
    )


def naive_view(
    rows: list[dict[int, Any]], condition: Any, masks: Mapping[int, str], salt: bytes
) -> list[dict[int, Any]]:
    """What a user sees, one value after the other."""
    shown = []
    for row in rows:
        flat = row | (row[12] or {13: None, 14: None})
        if naive.kept(condition, PRIMITIVES, flat):
            shown.append(seen(row, masks, salt))
    return shown


def seen(row: Mapping[int, Any], masks: Mapping[int, str], salt: bytes) -> dict[int, Any]:
    view = {}
    for number, value in row.items():
        made = seen(value, masks, salt) if isinstance(value, dict) else value
        view[number] = naive.masked(masks[number], KINDS[number], made, salt) if number in masks else made
    return view


@settings(max_examples=settings.default.max_examples * 2 // 5)
@given(rows_of_table(), conditions(), masks_of_table())
def test_a_restricted_table_shows_what_a_naive_evaluation_shows(
    rows: list[dict[int, Any]], condition: Predicate, masks: dict[int, str]
) -> None:
    said = predicate_json(condition)
    projections = [{"field-id": each, "action": action} for each, action in masks.items()]
    restriction = restriction_of(
        {"required-row-filter": said, "required-column-projections": projections}, KINDS
    )
    fields = tuple(each.model_copy(update={"required": False}) for each in SCHEMA.fields)
    restricted = Restricted(restriction, fields, SCHEMA)
    whole = table(rows)
    needed = [each.field_id for each in restricted.read]
    assert {12 if each > 12 else each for each in restriction.filters_by} <= set(needed)
    shown = restricted.shown(whole, SCHEMA.fields)
    wanted = table(naive_view(rows, said, masks, restricted.salt)).cast(shown.schema)
    assert shown.schema == wanted.schema and plain(shown) == plain(wanted)
