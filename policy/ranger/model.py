"""The typed form of Ranger policies, as the parser makes it and the evaluation takes it.

Everything here is immutable and already checked; no rule of evaluation lives in this module.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from policy.ranger.circumstances import Tag
from policy.ranger.conditions.condition import Condition
from policy.ranger.matching import ResourcePattern
from policy.ranger.servicedef import TAGS
from policy.ranger.validity import Schedule, active
from policy.restrictions.conditions import RowFilter

NORMAL: Final = 0
OVERRIDE: Final = 1

USER: Final = "user"
GROUP: Final = "group"
ROLE: Final = "role"
"""What the names in an item are of."""


class PolicyType(enum.IntEnum):
    """Ranger's ``policyType``."""

    ACCESS = 0
    MASK = 1
    ROW_FILTER = 2


@dataclass(frozen=True, slots=True)
class Mask:
    """How a column is masked.

    Attributes:
        type: one of Ranger's mask types, such as ``MASK_HASH``, or an action of the Iceberg REST
            specification, such as ``show-last-4``; ``MASK_NONE`` lifts masking.
    """

    type: str


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a policy: who gets, or loses, which access types.

    Attributes:
        label: where it stands in its policy: ``denyPolicyItems[0]``.
        accesses: lower-case access types; those with ``isAllowed`` false are left out, as they never match.
        users: user names, without macros.
        groups: group names.
        roles: role names.
        everyone: whether it is for everyone: the macro ``{USER}``, or the group ``public``.
        owner: whether it is for who owns the resource: the macro ``{OWNER}``.
        delegates: whether it lets them administer policies on its policy's resources (``delegateAdmin``).
        conditions: its conditions; after their evaluation, those that are unknown.
        mask: in a masking policy, the mask.
        row_filter: in a row filter policy, the filter; None where it filters nothing.
    """

    label: str
    accesses: frozenset[str]
    users: frozenset[str]
    groups: frozenset[str]
    roles: frozenset[str]
    everyone: bool = False
    owner: bool = False
    delegates: bool = False
    conditions: tuple[Condition, ...] = ()
    mask: Mask | None = None
    row_filter: RowFilter | None = None

    @property
    def named(self) -> Iterator[tuple[str, str]]:
        """Whom it names: `USER`, `GROUP` or `ROLE`, and the name."""
        yield from ((USER, each) for each in self.users)
        yield from ((GROUP, each) for each in self.groups)
        yield from ((ROLE, each) for each in self.roles)

    @property
    def is_certain(self) -> bool:
        """Whether it holds whatever is not known."""
        return not self.conditions

    @property
    def doubt(self) -> str | None:
        """Why it is not known whether it holds; None if it does."""
        return f"the item's {self.conditions[0].doubt}" if self.conditions else None


@dataclass(frozen=True, slots=True)
class AssignedTag:
    """A tag as it is assigned to resources.

    Attributes:
        type: its name in policies: ``PII``.
        attributes: names and values, in order; a value can be null.
        validity: when it is assigned; always if empty.
    """

    type: str
    attributes: tuple[tuple[str, str | None], ...] = ()
    validity: tuple[Schedule, ...] = ()

    @property
    def seen(self) -> Tag:
        """The tag as conditions see it."""
        return Tag(self.type, dict(self.attributes))


@dataclass(frozen=True, slots=True)
class Policy:
    """One enabled policy.

    Attributes:
        name: its name in Ranger.
        id: its number in Ranger, if it has one.
        type: access, mask or row filter.
        priority: `NORMAL` or `OVERRIDE`.
        resources: the sets of resources that it is about; one that matches is enough.
        deny_all_else: whether what no item of it allows is denied.
        allow, deny, allow_exceptions, deny_exceptions: the items of an access policy.
        masks, row_filters: the items of the other types, in the order in which they are tried.
        schedules: when it is valid; always if empty.
        limit: why it may deny but never grant; None for a policy that can be evaluated fully.
        conditions: its conditions; after their evaluation, those that are unknown.
        zone: the security zone that it belongs to; None for none.
        tag: the tag by which it is about its resources; None for a policy that names them itself.
        origin: the policy on tags that it was made of, if it has a tag.
    """

    name: str
    id: int | None
    type: PolicyType
    priority: int
    resources: tuple[ResourcePattern, ...]
    deny_all_else: bool
    allow: tuple[Item, ...]
    deny: tuple[Item, ...]
    allow_exceptions: tuple[Item, ...]
    deny_exceptions: tuple[Item, ...]
    masks: tuple[Item, ...]
    row_filters: tuple[Item, ...]
    schedules: tuple[Schedule, ...]
    limit: str | None
    conditions: tuple[Condition, ...] = ()
    zone: str | None = None
    tag: AssignedTag | None = None
    origin: Policy | None = field(default=None, compare=False, repr=False)

    @property
    def is_certain(self) -> bool:
        """Whether it is in force whatever is not known."""
        return not self.conditions

    @property
    def doubt(self) -> str | None:
        """Why it is not known whether its conditions hold; None if they do."""
        return f"its {self.conditions[0].doubt}" if self.conditions else None

    @property
    def every_condition(self) -> tuple[Condition, ...]:
        """Its own conditions and those of its items."""
        return (*self.conditions, *(each for item in self.every_item for each in item.conditions))

    @property
    def not_understood(self) -> tuple[tuple[str, Condition], ...]:
        """Its conditions that are always unknown (`Condition.problem` says why), each with where it stands:
        ``conditions``, or the label of an item.
        """
        labelled = [("conditions", each) for each in self.conditions]
        for item in self.every_item:
            labelled += [(item.label, each) for each in item.conditions]
        return tuple((label, each) for label, each in labelled if not each.is_understood)

    @property
    def is_timed(self) -> bool:
        """Whether the time decides something in it."""
        validity = () if self.tag is None else self.tag.validity
        return bool(self.schedules or validity) or any(each.is_timed for each in self.every_condition)

    @property
    def is_on_tags(self) -> bool:
        """Whether it names tags in the place of resources."""
        return self.resources[0].hierarchy == TAGS

    def in_force(self, now: datetime) -> bool:
        """Whether it is in force at a time (with time zone), and its tag assigned."""
        return active(self.schedules, now) and (self.tag is None or active(self.tag.validity, now))

    @property
    def items(self) -> tuple[Item, ...]:
        """All items of an access policy or a masking policy."""
        return self.allow + self.deny + self.allow_exceptions + self.deny_exceptions + self.masks

    @property
    def every_item(self) -> tuple[Item, ...]:
        """All items of a policy of any type."""
        return self.items + self.row_filters

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"Policy {self.name!r}" if self.id is None else f"Policy {self.name!r} (id {self.id})"
