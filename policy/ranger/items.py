"""The items of a policy: who, which access types, under which conditions.

Rules:
- An item names at least one access type and at least one user, group or role.
- Access types are those of the policy's hierarchy; letter case does not matter. In masking and row filter
  policies there is only ``select``.
- In policies on tags, access types and mask types can name the type of service that they are for
  (``hive:select``). What is for other types of services is left out, and so is an item with nothing else.
- A policy has items of its own type only, because Ranger ignores the others.

Source: Ranger's RangerPolicyItem, RangerDataMaskPolicyItem and RangerRowFilterPolicyItem.
"""

from __future__ import annotations

from typing import Final

from policy.fields import Field
from policy.principal import PUBLIC
from policy.ranger.conditions.condition import Condition
from policy.ranger.model import Item, Mask, PolicyType
from policy.ranger.servicedef import (
    MASK_CUSTOM,
    MASK_TYPES,
    OTHER_TYPES,
    OWN_TYPES,
    TAGS,
    Level,
    access_types_of,
)
from policy.restrictions.conditions import RowFilter
from policy.restrictions.sql import row_filter

_ITEM: Final = frozenset({"accesses", "users", "groups", "roles", "conditions", "delegateAdmin"})
_USER: Final = "{USER}"
_OWNER: Final = "{OWNER}"
_MACROS: Final = frozenset({_USER, _OWNER})
_SELECT: Final = frozenset({"select"})
USED_BY: Final = {
    "policyItems": PolicyType.ACCESS,
    "denyPolicyItems": PolicyType.ACCESS,
    "allowExceptions": PolicyType.ACCESS,
    "denyExceptions": PolicyType.ACCESS,
    "dataMaskPolicyItems": PolicyType.MASK,
    "rowFilterPolicyItems": PolicyType.ROW_FILTER,
}
"""The type of policy that has a list of items, by the list's name."""

ITEM_LISTS: Final = tuple(USED_BY)
"""The names of all lists of items."""


def require_unused(policy: Field, kind: PolicyType) -> None:
    """Refuse items, and ``isDenyAllElse``, in a policy of a type that ignores them."""
    for name, user in USED_BY.items():
        if user is not kind and list(policy[name].elements()):
            raise policy[name].invalid(f"{name} is not allowed in a policy of type {int(kind)}.")
    if kind is not PolicyType.ACCESS and policy["isDenyAllElse"].boolean(False):
        raise policy["isDenyAllElse"].invalid(
            f"isDenyAllElse is not allowed in a policy of type {int(kind)}."
        )


def access_items(field: Field, hierarchy: tuple[Level, ...]) -> tuple[Item, ...]:
    """The items of one of an access policy's four lists."""
    known = access_types_of(hierarchy)
    items = (_item(element.members(_ITEM), known, hierarchy) for element in field.elements())
    return tuple(filter(None, items))


def mask_items(field: Field, hierarchy: tuple[Level, ...]) -> tuple[Item, ...]:
    """The items of a masking policy."""
    return tuple(filter(None, (_mask_item(element, hierarchy) for element in field.elements())))


def row_filter_items(field: Field, hierarchy: tuple[Level, ...]) -> tuple[Item, ...]:
    """The items of a row filter policy."""
    return tuple(filter(None, (_row_filter_item(element, hierarchy) for element in field.elements())))


def _mask_item(field: Field, hierarchy: tuple[Level, ...]) -> Item | None:
    members = field.members(_ITEM | {"dataMaskInfo"})
    info = members["dataMaskInfo"].members(frozenset({"dataMaskType", "conditionExpr", "valueExpr"}))
    name = _own(info["dataMaskType"], info["dataMaskType"].string(), hierarchy)
    if name is None:
        return None
    if name not in MASK_TYPES:
        problem = "is not supported" if name == MASK_CUSTOM else "is unknown"
        raise info["dataMaskType"].invalid(
            f"the mask type {name!r} {problem}.", f"Use one of: {', '.join(sorted(MASK_TYPES))}."
        )
    if info["valueExpr"].expression() is not None:
        raise info["valueExpr"].invalid(f"a mask of the type {name} has no expression.", "Leave it out.")
    text = info["conditionExpr"].expression()
    more = () if text is None else (Condition.of("conditionExpr", (text,)),)
    return _item(members, _SELECT, hierarchy, Mask(name), more=more)


def _row_filter_item(field: Field, hierarchy: tuple[Level, ...]) -> Item | None:
    members = field.members(_ITEM | {"rowFilterInfo"})
    info = members["rowFilterInfo"].members(frozenset({"filterExpr"}))
    text = info["filterExpr"].expression()
    with info["filterExpr"].located():
        said = None if text is None else row_filter(text)
    return _item(members, _SELECT, hierarchy, row_filter=said)


def _item(
    members: Field,
    known: frozenset[str],
    hierarchy: tuple[Level, ...],
    mask: Mask | None = None,
    row_filter: RowFilter | None = None,
    more: tuple[Condition, ...] = (),
) -> Item | None:
    users, groups, roles = (frozenset(members[name].strings()) for name in ("users", "groups", "roles"))
    if not (users or groups or roles):
        raise members.invalid("an item must name at least one user, group or role.")
    _check_macros(members["users"])
    accesses = _accesses(members["accesses"], known, hierarchy)
    if accesses is None:
        return None
    return Item(
        label=_label(members),
        accesses=accesses,
        users=users - _MACROS,
        groups=groups,
        roles=roles,
        everyone=_USER in users or PUBLIC in groups,
        owner=_OWNER in users,
        delegates=members["delegateAdmin"].boolean(False),
        conditions=(*conditions_of(members["conditions"]), *more),
        mask=mask,
        row_filter=row_filter,
    )


def conditions_of(field: Field) -> tuple[Condition, ...]:
    """The conditions of a policy or an item."""
    return tuple(map(_condition, field.elements()))


def _condition(field: Field) -> Condition:
    members = field.members(frozenset({"type", "values"}))
    kind = members["type"].string()
    return Condition.of(kind, (value.expression() or "" for value in members["values"].elements()))


def _accesses(field: Field, known: frozenset[str], hierarchy: tuple[Level, ...]) -> frozenset[str] | None:
    """The access types of an item; None if all are for other types of services."""
    allowed, others = set(), False
    for element in field.elements():
        members = element.members(frozenset({"type", "isAllowed"}))
        name = _own(members["type"], members["type"].string().lower(), hierarchy)
        if name is None:
            others = True
            continue
        if name not in known:
            raise members["type"].invalid(
                f"the access type {name[:80]!r} is unknown for this resource.",
                f"Use one of: {', '.join(sorted(known))}.",
            )
        if members["isAllowed"].boolean(True):
            allowed.add(name)
    if not allowed and others:
        return None
    if not allowed:
        # Ranger passes over access types with isAllowed false, in items that deny as well.
        raise field.invalid("an item must name at least one access type with isAllowed true.")
    return frozenset(allowed)


def _own(field: Field, name: str, hierarchy: tuple[Level, ...]) -> str | None:
    """A name without the type of service that it is for; None if that is another one than ours."""
    service, separator, own = name.partition(":")
    if hierarchy != TAGS or not separator:
        return name
    if service not in OWN_TYPES | OTHER_TYPES:
        raise field.invalid(
            f"the service type {service[:80]!r} is unknown.", f"Use one of: {', '.join(sorted(OWN_TYPES))}."
        )
    return own if service in OWN_TYPES else None


def _check_macros(users: Field) -> None:
    for user in users.elements():
        name = user.string()
        if ("{" in name or "}" in name) and name not in _MACROS:
            raise user.invalid(f"the macro {name!r} is unknown.", "Use one of: {OWNER}, {USER}.")


def _label(field: Field) -> str:
    """The list and the position in it: ``policyItems[0]``."""
    return "{}[{}]".format(*field.path[-2:])
