"""Bearer tokens of users, bootstrap tokens of engines, and tokens for the KMS endpoint for Hadoop clients.

- A token is `lw_<id>_<secret>`: the id as 32 hexadecimal digits, the secret 32 random bytes in base64url. It
  is shown once. The database keeps the SHA-256 of the whole text; 256 random bits need no slow hash.
- Unknown, malformed, expired, revoked, or of another kind: one error with one sentence, which does not tell
  which. Hashes are compared in constant time, for an unknown id too.
- Nothing is cached: a revocation takes effect with the next request, in every process.
- An engine's token serves to register a public key and for nothing else
  (`catalog.authorization.engine_keys`): `engine` once, `engine-reusable` at each start.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from sqlalchemy import Engine, bindparam, insert, select, update

from catalog.db.engine import read, write
from catalog.db.prepared import Prepared
from catalog.db.schema import lw_token
from policy.errors import NotAuthenticated, RequestInvalid
from policy.principal import Principal

TokenKind: TypeAlias = Literal["user", "engine", "engine-reusable", "kms"]

_KINDS: Final[tuple[TokenKind, ...]] = ("user", "engine", "engine-reusable", "kms")
_TOKEN: Final = re.compile(r"lw_([0-9a-f]{32})_[A-Za-z0-9_-]{43}", re.ASCII)
_TOKEN_LENGTH: Final = len("lw_") + 32 + len("_") + 43
_NO_SUCH_HASH: Final = "0" * 64
_FIND: Final = Prepared(select(lw_token).where(lw_token.c.id == bindparam("token_id")))


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
        used_at: when an engine last registered a key with it, or None.
    """

    id: uuid.UUID
    kind: TokenKind
    principal: Principal
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None


def _utc_now() -> datetime:
    return datetime.now(UTC)


class TokenStore:
    """Issues, verifies and revokes bearer tokens.

    Args:
        engine: the catalog's database, upgraded.
        clock: the time, with a zone.
        require_clock: raises if the time cannot be trusted.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Callable[[], datetime] = _utc_now,
        require_clock: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._require_clock = require_clock

    def issue(self, principal: Principal, kind: TokenKind, ttl: timedelta | None) -> IssuedToken:
        """Issue a token for a principal.

        Args:
            principal: for whom, with the groups and roles that the token carries.
            kind: `user` for people and services; `engine` for one start of an engine that acts for users,
                `engine-reusable` for any number of them; `kms` for the KMS endpoint for Hadoop clients alone.
            ttl: how long it is valid; None until it is revoked. For engines: how long it can register keys.

        Raises:
            RequestInvalid: the kind is unknown, the time is not positive, or the name is too long to be
                stored.
            StateUnavailable: the database does not answer.
        """
        _check_issue(principal, kind, ttl)
        now = self._clock()
        token_id = uuid.uuid4()
        issued = IssuedToken(
            token_id, f"lw_{token_id.hex}_{secrets.token_urlsafe(32)}", None if ttl is None else now + ttl
        )
        with write(self._engine) as connection:
            connection.execute(
                insert(lw_token).values(
                    id=str(token_id),
                    kind=kind,
                    principal=principal.name,
                    groups=json.dumps(sorted(principal.groups)),
                    roles=json.dumps(sorted(principal.roles)),
                    secret_sha256=_digest(issued.text),
                    created_ms=to_ms(now),
                    expires_ms=None if issued.expires_at is None else to_ms(issued.expires_at),
                )
            )
        return issued

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
        row = _FIND.named(self._engine, token_id=str(uuid.UUID(hex=matched[1]))) if matched else None
        known = _NO_SUCH_HASH if row is None else row["secret_sha256"]
        is_genuine = hmac.compare_digest(known, _digest(text))
        if row is None or not is_genuine or row["kind"] not in kinds or not self._in_force(row):
            raise NotAuthenticated(
                "The token is unknown, expired or revoked.",
                rule="token",
                hint="Ask an administrator for a new token.",
            )
        return _info(row)

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

    def has(self, principal: Principal) -> bool:
        """Return whether a valid token of a user has exactly these groups and roles.

        Raises:
            StateUnavailable: the database does not answer, or the clock of this host is off.
        """
        self._require_clock()
        query = select(lw_token).where(lw_token.c.principal == principal.name, lw_token.c.kind == "user")
        with read(self._engine) as connection:
            rows = connection.execute(query).mappings().all()
        return any(self._in_force(row) and principal_of(row) == principal for row in rows)

    def list(self) -> tuple[TokenInfo, ...]:
        """Return all tokens, including expired and revoked ones, oldest first.

        Raises:
            StateUnavailable: the database does not answer.
        """
        query = select(lw_token).order_by(lw_token.c.created_ms, lw_token.c.id)
        with read(self._engine) as connection:
            return tuple(_info(row) for row in connection.execute(query).mappings())

    def _in_force(self, row: Mapping[Any, Any]) -> bool:
        expires = row["expires_ms"]
        return row["revoked_ms"] is None and (expires is None or to_ms(self._clock()) < expires)


def _check_issue(principal: Principal, kind: str, ttl: timedelta | None) -> None:
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


def to_ms(moment: datetime) -> int:
    """Convert a time to milliseconds since 1970, as the database stores times."""
    return int(moment.timestamp() * 1000)


def from_ms(value: int | None) -> datetime | None:
    """Convert milliseconds to a time, or None."""
    return None if value is None else datetime.fromtimestamp(value / 1000, UTC)


def principal_of(row: Mapping[Any, Any]) -> Principal:
    """Return the principal of a row of `lw_token`."""
    return Principal(
        row["principal"], frozenset(json.loads(row["groups"])), frozenset(json.loads(row["roles"]))
    )


def _info(row: Mapping[Any, Any]) -> TokenInfo:
    return TokenInfo(
        id=uuid.UUID(row["id"]),
        kind=row["kind"],
        principal=principal_of(row),
        created_at=datetime.fromtimestamp(row["created_ms"] / 1000, UTC),
        expires_at=from_ms(row["expires_ms"]),
        revoked_at=from_ms(row["revoked_ms"]),
        used_at=from_ms(row["used_ms"]),
    )
