"""Attributes of users and groups, in the form of Ranger's user store.

Rules:
- ``userAttrMapping`` and ``groupAttrMapping`` give the attributes.
- ``userGroupMapping`` only says which users and groups are known, so that one without attributes has none.
  The groups of users come from their tokens and the catalog, because other parts decide by these.
- The attributes of a user or group that no document knows are unknown, which is not the same as none.

Source: Ranger's RangerUserStore. Stricter than Ranger, to which unknown users have no attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from policy.fields import Field

_ATTRIBUTES: Final = ("userAttrMapping", "groupAttrMapping")
_REMARKS: Final = ("userCloudIdMapping", "groupCloudIdMapping")
_MEMBERS: Final = frozenset(
    {"userStoreVersion", "userStoreUpdateTime", "serviceName", "userGroupMapping", *_ATTRIBUTES, *_REMARKS}
)
_NONE: Final[Mapping[str, str | None]] = MappingProxyType({})

Attributes = Mapping[str, Mapping[str, str | None]]


@dataclass(frozen=True, slots=True)
class UserStore:
    """Attributes of users and groups by their names.

    Attributes:
        users: the attributes of each user who is known.
        groups: the attributes of each group that is known.
    """

    users: Attributes = field(default_factory=dict)
    groups: Attributes = field(default_factory=dict)

    def given_twice(self, other: UserStore) -> tuple[str, str] | None:
        """A user or group to whom both give attributes, with the mapping; None if there is none."""
        pairs = ((self.users, other.users), (self.groups, other.groups))
        for mapping, (ours, theirs) in zip(_ATTRIBUTES, pairs, strict=True):
            for name in ours.keys() & theirs.keys():
                if ours[name] and theirs[name]:
                    return mapping, name
        return None

    def joined(self, other: UserStore) -> UserStore:
        """What both know. Where one gives attributes, the other has none."""
        return UserStore(_joined(self.users, other.users), _joined(self.groups, other.groups))


def _joined(ours: Attributes, theirs: Attributes) -> Attributes:
    return {**ours, **{name: each for name, each in theirs.items() if each or name not in ours}}


NO_USERS: Final = UserStore()
"""No user and no group is known."""


def is_user_store(top: Field) -> bool:
    """Whether a document has the form of a user store."""
    return isinstance(top.value, dict) and any(
        name in top.value for name in (*_ATTRIBUTES, "userGroupMapping")
    )


def user_store(top: Field) -> UserStore:
    """Read a user store.

    Raises:
        PolicyInvalid: naming document, line and field of the first thing that is wrong.
    """
    members = top.members(_MEMBERS)
    members["userStoreVersion"].integer()
    members["serviceName"].remark()
    for name in _REMARKS:
        _texts(members[name])
    users, groups = (
        {name: _texts(members[mapping][name]) for name in _names(members[mapping])} for mapping in _ATTRIBUTES
    )
    memberships = members["userGroupMapping"]
    for user in _names(memberships):
        users.setdefault(user, _NONE)
        for group in memberships[user].strings():
            groups.setdefault(group, _NONE)
    return UserStore(users, groups)


def _names(mapping: Field) -> tuple[str, ...]:
    return mapping.names() if mapping.given else ()


def _texts(mapping: Field) -> Mapping[str, str | None]:
    """The texts of an object by name. One can be null, which is not the same as not there."""
    return {name: text_or_null(mapping[name]) for name in _names(mapping)}


def text_or_null(field: Field) -> str | None:
    """The value of an attribute.

    Raises:
        PolicyInvalid: it is neither a text nor null.
    """
    field.remark()
    return None if field.value is None else str(field.value)
