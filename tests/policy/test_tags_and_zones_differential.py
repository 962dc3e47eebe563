"""Generated tags, zones and policies: the decisions are those of a second, naive model of Ranger's engine.

Source of the model: RangerPolicyEngineImpl (zoneAwareAccessEvaluationWithNoAudit, evaluateTagPolicies) and
RangerSecurityZoneMatcher.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policy.test_tag_policies import ANN, having, item, on_tag, policy, selects
from tests.support.tags import tagged

Names = tuple[str, ...]

_LEVELS = ("database", "table", "column")
_COLUMNS = [(database, table, column) for database in "ab" for table in "tu" for column in "cd"]
_TAGS = ("P", "Q")
_ZONES = ("y", "z")


@dataclass(frozen=True)
class _Policy:
    """A policy on a tag, or on resources, of which `*` is any name, that grants or denies."""

    on: str | Names
    zone: str | None
    priority: int
    allows: bool

    def as_json(self, number: int) -> dict[str, Any]:
        items = {
            "policyItems" if self.allows else "denyPolicyItems": [
                item("hive:select" if self.on in _TAGS else "select")
            ]
        }
        more = {"policyPriority": self.priority, **items} | ({"zoneName": self.zone} if self.zone else {})
        if isinstance(self.on, str):
            return on_tag(f"p{number}", tag=self.on) | more
        return policy(
            f"p{number}", {level: [name] for level, name in zip(_LEVELS, self.on, strict=True)}, **more
        )


@dataclass(frozen=True)
class _World:
    """Everything that is decided by."""

    policies: list[_Policy]
    tags: list[tuple[Names, str]]
    zones: dict[str, tuple[list[Names], bool]]

    def select(self, column: Names) -> bool:
        zones = {
            name for name, (places, _) in self.zones.items() if any(_in(column, each) for each in places)
        }
        zone = zones.pop() if len(zones) == 1 else None
        own = {tag for place, tag in self.tags if _in(column, place)}
        return _decided([(each, True) for each in self.of_zone(zone) if _on(each, column, own)])

    def any_of(self, database: str) -> bool:
        """A denial below the database does not count, a grant does."""
        below = [column for column in _COLUMNS if column[0] == database]
        zones: set[str | None] = set()
        for name, (places, _) in self.zones.items():
            near = [each for each in places if each[0] == database]
            zones |= {name} if near else set()
            zones |= {None} if any(len(each) > 1 for each in near) else set()
        around = {tag for place, tag in self.tags if place == (database,)}
        tags = {tag for place, tag in self.tags if place[0] == database}
        answers = []
        for zone in zones or {None}:
            found = []
            for each in self.of_zone(zone):
                whole = each.on in around or (
                    isinstance(each.on, tuple) and each.on[0] in ("*", database) and each.on[1:] == ("*", "*")
                )
                if whole or any(_on(each, column, tags) for column in below):
                    found.append((each, whole))
            answers.append(_decided([(each, whole) for each, whole in found if whole or each.allows]))
        return any(answers)

    def of_zone(self, zone: str | None) -> Iterator[_Policy]:
        tag_zone = zone if zone and self.zones[zone][1] else None
        for each in self.policies:
            if each.zone == (tag_zone if isinstance(each.on, str) else zone):
                yield each


def _in(column: Names, place: Names) -> bool:
    return column[: len(place)] == place


def _on(each: _Policy, column: Names, tags: set[str]) -> bool:
    if isinstance(each.on, str):
        return each.on in tags
    return all(ours in ("*", theirs) for ours, theirs in zip(each.on, column, strict=True))


def _decided(found: list[tuple[_Policy, bool]]) -> bool:
    for priority in (1, 0):
        said = {each.allows for each, _ in found if each.priority == priority}
        if said:
            return said == {True}
    return False


_PLACES = st.tuples(st.sampled_from(_COLUMNS), st.integers(1, 3)).map(lambda each: each[0][: each[1]])
_POLICIES = st.builds(
    _Policy,
    st.sampled_from(_TAGS)
    | st.tuples(st.sampled_from("ab*"), st.sampled_from("tu*"), st.sampled_from("cd*")),
    st.sampled_from([None, None, *_ZONES]),
    st.integers(0, 1),
    st.booleans(),
)
_WORLDS = st.builds(
    _World,
    st.lists(_POLICIES, max_size=6),
    st.lists(st.tuples(_PLACES, st.sampled_from(_TAGS)), min_size=1, max_size=4, unique=True),
    st.fixed_dictionaries(
        {name: st.tuples(st.lists(_PLACES, min_size=1, max_size=2), st.booleans()) for name in _ZONES}
    ),
)


@settings(max_examples=100, deadline=None)
@given(_WORLDS)
def test_tags_and_zones_decide_as_in_a_naive_model(world: _World) -> None:
    zones = {
        name: {
            "resources": [
                {level: [value] for level, value in zip(_LEVELS, each, strict=False)} for each in places
            ],
            "containsAssociatedTagService": tag_service,
        }
        for name, (places, tag_service) in world.zones.items()
    }
    policies = [each.as_json(number) for number, each in enumerate(world.policies)]
    found = having(policies, *(tagged(*place, tags=[tag]) for place, tag in world.tags), securityZones=zones)
    for column in _COLUMNS:
        assert selects(found, ANN, *column) is world.select(column)
    for database in "ab":
        assert selects(found, ANN, database, access="_any") is world.any_of(database)
