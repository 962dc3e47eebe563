"""What values, names and tags say about a column, and that foreign values cause no error."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.errors import RequestInvalid
from spark_ext.pipelines.discover import national_ids
from spark_ext.pipelines.discover.detectors import detectors, matching
from spark_ext.pipelines.discover.evidence import THRESHOLD, Described, Looked, verdicts
from spark_ext.pipelines.discover.kinds import hinted
from spark_ext.pipelines.discover.pipeline import Discover
from spark_ext.pipelines.discover.sampling import Looking, looked
from tests.support.planted import BY_VALUE, GOOD, email

KNOWN = detectors(regions=("US",))
_SEEDS = st.integers(0, 2**32)
_VALUES = st.one_of(
    st.lists(st.text(max_size=40) | st.none(), max_size=8).map(lambda each: pa.array(each, pa.string())),
    st.lists(st.binary(max_size=40), max_size=8).map(lambda each: pa.array(each, pa.binary())),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=8).map(lambda each: pa.array(each, pa.int64())),
    st.lists(st.integers(0, 10**30), max_size=8).map(
        lambda each: pa.array([Decimal(one) for one in each], pa.decimal128(38, 0))
    ),
)


def counted(array: pa.Array, name: str = "c", rows: int = 10**6, leaf: str | None = None) -> Looked:
    looking = Looking((name,), (leaf or name,), rows, national_ids.ALL, ("US",))
    found = [
        tuple(row.values())
        for batch in looking(iter([pa.record_batch([array], [name])]))
        for row in batch.to_pylist()
    ]
    return looked(found, [leaf or name]).get(leaf or name, Looked())


def reported(
    values: Sequence[Any], name: str = "c", tags: tuple[str, ...] = (), comment: str = ""
) -> set[str]:
    array = pa.array(values or [""])
    kind = {"string": "string", "binary": "binary"}.get(str(array.type), "long")
    found = verdicts(Described(name, kind, comment, tags), counted(array), KNOWN)
    return {each.kind.id for each in found if each.confidence >= THRESHOLD}


@given(
    seed=st.integers(0, 2**32), rows=st.sampled_from([1, 3, 7, 15, 60]), name=st.sampled_from(sorted(GOOD))
)
def test_random_values_of_other_kinds_are_no_alarm(seed: int, rows: int, name: str) -> None:
    rng = random.Random(seed)
    assert reported([GOOD[name](rng) for _ in range(rows)], name) == set()


@given(seed=_SEEDS, rows=st.sampled_from([5, 60]), name=st.sampled_from(sorted(BY_VALUE)))
def test_values_of_a_kind_are_found_without_a_name(seed: int, rows: int, name: str) -> None:
    rng, (kind, make) = random.Random(seed), BY_VALUE[name]
    assert reported([make(rng) for _ in range(rows)]) == {kind}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("write to Ada.Lovelace+x@mail.example today", "email"),
        ("müller@bücher.example", "email"),
        ("用户@例子.广告", "email"),
        ("paid with visa 4111111111111111 yesterday", "payment-card"),
        ("4111-1111-1111-1111", "payment-card"),
        ("gb82 WEST 1234 5698 7654 32", "bank-account"),
        ("my number is 536-90-4399.", "national-id"),
        ("call +49 30 901820, please", "phone"),
        ("password=correct-horse", "secret"),
        ('{"api_key": "0123456789abcdef"}', "secret"),
        ("postgres://app:s3cretpw@db.example/app", "secret"),
        ("ghp_" + "a1B2" * 9, "secret"),
        ("$6$rounds=5000$saltsalt$" + "a" * 86, "secret"),
    ],
)
def test_one_such_text_is_enough(text: str, kind: str) -> None:
    assert reported([text]) == {kind}
    assert kind in reported([text, *(f"note {number}" for number in range(10))])


@pytest.mark.parametrize(
    "text",
    [
        "git@github.example:owner/repository.git",
        "https://host.example:8443/users/@me",
        "logo@2x.png",
        "https://${USER}:${PASSWORD}@host.example",
        "password=${PASSWORD}",
        "password=********",
        "$1$2$3$4$5$6$7$8",
        "the password was changed",
        "AKIA is a prefix",
        "4111111111111112",
    ],
)
def test_texts_that_only_look_like_it_are_no_alarm(text: str) -> None:
    assert reported([text]) == set()


def test_a_rare_match_in_many_texts_is_found() -> None:
    rng = random.Random(1)
    assert reported([f"note {number}" for number in range(900)] + [email(rng), email(rng)]) == {"email"}


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("name", "type_name", "kinds"),
    [
        ("customerEmail", "string", {"email"}),
        ("CUSTOMER-EMAIL", "string", {"email"}),
        ("email_verified", "string", set()),
        ("email", "boolean", set()),
        ("people.element.ssn", "string", {"national-id"}),
        ("contact.value", "string", set()),
        ("password_changed_at", "string", set()),
        ("db.password", "string", {"secret"}),
        ("product_name", "string", set()),
        ("customer_name", "string", {"person-name"}),
        ("passport", "string", {"national-id"}),
        ("iphone", "string", set()),
    ],
)
def test_names_are_compared_as_words(name: str, type_name: str, kinds: set[str]) -> None:
    assert hinted(name, type_name) == kinds


def test_values_speak_against_a_name_and_a_tag_alone_is_not_enough() -> None:
    assert reported(["yes", "no"], "email") == {"email"}
    assert reported([f"v{number}" for number in range(30)], "email") == set()
    assert reported([], "c", tags=("email",)) == set()
    assert reported([], "email", tags=("email",)) == {"email"}
    assert reported([f"{number:08d}" for number in range(30)], "c", comment="the customer's phone") == {
        "phone"
    }


def test_numbers_of_things_are_no_alarm_where_the_name_says_so() -> None:
    luhn_of_companies = ["732829320", "552100554", "542065479", "775670417", "652014051"]
    assert reported(luhn_of_companies) == {"national-id"}
    assert reported(luhn_of_companies, "siren") == set()


@given(_VALUES)
def test_no_value_causes_an_error(array: pa.Array) -> None:
    counted(array)


def test_strings_that_are_not_utf8_and_huge_ones_are_looked_at() -> None:
    broken = pa.array([b"\xff a@b.example", b"x" * 10_000_000], pa.binary()).view(pa.string())
    looked_at = counted(broken)
    assert (looked_at.values, looked_at.hits) == (2, {"address-form": 1})
    assert counted(pa.array([b"\xff a@b.example"], pa.binary())).values == 0


def test_slices_of_nested_values_are_looked_at_alone() -> None:
    maps = pa.array([[("k", "a@b.example")], [("k", "x")], [("k", "y")]], pa.map_(pa.string(), pa.string()))
    assert counted(maps, rows=1, leaf="c.value").values == 1
    assert counted(maps.slice(1), leaf="c.value").hits == {}
    assert counted(maps, leaf="c.key").values == 1


def test_distinct_values_are_counted_up_to_a_limit() -> None:
    assert counted(pa.array([f"v{number}" for number in range(25_000)])).values == 20_000


@given(st.text(max_size=200))
def test_detectors_answer_for_any_text(text: str) -> None:
    matching(KNOWN, text)


@pytest.mark.parametrize(
    "options",
    [{"ids": ("us.nothing",)}, {"regions": ("XX",)}, {"rows": 0}, {"threshold": 0.0}, {"threshold": 1.1}],
)
def test_options_that_are_not_possible_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(RequestInvalid):
        Discover(**options)
