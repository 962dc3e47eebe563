"""The typed form of Ranger policies, as the parser makes it and the evaluation takes it.

Everything here is immutable and already checked; no rule of evaluation lives in this module.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from policy.ranger.matching import ResourcePattern
from policy.ranger.validity import Schedule
from policy.restrictions.conditions import RowFilter

NORMAL: Final = 0
OVERRIDE: Final = 1


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
        conditional: whether it carries conditions, which cannot be evaluated here.
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
    conditional: bool = False
    mask: Mask | None = None
    row_filter: RowFilter | None = None


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

    @property
    def items(self) -> tuple[Item, ...]:
        """All items of an access policy or a masking policy."""
        return self.allow + self.deny + self.allow_exceptions + self.deny_exceptions + self.masks

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"Policy {self.name!r}" if self.id is None else f"Policy {self.name!r} (id {self.id})"
