"""Whether anyone may hold a right at all."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource
from tests.policy.test_ranger_policyset import item, policies, policy
from tests.support.vectors import each_row

NOW = datetime(2030, 1, 15, 12, tzinfo=UTC)
SPARK = Resource.engine("spark")
SCHEDULE = {"startTime": "2001/01/01 00:00:00", "endTime": "2001/01/02 00:00:00", "timeZone": "UTC"}


def _who(name: str, *accesses: str, **more: Any) -> dict[str, Any]:
    return policy("p", {"engine": [name]}, policyItems=[item(*accesses, **more)])


@each_row(
    "document",
    [
        _who("spark", "code"),
        _who("SPARK", "all"),
        _who("*", "act", "code", groups=["public"]),
        _who("{USER}", "code", users=["{USER}"]),
        {**_who("spark", "code"), "denyPolicyItems": [item("code", groups=["public"])]},
        {**_who("spark", "code"), "validitySchedules": [SCHEDULE]},
    ],
)
def test_a_grant_to_anyone_at_any_time_counts(document: dict[str, Any]) -> None:
    reason = policies(document).grant_to_anyone(SPARK, "code")
    assert reason is not None and reason.policy == "p"


@each_row(
    "document",
    [
        _who("spark", "act"),
        _who("trino", "code"),
        policy("p", {"engine": ["spark"]}, denyPolicyItems=[item("code")]),
        _who("tr*", "code"),
        {**_who("spark", "code"), "isEnabled": False},
        {**_who("spark", "code"), "zoneName": "z"},
        policy("p", {"key": ["spark"]}, policyItems=[item("all")]),
    ],
)
def test_what_grants_it_to_nobody_does_not_count(document: dict[str, Any]) -> None:
    assert policies(document).grant_to_anyone(SPARK, "code") is None


NAMES = st.sampled_from(["spark", "SPARK", "sp*", "*", "s?ark", "trino", "{USER}", "{USER}ark", "sp{USER}"])
ITEMS = st.lists(
    st.builds(
        lambda accesses, users: item(*accesses, users=users),
        st.lists(st.sampled_from(["act", "code", "all"]), min_size=1, max_size=2),
        st.lists(st.sampled_from(["ann", "{USER}", "spark"]), min_size=1, max_size=2),
    ),
    max_size=2,
)


@given(st.lists(st.tuples(NAMES, ITEMS, ITEMS), max_size=3), st.sampled_from(["ann", "spark", "sp", "ark"]))
def test_whoever_is_granted_it_is_someone(drawn: list[tuple[str, Any, Any]], user: str) -> None:
    documents = [
        policy(f"p{at}", {"engine": [name]}, policyItems=allow, denyPolicyItems=deny)
        for at, (name, allow, deny) in enumerate(drawn)
    ]
    found = policies(*documents)
    if found.decide(AccessRequest(Principal(user), SPARK, "code"), NOW).allowed:
        assert found.grant_to_anyone(SPARK, "code") is not None
