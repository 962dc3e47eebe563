"""The example on the page for authors of policies is one that works."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from policy.principal import Principal
from policy.privileges.requests import ACCESS_TYPES, AccessRequest, Resource
from policy.ranger import PolicySet
from policy.ranger.model import PolicyType
from policy.ranger.servicedef import MASK_TYPES

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text("utf-8")
MONDAY = datetime(2030, 1, 14, 9, tzinfo=UTC)
SUNDAY = datetime(2030, 1, 13, 9, tzinfo=UTC)


def example() -> PolicySet:
    found = re.search(r"## A complete example\n\n```json\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return PolicySet.parse({"example.json": found[1]})


def test_the_complete_example_decides_as_it_reads() -> None:
    policies = example()
    column = Resource.column("sales", "orders", "card")

    def reads(principal: Principal) -> bool:
        return policies.decide(AccessRequest(principal, column, "select"), MONDAY).allowed

    analysts, contractors = frozenset({"analysts"}), frozenset({"analysts", "contractors"})
    assert reads(Principal("ann", analysts)) and reads(Principal("dora"))
    assert not reads(Principal("bob", contractors)) and not reads(Principal("eve"))
    assert reads(Principal("carl", contractors))

    publication = Resource.storage("s3://lake/landing/2030")
    for now, expected in ((MONDAY, True), (SUNDAY, False)):
        for principal in (Principal("etl"), Principal("x", frozenset({"operators"}))):
            assert (
                policies.decide(AccessRequest(principal, publication, "rwstorage"), now).allowed is expected
            )

    mask = policies.mask_for(Principal("ann"), "sales", "orders", "card", MONDAY)
    assert mask is not None and mask.type == "MASK_HASH"
    assert policies.mask_for(Principal("auditor"), "sales", "orders", "card", MONDAY) is None


def test_every_access_type_mask_and_policy_type_is_on_the_page() -> None:
    for name in {*frozenset().union(*ACCESS_TYPES.values()), *MASK_TYPES}:
        assert f"`{name}`" in PAGE, name
    for kind in PolicyType:
        assert f"{int(kind)} " in PAGE
