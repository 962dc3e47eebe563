"""Takes over items of policies, so that they grant no more and restrict no less than in Ranger.

Rules:
- An item that grants, excuses, or shows more (``policyItems``, ``denyExceptions``, ``MASK_NONE``, an empty
  row filter) loses what cannot be read. If nothing is left, it is left out.
- An item that restricts (``denyPolicyItems``, ``allowExceptions``, masks, row filters) is widened where it
  cannot be read: to everyone, to every access type, to all circumstances, to NULL, to no row.
- An item for nobody, or without access types, has no effect in Ranger, and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from policy.principal import PUBLIC
from policy.privileges.requests import ALL
from policy.ranger.importing.definition import USUAL, Definition
from policy.ranger.items import USED_BY
from policy.ranger.model import PolicyType
from policy.ranger.servicedef import MASK_NONE, MASK_NULL

Json = dict[str, Any]

DENIALS: Final = "denyPolicyItems"
MASKS: Final = "dataMaskPolicyItems"
FILTERS: Final = "rowFilterPolicyItems"
LISTS: Final[Mapping[int, tuple[str, ...]]] = {
    kind: tuple(name for name, user in USED_BY.items() if user is kind) for kind in PolicyType
}
"""The lists of items that a policy of a type has."""

CLOSING: Final[Mapping[int, str]] = {0: DENIALS, 1: MASKS, 2: FILTERS}
"""The list whose items restrict."""

_OPENING: Final = ("policyItems", "denyExceptions")
_WHO: Final = ("users", "groups", "roles")
_NO_ROW: Final = "FALSE"
_WIDENED: Final = {
    "accesses": "It restricts every access type",
    "conditions": "It restricts under all conditions",
    "delegateAdmin": "It delegates nothing",
    "dataMaskInfo": f"The mask is {MASK_NULL}",
    "rowFilterInfo": "No row is shown",
}


@dataclass(frozen=True, slots=True)
class Mended:
    """Items as they are taken over.

    Attributes:
        items: the items.
        differences: what is different, in sentences.
        lost: whether something that grants was left out.
    """

    items: tuple[Json, ...]
    differences: tuple[str, ...] = ()
    lost: bool = False


@dataclass(frozen=True, slots=True)
class ItemList:
    """A list of items in a policy that is readable otherwise.

    Attributes:
        name: its name.
        every: the access type that means every one.
        refusal: why an item of the list is refused, with the field; None if it is read.
        definition: how the service definition differs.
        roles_unknown: whether it is unknown who holds any role.
    """

    name: str
    every: str
    refusal: Callable[[Mapping[str, object]], str | None] = lambda _: None
    definition: Definition = USUAL
    roles_unknown: bool = False

    @property
    def closing(self) -> Json:
        """An item that restricts as much as one of this list can."""
        info: Json = {}
        if self.name == MASKS:
            info = {"dataMaskInfo": {"dataMaskType": MASK_NULL}}
        elif self.name == FILTERS:
            info = {"rowFilterInfo": {"filterExpr": _NO_ROW}}
        return {"accesses": [{"type": "select" if info else self.every}], "groups": [PUBLIC], **info}

    def mend(self, items: object) -> Mended:
        """Take over the items of this list."""
        if not isinstance(items, list | None):
            return self._unreadable(self.name, "it is not a list.")
        mended = [self._mend(item, f"{self.name}[{at}]") for at, item in enumerate(items or ())]
        return Mended(
            tuple(item for each in mended for item in each.items),
            tuple(difference for each in mended for difference in each.differences),
            any(each.lost for each in mended),
        )

    def harden(self, item: Json) -> Json:
        """An item whose mask is NULL, or whose row filter shows no row."""
        return item | {name: value for name, value in self.closing.items() if name.endswith("Info")}

    def _mend(self, item: object, place: str) -> Mended:
        if not isinstance(item, dict):
            return self._unreadable(place, "it is not an object.")
        said = _effective(item)
        bad = {name: why for name in said if (why := self._refusal(name, said[name])) is not None}
        if (odd := odd_condition(said.get("conditions"), self.definition.odd_conditions)) is not None:
            bad.setdefault("conditions", odd)
        unknown = next((name for name in bad if name not in (*_WHO, *_WIDENED)), None)
        if unknown is not None:
            return self._unreadable(place, bad[unknown])
        if _affects_nobody(said):
            return Mended((), (f"{place}: the item has no effect in Ranger. It is left out.",))
        if opens(self.name, said):
            return self._narrowed(said, place, bad)
        return self._widened(said, place, bad | self._uncertain(said, bad))

    def _refusal(self, name: str, value: object) -> str | None:
        if name == "accesses" and self.definition.all_is_less and self.name in _OPENING and _names_all(value):
            return "'all' implies fewer access types in the service definition."
        if name == "dataMaskInfo" and _mask_type(value) in self.definition.odd_masks:
            return "the service definition masks in another way."
        found = self.refusal(self.closing | {name: value})
        return None if found is None else found.removeprefix(f"{self.name}[0].").removeprefix(f"{name}: ")

    def _uncertain(self, said: Json, bad: Mapping[str, str]) -> dict[str, str]:
        """What is read, but means more in Ranger."""
        found = {}
        if "accesses" not in bad:
            named = {each["type"].lower() for each in said["accesses"]} & set(
                self.definition.uncertain_accesses
            )
            if named:
                found["accesses"] = f"{min(named)!r} implies other access types in the service definition."
        if "roles" not in bad and self.roles_unknown and said.get("roles"):
            found["roles"] = f"the members of the role {min(said['roles'])!r} are not known."
        return found

    def _narrowed(self, said: Json, place: str, bad: Mapping[str, str]) -> Mended:
        """An item that opens, without what cannot be read."""
        for name, why in bad.items():
            if not (isinstance(said[name], list) and name in (*_WHO, "accesses")):
                return self._unreadable(place, why)
            said[name] = [each for each in said[name] if self._refusal(name, [each]) is None]
        said = _effective(said)
        if not said["accesses"] or _affects_nobody(said):
            return self._unreadable(place, next(iter(bad.values())))
        return Mended((said,), tuple(f"{place}.{name}: {why} It is left out." for name, why in bad.items()))

    def _widened(self, said: Json, place: str, bad: Mapping[str, str]) -> Mended:
        """An item that restricts, wider where it cannot be read."""
        differences = []
        for name, why in bad.items():
            if name in _WHO:
                said = {each: value for each, value in said.items() if each not in _WHO} | {
                    "groups": [PUBLIC]
                }
            else:
                said.pop(name)
                said |= {name: self.closing[name]} if name in self.closing else {}
            differences.append(f"{place}.{name}: {why} {_WIDENED.get(name, 'It restricts everyone')}.")
        return Mended((said,), tuple(differences))

    def _unreadable(self, place: str, why: str) -> Mended:
        if self.name in _OPENING:
            return Mended((), (f"{place}: {why} It is left out.",), lost=True)
        return Mended((self.closing,), (f"{place}: {why} It restricts everyone, as much as it can.",))


def opens(name: str, item: Mapping[str, object]) -> bool:
    """Whether an item grants, excuses, or shows what others mask or filter."""
    info = item.get("dataMaskInfo" if name == MASKS else "rowFilterInfo")
    if name in (MASKS, FILTERS):
        return isinstance(info, dict) and (
            info.get("dataMaskType") == MASK_NONE if name == MASKS else not _text(info.get("filterExpr"))
        )
    return name in _OPENING


def odd_condition(conditions: object, odd: Collection[str]) -> str | None:
    """Why conditions mean something else in Ranger; None if they do not, or cannot be read."""
    for each in conditions if isinstance(conditions, list) else ():
        if isinstance(each, dict) and str(each.get("type")) in odd:
            return f"the service definition evaluates {each['type']!r} in another way."
    return None


def _names_all(accesses: object) -> bool:
    listed = accesses if isinstance(accesses, list) else ()
    types = (str(each.get("type")) for each in listed if isinstance(each, dict))
    return any(each.lower().rpartition(":")[2] == ALL for each in types)


def _mask_type(info: object) -> str:
    """The type of a mask, without the type of service that is before it in policies on tags."""
    return str(info.get("dataMaskType") if isinstance(info, dict) else None).rpartition(":")[2]


def _text(value: object) -> object:
    return value.strip() if isinstance(value, str) else value


def _effective(item: Json) -> Json:
    """An item without names that are blank and access types that are not allowed: Ranger passes over both."""
    said = {name: value for name, value in item.items() if value is not None}
    for name in _WHO:
        if isinstance(names := said.pop(name, []), list):
            names = [each for each in names if _text(each) != ""]
        if names != []:
            said[name] = names
    if isinstance(said.setdefault("accesses", []), list):
        said["accesses"] = [each for each in said["accesses"] if not _is_passed_over(each)]
    return said


def _is_passed_over(access: object) -> bool:
    return isinstance(access, dict) and access.get("isAllowed") is False


def _affects_nobody(said: Json) -> bool:
    return not any(said.get(name) for name in _WHO) or not (said["accesses"] or said.get("delegateAdmin"))
