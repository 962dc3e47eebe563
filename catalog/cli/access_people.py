"""Reads the users about whom access reports are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from catalog.cli.session import open_state

if TYPE_CHECKING:
    from catalog.settings.catalog import Settings
    from policy.principal import Principal


@dataclass(frozen=True, slots=True)
class KnownUsers:
    """The users and engines of the catalog.

    Attributes:
        principals: each with every group and role.
        refused: by name why the service refuses some of them now, whatever policies say.
    """

    principals: tuple[Principal, ...]
    refused: dict[str, str]


def known_users(settings: Settings) -> KnownUsers:
    """Return the users of the catalog.

    Raises:
        StateUnavailable: the database does not answer.
    """
    from catalog.authorization.principals import principals_of

    with open_state(settings) as engine:
        principals = principals_of(engine, settings.identity)
        found = principals.list()
    refused = {each.name: why for each in found if (why := principals.why_unknown(each)) is not None}
    return KnownUsers(tuple(each.principal for each in found), refused)


def groups_note(groups: Sequence[str]) -> str:
    """Return the sentence on groups of which the catalog knows no user."""
    return f"Policies also name groups without known users: {', '.join(groups)}."
