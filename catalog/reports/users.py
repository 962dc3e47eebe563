"""Reads the users about whom access reports are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from catalog.authorization.principals import Principals
from policy.principal import Principal
from policy.privileges.requests import Through


@dataclass(frozen=True, slots=True)
class KnownUsers:
    """The users and engines of the catalog.

    Attributes:
        principals: each with every group and role.
        refused: by name why the service refuses some of them now, whatever policies say.
    """

    principals: tuple[Principal, ...]
    refused: dict[str, str]


def known_users(principals: Principals) -> KnownUsers:
    """Return the users of the catalog.

    Raises:
        StateUnavailable: the database does not answer.
    """
    found = principals.list()
    refused = {each.name: why for each in found if (why := principals.why_unknown(each)) is not None}
    return KnownUsers(tuple(each.principal for each in found), refused)


def groups_note(groups: Sequence[str]) -> str:
    """Return the sentence on groups of which the catalog knows no user."""
    return f"Policies also name groups without known users: {', '.join(groups)}."


def through_note(through: Through) -> str:
    """Return the sentence on the kind of client that reads were decided for."""
    return f"Reads are decided for --through {through.value}. Other clients can get other answers."


def refusal_note(name: str, why: str) -> str:
    """Return the sentence on a user whom the service refuses now."""
    return f"The service refuses {name} now ({why})."
