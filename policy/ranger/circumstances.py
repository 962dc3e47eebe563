"""What a condition of a policy can look at: who asks for what, when, and which tags the resource has.

None means that something is not known here. What depends on it is unknown, which is not the same as false.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from policy.privileges.requests import Resource
from policy.ranger.users import UserStore


@dataclass(frozen=True, slots=True)
class Subject:
    """A principal with every role that it has, and the owner of the resource."""

    name: str
    groups: frozenset[str]
    roles: frozenset[str]
    owner: str | None


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag on a resource.

    Attributes:
        type: its name, such as ``PII``.
        attributes: its attributes by name.
    """

    type: str
    attributes: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The circumstances of a request, for one policy.

    Attributes:
        subject: who asks, and who owns the resource.
        users: attributes of users and groups.
        now: the time, with time zone.
        resource: what is asked for; None if the question is not about one resource.
        access: the access type that is asked for.
        tags: all tags of the resource; None if they are not known.
        tag: the tag by which the policy is about the resource; None for a policy on resources.
    """

    subject: Subject
    users: UserStore
    now: datetime
    resource: Resource | None
    access: str | None = None
    tags: tuple[Tag, ...] | None = None
    tag: Tag | None = None
