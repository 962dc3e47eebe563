"""Row filters and masks without Spark: an engine's client shows what the policies say, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, LongType, MapType, NestedField, StringType, StructType

import lakewarden
from catalog.client.batches import rebatched
from catalog.client.columns import arrow_schema, arrow_type
from catalog.client.errors import DataFileDamaged, TableChanged
from catalog.client.masks import masked
from catalog.client.restricted import Restricted, require_applicable, types_of
from catalog.client.row_filters import kept
from policy.errors import NotAuthorized, NotSupportedYet
from policy.restrictions.actions import MaskAction, takes
from policy.restrictions.predicate import Compare, Comparison, In, IsNan, IsNull, Literal, Not, Predicate
from policy.restrictions.predicate import all_of as both
from policy.restrictions.predicate import any_of as either
from policy.restrictions.wire import predicate_json
from policy.restrictions.wire_reading import MAX_LEVELS, restriction_of
from tests.support import naive_restrictions as naive
from tests.support.lake import CAROL, policy, standard_policies
from tests.support.service import Service

Make = Callable[..., str]

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


PERSONS = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "ssn", StringType()),
    NestedField(4, "team", StringType()),
    NestedField(
        5, "home", StructType(NestedField(6, "city", StringType()), NestedField(7, "zip", StringType()))
    ),
)
PEOPLE = pa.Table.from_pylist(
    [
        {
            "id": n,
            "name": f"Name{n}",
            "ssn": f"078-05-112{n}",
            "team": team,
            "home": {"city": "Bonn", "zip": f"5311{n}"},
        }
        for n, team in enumerate(["eu", "us", None, "eu"])
    ],
    arrow_schema(PERSONS.fields),
)
KEYED = {"encryption.master-key-id": "lakewarden", "encryption.columns": "pii:ssn,team"}


def rule(name: str, column: str, mask: str) -> dict[str, Any]:
    """A masking policy for Carol."""
    said = policy(name, {"database": ["db"], "table": ["*"], "column": [column]}, {})
    items = [{"users": [CAROL], "accesses": [{"type": "select"}], "dataMaskInfo": {"dataMaskType": mask}}]
    return said | {"policyType": 1, "dataMaskPolicyItems": items, "policyItems": []}


def row_rule(name: str, condition: str) -> dict[str, Any]:
    """A row filter for Carol."""
    said = policy(name, {"database": ["db"], "table": ["*"]}, {})
    items = [{"users": [CAROL], "accesses": [{"type": "select"}], "rowFilterInfo": {"filterExpr": condition}}]
    return said | {"policyType": 2, "rowFilterPolicyItems": items, "policyItems": []}


@pytest.fixture(autouse=True)
def policies_as_they_were(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "served" in request.fixturenames:
        request.getfixturevalue("served").lake.set_policies(standard_policies())


@pytest.fixture
def engine(served: Service) -> lakewarden.Connection:
    """An engine that reads for Carol."""
    return lakewarden.connect(served.url, served.token(CAROL), engine_token=served.engine_token())


@pytest.fixture
def carol(served: Service) -> lakewarden.Connection:
    """Carol's own process."""
    return lakewarden.connect(served.url, served.token(CAROL))


def persons(make: Make, alice: lakewarden.Connection, properties: dict[str, str]) -> str:
    name = make(PERSONS, properties=properties)
    alice.table(name).append(PEOPLE)
    return name


@pytest.mark.parametrize("properties", [{}, KEYED], ids=["plaintext", "column keys"])
def test_an_engine_shows_the_rows_and_values_that_policies_show(
    make: Make,
    alice: lakewarden.Connection,
    engine: lakewarden.Connection,
    served: Service,
    properties: dict[str, str],
) -> None:
    name = persons(make, alice, properties)
    served.lake.set_policies(
        [
            *standard_policies(),
            row_rule("eu-only", "team = 'eu'"),
            rule("ssn", "ssn", "MASK_SHOW_LAST_4"),
            rule("team", "team", "MASK_NULL"),
            rule("name", "name", "sha-256-query-local"),
        ]
    )
    seen = engine.table(name)
    rows = seen.scan().to_arrow().to_pylist()
    assert [(row["id"], row["ssn"], row["team"]) for row in rows] == [
        (0, "xxx-xx-1120", None),
        (3, "xxx-xx-1123", None),
    ]
    assert rows[0]["home"] == {"city": "Bonn", "zip": "53110"}
    hashes = [{row["name"] for row in seen.scan(columns=["name"]).to_arrow().to_pylist()} for _ in range(2)]
    assert all(len(each) == 2 for each in hashes) and hashes[0].isdisjoint(hashes[1])
    # The user's filter sees masked values and visible rows alone.
    assert seen.scan("ssn = 'xxx-xx-1123'", ["id"]).to_arrow()["id"].to_pylist() == [3]
    assert seen.scan("ssn = '078-05-1123'", ["id"]).to_arrow().num_rows == 0
    assert seen.scan("team = 'eu'", ["id"]).to_arrow().num_rows == 0
    assert seen.scan("team is null", ["id"]).to_arrow()["id"].to_pylist() == [0, 3]
    assert seen.scan("id >= 1", ["home.zip"]).to_arrow().to_pylist() == [{"home": {"zip": "53113"}}]
    assert alice.table(name).scan().to_arrow().equals(PEOPLE)


def test_batches_do_not_tell_how_many_rows_are_hidden_between_others(
    make: Make, alice: lakewarden.Connection, engine: lakewarden.Connection, served: Service
) -> None:
    """A row group is full with hidden rows, too: where it ends is not shown."""
    name = make(PERSONS, properties={"write.parquet.row-group-size-bytes": "1000"})
    rows = [PEOPLE.slice(0, 1), *[PEOPLE.slice(1, 1)] * 300, PEOPLE.slice(3, 1)]
    alice.table(name).append(pa.concat_tables(rows).combine_chunks())
    assert len(list(alice.table(name).scan().to_batches())) > 2
    served.lake.set_policies([*standard_policies(), row_rule("eu-only", "team = 'eu'")])
    scan = engine.table(name).scan(columns=["id"])
    assert [each["id"].to_pylist() for each in scan.to_batches()] == [[0, 3]]
    assert scan.to_arrow()["id"].num_chunks == 1


def test_batches_are_cut_by_their_own_rows() -> None:
    rows = pa.table({"n": pa.chunked_array([[0, 1, 2], [3], [4, 5, 6, 7, 8]])})
    for most, sizes in ((2, [2, 2, 2, 2, 1]), (3, [3, 3, 3]), (100, [9])):
        cut = list(rebatched(rows.to_batches(), most))
        assert [each.num_rows for each in cut] == sizes
        assert pa.Table.from_batches(cut).equals(rows)
        counted = rebatched(rows.select([]).to_batches(), most)
        assert [each.num_rows for each in counted] == sizes
    assert list(rebatched([])) == []


ENTRIES = Schema(
    NestedField(1, "id", LongType()),
    NestedField(
        2,
        "people",
        MapType(
            3,
            StructType(NestedField(4, "first", StringType()), NestedField(5, "last", StringType())),
            6,
            StructType(NestedField(7, "ssn", StringType()), NestedField(8, "city", StringType())),
        ),
    ),
    NestedField(9, "cards", ListType(10, StructType(NestedField(11, "number", StringType())), False)),
)


def test_a_reader_that_waited_too_long_shows_nothing_by_former_restrictions(
    make: Make,
    alice: lakewarden.Connection,
    engine: lakewarden.Connection,
    served: Service,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = persons(make, alice, {})
    readers = []
    for each in ([], [rule("ssn", "ssn", "MASK_SHOW_LAST_4")], [row_rule("eu-only", "team = 'eu'")]):
        served.lake.set_policies([*standard_policies(), *each])
        readers.append(engine.table(name).scan().to_reader())
    served.lake.set_policies([*standard_policies(), rule("ssn", "ssn", "MASK_NULL")])
    monkeypatch.setattr("catalog.client.scan.monotonic", lambda: float("inf"))
    for each in readers:
        with pytest.raises(TableChanged):
            each.read_all()
    assert engine.table(name).scan().to_reader().read_all()["ssn"].null_count == PEOPLE.num_rows


@pytest.mark.parametrize(
    ("condition", "masks"),
    [
        (None, {4: "mask-alphanum"}),
        (None, {2: "replace-with-null", 7: "mask-alphanum"}),
        (None, {9: "mask-to-fixed-value", 11: "replace-with-null"}),
        ({"type": "is-null", "child": {"type": "reference", "id": 11}}, {}),
        ({"type": "is-null", "child": {"type": "reference", "id": 7}}, {}),
    ],
)
def test_restrictions_of_fields_that_have_none_are_refused(condition: Any, masks: dict[int, str]) -> None:
    said = {
        "required-row-filter": condition,
        "required-column-projections": [{"field-id": each, "action": made} for each, made in masks.items()],
    }
    with pytest.raises(NotSupportedYet) as caught:
        require_applicable(ENTRIES, restriction_of(said, types_of(ENTRIES)))
    assert caught.value.rule == "read-restrictions"


def test_a_key_of_a_map_shows_no_value_past_its_mask(
    make: Make, alice: lakewarden.Connection, engine: lakewarden.Connection, served: Service
) -> None:
    name = make(ENTRIES)
    key, value = {"first": "Ann", "last": "Lee"}, {"ssn": "078-05-1120", "city": "Bonn"}
    rows = [{"id": 1, "people": [(key, value)], "cards": [{"number": "4111"}, None]}]
    alice.table(name).append(pa.Table.from_pylist(rows, arrow_schema(ENTRIES.fields)))
    masks = (
        rule("ssn", "people.value.ssn", "MASK_SHOW_LAST_4"),
        rule("number", "cards.element.number", "MASK_NULL"),
    )
    served.lake.set_policies([*standard_policies(), *masks])

    def shown(column: str) -> Any:
        return engine.table(name).scan(columns=[column]).to_arrow()[column.partition(".")[0]].to_pylist()

    assert shown("people.key") == [[(key, value | {"ssn": "xxx-xx-1120"})]]
    assert shown("people.key.last") == shown("people.key") == shown("people")
    assert shown("people.value.city") == [[(key, {"city": "Bonn"})]]
    assert shown("cards") == shown("cards.number") == [[{"number": None}, None]]


def test_a_users_own_process_is_refused_restrictions_that_it_would_have_to_apply(
    make: Make, alice: lakewarden.Connection, carol: lakewarden.Connection, served: Service
) -> None:
    name = persons(make, alice, {})
    for each in (
        row_rule("eu-only", "team = 'eu'"),
        rule("ssn", "ssn", "MASK_HASH"),
        rule("ssn", "ssn", "MASK_NULL"),
    ):
        served.lake.set_policies([*standard_policies(), each])
        with pytest.raises(NotAuthorized, match=r"own process|under no column key"):
            carol.table(name).scan().to_arrow()
    assert carol.table(name).scan(columns=["id"]).to_arrow().num_rows == PEOPLE.num_rows


def test_a_users_own_process_is_told_that_engines_alone_withhold_structs(
    make: Make, alice: lakewarden.Connection, carol: lakewarden.Connection, served: Service
) -> None:
    who = StructType(NestedField(3, "name", StringType()), NestedField(4, "ssn", StringType()))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "who", who))
    name = make(schema, properties=KEYED | {"encryption.columns": "pii:who.name,who.ssn"})
    rows = [{"id": 1, "who": {"name": "Ann", "ssn": "078-05-1120"}}]
    alice.table(name).append(pa.Table.from_pylist(rows, arrow_schema(schema.fields)))
    keys = policy("carol-keys", {"key": ["lakewarden"]}, {CAROL: ["release"]})
    served.lake.set_policies([*standard_policies(), keys, rule("who", "who", "MASK_NULL")])
    with pytest.raises(NotAuthorized, match="the struct, list or map 'who'") as told:
        carol.table(name).scan().to_arrow()
    assert "column key" not in str(told.value)
    assert carol.table(name).scan(columns=["id"]).to_arrow()["id"].to_pylist() == [1]


def test_a_users_own_process_reads_beside_columns_that_are_null_and_under_a_key(
    make: Make, alice: lakewarden.Connection, carol: lakewarden.Connection, served: Service
) -> None:
    keys = policy("carol-keys", {"key": ["lakewarden"]}, {CAROL: ["release"]})
    name = persons(make, alice, KEYED)
    served.lake.set_policies([*standard_policies(), keys, rule("ssn", "ssn", "MASK_NULL")])
    rows = carol.table(name).scan(columns=["id", "ssn"]).to_arrow()
    assert rows.to_pydict() == {"id": [0, 1, 2, 3], "ssn": [None] * 4}
    assert alice.table(name).scan(columns=["ssn"]).to_arrow()["ssn"].null_count == 0
