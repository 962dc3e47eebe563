"""Takes over one policy of Ranger: as it is, with a difference that refuses more, or not at all.

Rules, of which the first that fits counts:
- What the strict reader reads is taken. That it can only restrict is a difference.
- A policy that is disabled, or about Ranger's audit, has no effect: if it cannot be read, it is left out.
- Items are taken over one by one (`items`).
- A policy that only grants loses the resources that cannot be read (`resources`). If it still cannot be read,
  it is left out.
- Of any other policy, what restricts is kept, and widened where it cannot be read: to all resources of the
  level, always, under all conditions. Masks become NULL, row filters show no row, and nothing is granted.
- If that cannot be done, the policy is blocked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from policy.ranger.importing.definition import USUAL, Definition
from policy.ranger.importing.items import CLOSING, LISTS, ItemList, Mended, odd_condition, opens
from policy.ranger.importing.report import Outcome
from policy.ranger.importing.resources import ANY, narrowed, widened
from policy.ranger.importing.strict import Home
from policy.ranger.items import ITEM_LISTS
from policy.ranger.model import OVERRIDE
from policy.ranger.parse import POLICY_FIELDS
from policy.ranger.servicedef import LEVELS, TABLES

Json = dict[str, Any]

_AUDIT: Final = 3
_RESOURCES: Final = ("resources", "additionalResources")
#: What decides when, and with which weight, a policy speaks.
_SCOPE: Final[Mapping[str, str]] = {
    "policyPriority": "It restricts with priority 1",
    "isEnabled": "It restricts as an enabled one",
    "isDenyAllElse": "It denies all else",
    "conditions": "It restricts under all conditions",
    "validitySchedules": "It restricts always",
    "options": "It restricts always",
}
_PLACED: Final = ("zoneName", "service", "serviceType")
_OPENING_LISTS: Final = ("policyItems", "allowExceptions", "isDenyAllElse")
_MACHINE: Final = "Ranger reads recurrences in the time zone of the machine that it runs on."
_LETTERS: Final = "resources: the service takes wildcards in masking and row filter policies for letters."
_ELSEWHERE: Final = "the service definition compares them in another way."


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rest of the documents says about policies.

    Attributes:
        definition: how the service definition differs.
        roles_unknown: whether it is unknown who holds any role.
    """

    definition: Definition = USUAL
    roles_unknown: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """A policy as it is taken over; None if it is not."""

    policy: Json | None
    outcome: Outcome
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Parts:
    """A policy, part by part.

    Attributes:
        said: its fields.
        base: a policy that is read, is about all that this one can be about, and restricts everyone.
        bad: the fields, without items and resources, that cannot be read, with the reason.
        lists: its items as they are taken over, by list.
        home: what kind of policies it belongs to.
        facts: what the rest of the documents says.
    """

    said: Json
    base: Json
    bad: Mapping[str, str]
    lists: Mapping[str, Mended]
    home: Home
    facts: Facts

    @property
    def denies_all_else(self) -> bool:
        """Whether it denies what no item of it allows."""
        return "isDenyAllElse" in self.bad or self.said.get("isDenyAllElse") is True

    @property
    def restricts(self) -> bool:
        """Whether it denies, masks or filters anything."""
        closing = CLOSING[self.base["policyType"]]
        return self.denies_all_else or any(not opens(closing, item) for item in self.lists[closing].items)

    @property
    def grants(self) -> bool:
        """Whether it grants anything, or shows what others mask or filter."""
        return any(opens(name, item) for name, mended in self.lists.items() for item in mended.items)

    @property
    def sets(self) -> list[Json]:
        """The sets of resources that it is about; `base` exists only if each is an object."""
        return [self.said.get("resources"), *self.said.get("additionalResources", ())]

    @property
    def widened(self) -> list[Json]:
        """Sets of resources that contain these."""
        return [self.base["resources"], *self.base["additionalResources"]]

    @property
    def differences(self) -> tuple[str, ...]:
        """What is different in its remarks and items."""
        remarks = [f"{name}: {why} It is left out." for name, why in self.bad.items() if name not in _SCOPE]
        return (*remarks, *(each for mended in self.lists.values() for each in mended.differences))

    def kept(self, sets: Sequence[Json]) -> Json:
        """The fields that are read, on these sets of resources, and the items as they are taken over."""
        left_out = (*self.bad, *ITEM_LISTS, *_RESOURCES)
        found = {name: value for name, value in self.said.items() if name not in left_out}
        found |= {"resources": sets[0]} | ({"additionalResources": list(sets[1:])} if sets[1:] else {})
        return found | {name: list(mended.items) for name, mended in self.lists.items() if mended.items}


def take(policy: object, place: str, home: Home, facts: Facts) -> Taken:
    """Take over a policy.

    Args:
        policy: the policy, as JSON says it.
        place: where it stands; the name of a policy without one.
        home: what kind of policies it belongs to.
        facts: what the rest of the documents says.
    """
    if not isinstance(policy, dict):
        return _blocked("it is not an object.")
    said = {name: value for name, value in policy.items() if value is not None}
    problem = home.problem(said)
    if problem is None and not _has_doubts(said, facts):
        return _taken(said, home)
    if problem is not None and said.get("isEnabled") is False:
        return _refused("it is disabled.", problem)
    kind = said.get("policyType", 0)
    if kind == _AUDIT:
        return _refused("it is about Ranger's audit, and decides no access.")
    if not isinstance(kind, int) or isinstance(kind, bool) or kind not in LISTS:
        return _blocked(f"policyType: {kind!r} is not 0, 1 or 2.")
    unknown = next((name for name in said if name not in POLICY_FIELDS), None)
    if unknown is not None:
        return _blocked(f"{unknown}: the field is unknown, and can mean anything.")
    base = _base(said, kind, home, facts)
    if base is None:
        why = problem or f"resources: {_ELSEWHERE}"
        return _blocked(why) if may_restrict(said) else _refused(why)
    return _by_parts(_parts(said, place, base, home, facts), problem)


def _has_doubts(said: Json, facts: Facts) -> bool:
    """Whether a policy that is read may mean something else in Ranger."""
    sets = [said["resources"], *said.get("additionalResources", ())]
    wild = facts.definition.wild
    return (
        facts.roles_unknown
        or replace(facts.definition, wild=frozenset()) != USUAL
        or _restricts_at_times(said)
        or _takes_letters(said, sets, wild)
    )


def _restricts_at_times(said: Json) -> bool:
    """Whether a policy may restrict at recurring times."""
    schedules = said.get("validitySchedules")
    recurs = isinstance(schedules, list) and any(
        isinstance(each, dict) and each.get("recurrences") for each in schedules
    )
    return recurs and may_restrict(said)


def _takes_letters(said: Json, sets: Iterable[Json], wild: Collection[tuple[int, str]]) -> bool:
    """Whether a policy masks or filters what it does not in Ranger, which takes its wildcards for letters."""
    kind = said.get("policyType", 0)
    levels = [(name, level) for each in sets for name, level in each.items() if LEVELS[name] in TABLES]
    return kind in (1, 2) and any(
        (kind, name) not in wild and any("*" in value or "?" in value for value in level["values"])
        for name, level in levels
    )


def may_restrict(said: Json) -> bool:
    """Whether a policy of a known type may deny, mask or filter, although it cannot be taken apart."""
    kind = said.get("policyType") or 0
    items = said.get(CLOSING[kind], [])
    if kind == 0 and said.get("isDenyAllElse", False) is not False:
        return True
    return not isinstance(items, list) or any(
        not (isinstance(item, dict) and opens(CLOSING[kind], item)) for item in items
    )


def _base(said: Json, kind: int, home: Home, facts: Facts) -> Json | None:
    """A policy that is read, and about all that this one can be about; None if that is unknown."""
    closing = ItemList(CLOSING[kind], home.every).closing
    base: Json = {"name": "p", "policyType": kind, CLOSING[kind]: [closing]}

    restricts = may_restrict(said)

    def reads(resources: Json) -> bool:
        limited = {name: said for name, said in resources.items() if said != ANY}
        less = restricts and _is_odd(limited, facts.definition.narrower, facts.definition.wider)
        return not less and home.problem(base | {"resources": resources}) is None

    more = said.get("additionalResources", [])
    if not isinstance(more, list):
        return None
    sets = [widened(each, kind, reads) for each in (said.get("resources"), *more)]
    found = base | {"resources": sets[0], "additionalResources": sets[1:]}
    return None if None in sets or home.problem(found) is not None else found


def _is_odd(resources: Json, plain: Collection[str], excluding: Collection[str]) -> bool:
    """Whether a level is one of `plain`, or, if its values are excluded, one of `excluding`."""
    return any(
        name in (excluding if said.get("isExcludes") else plain)
        for name, said in resources.items()
        if isinstance(said, dict)
    )


def _parts(said: Json, place: str, base: Json, home: Home, facts: Facts) -> _Parts:
    def refusal(name: str, value: object) -> str | None:
        found = home.problem(base | {name: value})
        return None if found is None else found.removeprefix(f"{name}: ")

    def listed(name: str) -> Mended:
        if name not in LISTS[base["policyType"]]:
            return Mended((), (f"{name}: it has no effect in a policy of this type. It is left out.",))
        items = ItemList(
            name,
            home.every,
            lambda item: refusal(name, [item]),
            facts.definition,
            facts.roles_unknown,
        )
        return items.mend(said.get(name))

    if refusal("name", said.get("name")) is not None:
        said = said | {"name": place}
    others = [name for name in said if name not in (*_RESOURCES, *ITEM_LISTS)]
    bad = {name: why for name in others if (why := refusal(name, said[name])) is not None}
    if (odd := odd_condition(said.get("conditions"), facts.definition.odd_conditions)) is not None:
        bad.setdefault("conditions", odd)
    if _restricts_at_times(said):
        bad.setdefault("validitySchedules", _MACHINE)
    lists = [name for name in ITEM_LISTS if name in LISTS[base["policyType"]] or said.get(name)]
    return _Parts(said, base, bad, {name: listed(name) for name in lists}, home, facts)


def _by_parts(parts: _Parts, problem: str | None) -> Taken:
    if (place := next((name for name in parts.bad if name in _PLACED), None)) is not None:
        return _blocked(f"{place}: {parts.bad[place]}")
    if not (parts.restricts or parts.grants):
        outcome = Outcome.REFUSED if any(each.lost for each in parts.lists.values()) else Outcome.DIFFERENT
        return Taken(None, outcome, ("no item has an effect. It is left out.", *parts.differences))
    scope = [f"{name}: {why}" for name, why in parts.bad.items() if name in _SCOPE]
    letters = _takes_letters(parts.said, parts.widened, parts.facts.definition.wild)
    if not parts.restricts and letters:
        return _refused(_LETTERS)
    if not parts.restricts:
        return _refused(*scope) if scope else _granting(parts, problem)
    more = any(
        _is_odd(each, parts.facts.definition.wider, parts.facts.definition.narrower) for each in parts.widened
    )
    if scope or letters or parts.widened != parts.sets or (parts.grants and more):
        return _restricting(parts)
    return _finished(parts, parts.kept(parts.widened), parts.differences, problem)


def _granting(parts: _Parts, problem: str | None) -> Taken:
    """A policy that only grants, on the resources that are read."""

    def reads(resources: Json) -> bool:
        asked = parts.base | {"resources": resources, "additionalResources": []}
        more = _is_odd(resources, parts.facts.definition.wider, parts.facts.definition.narrower)
        return not more and parts.home.problem(asked) is None

    sets = [found for each in parts.sets if (found := narrowed(each, reads)) is not None]
    if not sets:
        return _refused(problem or f"resources: {_ELSEWHERE}")
    policy = parts.kept(sets)
    if sets == parts.sets:
        return _finished(parts, policy, parts.differences, problem)
    left_out = f"{problem or _ELSEWHERE} It grants nothing on what cannot be read."
    return _finished(parts, policy, (left_out, *parts.differences), problem)


def _restricting(parts: _Parts) -> Taken:
    """What a policy restricts, wherever and whenever that can be."""
    closing = CLOSING[parts.base["policyType"]]
    items = ItemList(closing, parts.home.every)
    kept = [items.harden(item) for item in parts.lists[closing].items if not opens(closing, item)]
    policy = {name: value for name, value in parts.kept(parts.widened).items() if name not in _OPENING_LISTS}
    policy |= {closing: kept} if kept else {}
    if parts.denies_all_else:
        policy["isDenyAllElse"] = True
    if "policyPriority" in parts.bad:
        policy["policyPriority"] = OVERRIDE
    differences = [f"{name}: {why} {_SCOPE[name]}." for name, why in parts.bad.items() if name in _SCOPE]
    if parts.widened != parts.sets:
        differences.append("resources: they cannot be read. It restricts all that they can be.")
    elif _takes_letters(parts.said, parts.widened, parts.facts.definition.wild):
        differences.append(_LETTERS)
    differences.append("It grants nothing, masks with NULL, and shows no row.")
    return _finished(parts, policy, (*differences, *parts.differences), "")


def _finished(parts: _Parts, policy: Json, differences: tuple[str, ...], problem: str | None) -> Taken:
    if problem is None and not differences:
        return _taken(parts.said, parts.home)
    why = parts.home.problem(policy)
    if why is None:
        return _taken(policy, parts.home, *differences)
    return _blocked(why) if parts.restricts else _refused(why)


def _taken(policy: Json, home: Home, *differences: str) -> Taken:
    """A policy that is read; that it can only restrict is a difference."""
    read = home.read(policy)
    limits = [] if read.limit is None else [f"it only restricts, because {read.limit}."]
    doubts = [f"{place}: only restricts, because the {each.doubt}." for place, each in read.not_understood]
    reasons = (*differences, *limits, *doubts)
    return Taken(policy, Outcome.DIFFERENT if reasons else Outcome.TAKEN, reasons)


def _refused(*reasons: str) -> Taken:
    return Taken(None, Outcome.REFUSED, reasons)


def _blocked(*reasons: str) -> Taken:
    return Taken(None, Outcome.BLOCKED, reasons)
