"""What the catalog knows of a user or engine: groups, roles, and why nothing is decided for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from catalog.base.times import from_ms
from catalog.settings.identity import IdentitySettings
from policy.errors import NotAuthenticated
from policy.principal import Principal

DISABLED: Final = "disabled: an administrator disabled the user"


@dataclass(frozen=True, slots=True)
class KnownPrincipal:
    """A user or engine.

    Attributes:
        name: its name.
        groups: the groups that an administrator assigned.
        roles: the roles that an administrator assigned.
        issuer: the identity provider that named it last, by its name in the settings; None for a principal of
            the catalog alone.
        claimed_groups: the groups of the provider's last token.
        claimed_roles: the roles of the provider's last token.
        claimed_at: when the provider issued that token, or when it came, if it does not say so; None if none
            came.
        known_since: since when it is known.
        disabled_at: when it was disabled, or None.
    """

    name: str
    groups: frozenset[str]
    roles: frozenset[str]
    issuer: str | None
    claimed_groups: frozenset[str]
    claimed_roles: frozenset[str]
    claimed_at: datetime | None
    known_since: datetime
    disabled_at: datetime | None

    @property
    def principal(self) -> Principal:
        """The principal, with every group and role."""
        return Principal(self.name, self.groups | self.claimed_groups, self.roles | self.claimed_roles)

    def why_unknown(self, now: datetime, identity: IdentitySettings) -> str | None:
        """Return why nothing is decided for the principal; None if it is known."""
        if self.disabled_at is not None:
            return DISABLED
        if self.issuer is not None and self.issuer not in identity.issuers:
            return f"claims-issuer: the identity provider {self.issuer} is not in the settings any more"
        if self.claimed_at is not None and now - self.claimed_at > identity.claims_age:
            return "claims-age: the identity provider has not named the user for too long"
        return None


def not_in_force(why: str) -> NotAuthenticated:
    """Return the refusal of a token: one sentence for every reason, which only the logs have."""
    return NotAuthenticated(
        "The token is unknown, expired or revoked.",
        rule="token",
        hint="Ask an administrator for a new token.",
        why=why,
    )


def known(row: Mapping[Any, Any]) -> KnownPrincipal:
    """Return the principal of a row with the columns of `lw_principal`."""
    return KnownPrincipal(
        row["name"],
        _names(row["groups"]),
        _names(row["roles"]),
        row["issuer"],
        _names(row["claimed_groups"]),
        _names(row["claimed_roles"]),
        from_ms(row["claimed_ms"]),
        from_ms(row["known_since_ms"]),
        from_ms(row["disabled_ms"]),
    )


def _names(text: str | None) -> frozenset[str]:
    return frozenset() if text is None else frozenset(json.loads(text))
