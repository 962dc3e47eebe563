"""Reads of tables with row filters and masks without Spark: by engines, and in a user's own process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

import lakewarden
from catalog.client.batches import rebatched
from catalog.client.columns import arrow_schema
from catalog.client.errors import TableChanged
from catalog.client.restricted import require_applicable, types_of
from policy.errors import NotAuthorized, NotSupportedYet
from policy.restrictions.wire_reading import restriction_of
from tests.support.lake import CAROL, policy, standard_policies
from tests.support.service import Service

Make = Callable[..., str]


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
    monkeypatch.setattr("catalog.client.reading.monotonic", lambda: float("inf"))
    for each in readers:
        with pytest.raises(TableChanged):
            each.read_all()
    assert engine.table(name).scan().to_reader().read_all()["ssn"].null_count == PEOPLE.num_rows


@pytest.mark.rows_by_day(3)
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
