"""Bearer tokens of users, bootstrap tokens of engines, and tokens for the KMS endpoint for Hadoop clients.

- A token is `lw_<id>_<secret>`: the id as 32 hexadecimal digits, the secret 32 random bytes in base64url. It
  is shown once. The database keeps the SHA-256 of the whole text; 256 random bits need no slow hash.
- Unknown, malformed, expired, revoked, or of another kind: one error with one sentence, which does not tell
  which. Hashes are compared in constant time, for an unknown id too.
- A token says who its holder is, and no more: groups and roles are looked up at each use
  (`catalog.authorization.principals`). Its scope limits what it can do (`policy.token_scope`); a token whose
  scope cannot be read is not valid.
- Nothing is cached: a revocation takes effect with the next request, in every process.
- An engine's token serves to register a public key and for nothing else
  (`catalog.authorization.engine_keys`): `engine` once, `engine-reusable` at each start.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from sqlalchemy import Connection, Engine, bindparam, insert, or_, select, update

from catalog.authorization.known_principals import known, not_in_force
from catalog.authorization.principals import (
    ENGINE_KINDS,
    NO_PROVIDERS,
    hold,
    introduce,
    require_no_claims,
    revoke_every,
)
from catalog.base.times import from_ms, to_ms
from catalog.db.engine import read, write
from catalog.db.prepared import Prepared
from catalog.db.schema import lw_principal, lw_token
from catalog.settings.identity import IdentitySettings
from policy.errors import CommitStateUnknown, RequestInvalid, StateUnavailable
from policy.principal import Principal
from policy.token_scope import TokenScope

TokenKind: TypeAlias = Literal["user", "engine", "engine-reusable", "kms"]

#: The lifetime of a token if none is asked for.
DEFAULT_TTL: Final = timedelta(days=90)
#: How old the last use in the database can be before it is written again.
_USE_WRITTEN_AFTER: Final = timedelta(minutes=10)
_KINDS: Final[tuple[TokenKind, ...]] = ("user", "engine", "engine-reusable", "kms")
_TOKEN: Final = re.compile(r"lw_([0-9a-f]{32})_[A-Za-z0-9_-]{43}", re.ASCII)
_TOKEN_LENGTH: Final = len("lw_") + 32 + len("_") + 43
_NO_SUCH_HASH: Final = "0" * 64
#: A token with its principal, as which it is good.
WITH_PRINCIPAL: Final = select(lw_token, *lw_principal.c).join(
    lw_principal, lw_principal.c.name == lw_token.c.principal
)
_FIND: Final = Prepared(WITH_PRINCIPAL.where(lw_token.c.id == bindparam("token_id")))


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token, with the only copy of its text.

    Attributes:
        id: what the token is listed and revoked by.
        text: the secret to hand to its owner; not part of `repr`.
        expires_at: from when on it is refused, or None.
    """

    id: uuid.UUID
    text: str = field(repr=False)
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """The properties of a token without its secret.

    Attributes:
        used_at: when an engine last registered a key with it; when another token was last used, within ten
            minutes; or None.
        scope: the text of its scope, or None.
    """

    id: uuid.UUID
    kind: TokenKind
    principal: Principal
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None
    scope: str | None


def _utc_now() -> datetime:
    return datetime.now(UTC)


class TokenStore:
    """Issues, verifies and revokes bearer tokens.

    Args:
        engine: the catalog's database, upgraded.
        clock: the time, with a zone.
        require_clock: raises if the time cannot be trusted.
        identity: which claims of identity providers count for a user's tokens of the catalog.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Callable[[], datetime] = _utc_now,
        require_clock: Callable[[], None] = lambda: None,
        identity: IdentitySettings = NO_PROVIDERS,
    ) -> None:
        self._engine = engine
        self._identity = identity
        self._clock = clock
        self._require_clock = require_clock

    def issue(self, principal: Principal, kind: TokenKind, ttl: timedelta | None) -> IssuedToken:
        """Issue a token for a principal.

        Args:
            principal: for whom, and with which scope. A new one gets the groups and roles that are given. A
                known one has its own: none are given, or the same.
            kind: `user` for people and services; `engine` for one start of an engine that acts for users,
                `engine-reusable` for any number of them; `kms` for the KMS endpoint for Hadoop clients alone.
            ttl: how long it is valid; None until it is revoked. For engines: how long it can register keys.

        Raises:
            RequestInvalid: the kind is unknown, the time is not positive, the principal has other groups or
                roles, an engine is to have the name of a provider's user, or a token of another kind than
                `user` is to have a scope.
            StateUnavailable: the database does not answer.
        """
        _check_issue(kind, ttl)
        scope = None if principal.scope is None else str(principal.scope)
        if scope is not None and kind != "user":
            raise RequestInvalid(
                f"A token of the kind {kind} cannot have a scope.",
                rule="token-scope",
                hint="Give a scope to tokens of users alone.",
            )
        now = self._clock()
        with write(self._engine) as connection:
            introduce(connection, principal, now)
            if kind in ENGINE_KINDS:
                require_no_claims(connection, principal.name)
            return _add(connection, principal.name, kind, scope, now, ttl)

    def verify(self, text: str, *kinds: TokenKind) -> Principal:
        """Return the principal of a token; errors as in `identify`."""
        return self.identify(text, *kinds).principal

    def identify(self, text: str, *kinds: TokenKind) -> TokenInfo:
        """Return the token with this text.

        Raises:
            NotAuthenticated: the token is not valid as a token of these kinds, for whatever reason.
            StateUnavailable: the database does not answer, or the clock of this host is off.
        """
        self._require_clock()
        matched = _TOKEN.fullmatch(text) if len(text) == _TOKEN_LENGTH else None
        row = self._find(uuid.UUID(hex=matched[1])) if matched else None
        stored = _NO_SUCH_HASH if row is None else row["secret_sha256"]
        is_genuine = hmac.compare_digest(stored, _digest(text))
        if row is None or not is_genuine or row["kind"] not in kinds:
            raise not_in_force("unknown: no token of this kind has this text")
        if not self._in_force(row):
            raise not_in_force(f"ended: the token {row['id']} was revoked or has expired")
        principal = self.holder(row)
        self._note_use(row)
        return replace(_info(row), principal=principal)

    def holder(self, row: Mapping[Any, Any]) -> Principal:
        """Return the principal of a row of `WITH_PRINCIPAL`, with the scope of the token.

        Raises:
            NotAuthenticated: they are disabled, what their identity provider said does not count any more, or
                the scope cannot be read.
        """
        found = known(row)
        if (why := found.why_unknown(self._clock(), self._identity)) is not None:
            raise not_in_force(why)
        if row["scope"] is None:
            return found.principal
        try:
            return replace(found.principal, scope=TokenScope.parse(row["scope"]))
        except RequestInvalid as error:
            raise not_in_force(f"scope: {error.message}") from None

    def revoke(self, token_id: uuid.UUID | str) -> None:
        """Revoke a token and every key registered with it, at once; revoking it again changes nothing.

        Raises:
            RequestInvalid: there is no such token.
            StateUnavailable: the database does not answer.
        """
        wanted = str(_token_id(token_id))
        with write(self._engine) as connection:
            if connection.execute(select(lw_token.c.id).where(lw_token.c.id == wanted)).first() is None:
                raise _no_such_token()
            connection.execute(
                update(lw_token)
                .where(lw_token.c.id == wanted, lw_token.c.revoked_ms.is_(None))
                .values(revoked_ms=to_ms(self._clock()))
            )

    def revoke_all(self, name: str) -> int:
        """Revoke every token of a principal, and every key registered with one, at once.

        Returns:
            how many were valid until now.

        Raises:
            StateUnavailable: the database does not answer.
        """
        with write(self._engine) as connection:
            return revoke_every(connection, name, to_ms(self._clock()))

    def rotate(self, token_id: uuid.UUID | str, ttl: timedelta | None, overlap: timedelta) -> IssuedToken:
        """Issue a token in place of one, with the same principal, kind and scope.

        Args:
            token_id: the token that is replaced.
            ttl: how long the new one is valid; None until it is revoked.
            overlap: how long the old one stays valid, at most.

        Raises:
            RequestInvalid: there is no such token, it is not valid any more, or a time is not positive.
            StateUnavailable: the database does not answer.
        """
        found, now = self._find(_token_id(token_id)), self._clock()
        if found is None:
            raise _no_such_token()
        _check_issue(found["kind"], ttl)
        ends_ms = to_ms(now + overlap)
        earlier = or_(lw_token.c.expires_ms.is_(None), lw_token.c.expires_ms > ends_ms)
        with write(self._engine) as connection:
            # `revoke_all` comes before this, so that nothing is replaced, or revokes the new token too.
            hold(connection, found["principal"])
            mine = lw_token.c.id == found["id"]
            row = connection.execute(select(lw_token).where(mine)).mappings().one()
            if not self._in_force(row):
                raise _no_such_token()
            connection.execute(update(lw_token).where(mine, earlier).values(expires_ms=ends_ms))
            return _add(connection, row["principal"], row["kind"], row["scope"], now, ttl)

    def list(self, name: str | None = None) -> tuple[TokenInfo, ...]:
        """Return tokens, including expired and revoked ones, oldest first: all, or those of one principal.

        Raises:
            StateUnavailable: the database does not answer.
        """
        query = WITH_PRINCIPAL.order_by(lw_token.c.created_ms, lw_token.c.id)
        if name is not None:
            query = query.where(lw_token.c.principal == name)
        with read(self._engine) as connection:
            return tuple(_info(row) for row in connection.execute(query).mappings())

    def _note_use(self, row: Mapping[Any, Any]) -> None:
        """Keep when a token was used; those of engines keep when they registered a key."""
        now_ms, used_ms = to_ms(self._clock()), row["used_ms"]
        is_noted = used_ms is not None and now_ms - used_ms < _USE_WRITTEN_AFTER.total_seconds() * 1000
        if row["kind"] not in ("user", "kms") or is_noted:
            return
        # Who uses it is on record in the audit log, without which nothing is granted.
        with suppress(StateUnavailable, CommitStateUnknown), write(self._engine) as connection:
            connection.execute(update(lw_token).where(lw_token.c.id == row["id"]).values(used_ms=now_ms))

    def _find(self, token_id: uuid.UUID) -> Mapping[Any, Any] | None:
        return _FIND.named(self._engine, token_id=str(token_id))

    def _in_force(self, row: Mapping[Any, Any]) -> bool:
        expires = row["expires_ms"]
        return row["revoked_ms"] is None and (expires is None or to_ms(self._clock()) < expires)


def _add(
    connection: Connection,
    name: str,
    kind: TokenKind,
    scope: str | None,
    now: datetime,
    ttl: timedelta | None,
) -> IssuedToken:
    """Add a token of a principal that is there."""
    token_id = uuid.uuid4()
    text = f"lw_{token_id.hex}_{secrets.token_urlsafe(32)}"
    issued = IssuedToken(token_id, text, None if ttl is None else now + ttl)
    connection.execute(
        insert(lw_token).values(
            id=str(token_id),
            kind=kind,
            principal=name,
            secret_sha256=_digest(text),
            created_ms=to_ms(now),
            expires_ms=None if issued.expires_at is None else to_ms(issued.expires_at),
            scope=scope,
        )
    )
    return issued


def new_token_text(principal: Principal, kind: TokenKind) -> str:
    """Return what the audit log says of a token that is issued."""
    scope = "" if principal.scope is None else f" ({principal.scope})"
    return f"{kind} {principal.name}{scope}"


def _check_issue(kind: str, ttl: timedelta | None) -> None:
    if kind not in _KINDS:
        raise RequestInvalid(
            f"{kind!r} is not a kind of token.", rule="token-kind", hint=f"Use one of: {', '.join(_KINDS)}."
        )
    if ttl is not None and ttl <= timedelta(0):
        raise RequestInvalid(
            "The lifetime of the token must be positive.",
            rule="token-ttl",
            hint="Give a positive lifetime, or none for a token that does not expire.",
        )


def _token_id(given: uuid.UUID | str) -> uuid.UUID:
    try:
        return given if isinstance(given, uuid.UUID) else uuid.UUID(given)
    except ValueError:
        # The argument can be a whole token by mistake, so it is not repeated.
        raise _no_such_token() from None


def _no_such_token() -> RequestInvalid:
    return RequestInvalid(
        "No token has this id.", rule="token", hint="Run `lakewarden token list` to find the id."
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _info(row: Mapping[Any, Any]) -> TokenInfo:
    return TokenInfo(
        id=uuid.UUID(row["id"]),
        kind=row["kind"],
        principal=known(row).principal,
        created_at=from_ms(row["created_ms"]),
        expires_at=from_ms(row["expires_ms"]),
        revoked_at=from_ms(row["revoked_ms"]),
        used_at=from_ms(row["used_ms"]),
        scope=row["scope"],
    )
