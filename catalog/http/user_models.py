"""Bodies and answers of `/admin/v1/users` and `/admin/v1/tokens`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

from pydantic import Field

from catalog.authorization.tokens import DEFAULT_TTL, TokenKind
from catalog.http.base_models import Answer, OwnBody
from policy.principal import Principal
from policy.token_scope import TokenScope

if TYPE_CHECKING:
    from catalog.authorization.known_principals import KnownPrincipal
    from catalog.authorization.tokens import IssuedToken, TokenInfo

Names = Annotated[list[str], Field(max_length=1_000)]
_Lifetime = Annotated[int, Field(ge=1, le=100 * 365 * 24 * 3600)]
_Scope = Annotated[str, Field(min_length=1, max_length=64 * 1024)]
_DEFAULT_S: Final = round(DEFAULT_TTL.total_seconds())
_LONGEST_OVERLAP_S: Final = 7 * 24 * 3600


class _NewToken(OwnBody):
    """The lifetime of a new token in seconds: 90 days by default, null for no end."""

    ttl_s: _Lifetime | None = _DEFAULT_S

    @property
    def ttl(self) -> timedelta | None:
        """The lifetime; None for no end."""
        return None if self.ttl_s is None else timedelta(seconds=self.ttl_s)


class IssueToken(_NewToken):
    """The user of a new token, and its lifetime in seconds: 90 days by default, null for no end.

    Groups and roles are for a user whom the catalog does not know yet. `scope` limits the token: items with
    one space between them, of `read-only`, `namespace:NAME` and `table:NAMESPACE.TABLE`.
    """

    principal: str
    groups: Names = Field(default_factory=list)
    roles: Names = Field(default_factory=list)
    kind: TokenKind = "user"
    scope: _Scope | None = None

    def to_principal(self) -> Principal:
        """Return the user, with the scope of the token.

        Raises:
            RequestInvalid: a name or the scope is not valid.
        """
        scope = None if self.scope is None else TokenScope.parse(self.scope)
        return Principal(self.principal, frozenset(self.groups), frozenset(self.roles), scope)


class RotateToken(_NewToken):
    """The lifetime of the new token as for `IssueToken`, and the seconds for which the old one is valid."""

    overlap_s: Annotated[int, Field(ge=0, le=_LONGEST_OVERLAP_S)] = 3600

    @property
    def overlap(self) -> timedelta:
        """How long the old token stays valid."""
        return timedelta(seconds=self.overlap_s)


class TokenIssued(Answer):
    """A new token; `token` is shown only once."""

    id: UUID
    token: Annotated[str, Field(repr=False)]
    expires_at: datetime | None

    @classmethod
    def of(cls, issued: IssuedToken) -> TokenIssued:
        """Convert a new token to an answer."""
        return cls(id=issued.id, token=issued.text, expires_at=issued.expires_at)


class TokenAnswer(Answer):
    """A token without its secret, with the groups and roles that its user has now.

    `used-at` is when it was last used, of a user's token within ten minutes.
    """

    id: UUID
    kind: str
    principal: str
    groups: list[str]
    roles: list[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None
    scope: str | None

    @classmethod
    def of(cls, info: TokenInfo) -> TokenAnswer:
        """Convert a token to an answer."""
        return cls(
            id=info.id,
            kind=info.kind,
            principal=info.principal.name,
            groups=sorted(info.principal.groups),
            roles=sorted(info.principal.roles),
            created_at=info.created_at,
            expires_at=info.expires_at,
            revoked_at=info.revoked_at,
            used_at=info.used_at,
            scope=info.scope,
        )


class TokenList(Answer):
    """Tokens, oldest first."""

    tokens: list[TokenAnswer]

    @classmethod
    def of(cls, found: Iterable[TokenInfo]) -> TokenList:
        """Convert tokens to an answer."""
        return cls(tokens=[TokenAnswer.of(each) for each in found])


class TokensOf(OwnBody):
    """The user whose tokens are meant."""

    principal: str


class TokensRevoked(Answer):
    """The number of tokens that were valid until now."""

    revoked: int


class AssignGroups(OwnBody):
    """A user, and the groups and roles in place of those that were assigned."""

    user: str
    groups: Names = Field(default_factory=list)
    roles: Names = Field(default_factory=list)


class UserBody(OwnBody):
    """A user."""

    user: str


class UserAnswer(Answer):
    """A user or engine: groups and roles that an administrator assigned, and those of its identity provider.

    `issuer` is the provider that named it last, by its name in the settings.
    """

    name: str
    groups: list[str]
    roles: list[str]
    issuer: str | None
    claimed_groups: list[str]
    claimed_roles: list[str]
    claimed_at: datetime | None
    known_since: datetime
    disabled_at: datetime | None

    @classmethod
    def of(cls, found: KnownPrincipal) -> UserAnswer:
        """Convert a principal to an answer."""
        return cls(
            name=found.name,
            groups=sorted(found.groups),
            roles=sorted(found.roles),
            issuer=found.issuer,
            claimed_groups=sorted(found.claimed_groups),
            claimed_roles=sorted(found.claimed_roles),
            claimed_at=found.claimed_at,
            known_since=found.known_since,
            disabled_at=found.disabled_at,
        )


class UserList(Answer):
    """Users and engines, by name."""

    users: list[UserAnswer]

    @classmethod
    def of(cls, found: Iterable[KnownPrincipal]) -> UserList:
        """Convert principals to an answer."""
        return cls(users=[UserAnswer.of(each) for each in found])
