"""Fields that are NULL for a user, and whose column keys are therefore released to nobody."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

import lakewarden
from catalog.client.columns import arrow_schema
from policy.errors import NotSupportedYet
from tests.client.test_client_restricted_reads import Make, row_rule, rule
from tests.support.lake import CAROL, standard_policies
from tests.support.service import Service

HOME = StructType(NestedField(8, "city", StringType(), required=True), NestedField(9, "zip", StringType()))
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "tags", ListType(3, StringType(), False)),
    NestedField(4, "props", MapType(5, StringType(), 6, StringType(), False)),
    NestedField(7, "home", HOME),
)
BONN: dict[str, Any] = {"city": "Bonn", "zip": "1"}
ROWS = [
    {"id": 1, "tags": ["a", None], "props": [("k", "v")], "home": BONN},
    {"id": 2, "tags": None, "props": None, "home": None},
]


@pytest.fixture
def shown(make: Make, served: Service, alice: lakewarden.Connection) -> Any:
    """What an engine shows to Carol of one column, under a mask of NULL, beside column keys."""

    def rows(keys: str, column: str, masked: str, condition: str = "id < 9") -> Any:
        name = make(SCHEMA, properties={"encryption.master-key-id": "lakewarden", "encryption.columns": keys})
        alice.table(name).append(pa.Table.from_pylist(ROWS, arrow_schema(SCHEMA.fields)))
        served.lake.set_policies(
            [*standard_policies(), rule("null", masked, "MASK_NULL"), row_rule("rows", condition)]
        )
        engine = lakewarden.connect(served.url, served.token(CAROL), engine_token=served.engine_token())
        return engine.table(name).scan(columns=[column]).to_arrow()[column].to_pylist()

    yield rows
    served.lake.set_policies(standard_policies())


@pytest.mark.parametrize(("column", "masked"), [("tags", "tags.element"), ("props", "props.value")])
def test_the_length_of_a_list_or_map_is_not_known_without_the_key_of_what_is_in_it(
    shown: Any, column: str, masked: str
) -> None:
    with pytest.raises(NotSupportedYet) as caught:
        shown(f"pii:{masked}", column, masked)
    assert caught.value.rule == "absent-column" and "whole" in (caught.value.hint or "")
    assert shown(f"pii:{masked}", column, column) == [None, None]
    assert shown(f"pii:{masked}", "id", masked) == [1, 2]


@pytest.mark.parametrize(
    ("keys", "masked", "condition", "expected"),
    [
        ("pii:home.city", "home", "id < 9", [None, None]),
        ("pii:home.city;hr:home.zip", "home", "home.zip = '1'", [None]),
        ("pii:home.city;hr:home.zip", "home.zip", "home.zip = '1'", [BONN | {"zip": None}]),
        ("pii:home.city", "home", "home.zip is null", [None]),
    ],
)
def test_a_struct_that_is_null_needs_no_key_of_its_fields(
    shown: Any, keys: str, masked: str, condition: str, expected: list[Any]
) -> None:
    """Be they required, or read by the row filter alone."""
    assert shown(keys, "home", masked, condition) == expected
