"""Registers the public keys of engines, and identifies the engine that signed a request.

- An engine makes a key pair when it starts, and registers the public key with its bootstrap token. From then
  on it signs each request (`catalog.crypto.request_signatures`); the token is not needed again.
- A one-time token (`engine`) registers one key. Repeated with the same key it answers the same, since an
  answer can get lost. A reusable one (`engine-reusable`) registers a key at each start.
- A key ends when it has not been used for `KEY_IDLE`, and with the next request after its token is revoked.
- A signature is good for `WINDOW` before and after the time in it, and once: the nonces are remembered for
  that long, by all workers of a service (`nonces`). Within the window, another replica takes the same request
  once more. It is the same in every byte, its idempotency key included, so that it asks for nothing else than
  the first one did.

Source: RFC 9421, section 7.2.2 (replay).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, Engine, bindparam, delete, insert, select, update

from catalog.authorization.nonces import SeenNonces
from catalog.authorization.tokens import WITH_PRINCIPAL, TokenInfo, TokenStore
from catalog.base.times import from_ms, to_ms
from catalog.crypto.request_signatures import RULE, RequestSignature, SignedRequest
from catalog.db.engine import write
from catalog.db.prepared import Prepared
from catalog.db.schema import lw_engine_key, lw_token
from policy.errors import NotAuthenticated, RequestInvalid
from policy.principal import Principal

#: The maximum difference between the time of a signature and the catalog's time.
WINDOW: Final = timedelta(seconds=30)
#: The lifetime of an unused key.
KEY_IDLE: Final = timedelta(days=7)
#: The rule of refusals that a new signature with the catalog's time avoids.
STALE_RULE: Final = "engine-signature-stale"
PUBLIC_KEY_BYTES: Final = 32
_RENEW_AFTER: Final = timedelta(hours=1)

_FIND: Final = Prepared(
    WITH_PRINCIPAL.join(lw_engine_key, lw_engine_key.c.token_id == lw_token.c.id)
    .add_columns(lw_engine_key.c.public_key, lw_engine_key.c.expires_ms.label("key_expires_ms"))
    .where(lw_engine_key.c.id == bindparam("key_id"))
)


@dataclass(frozen=True, slots=True)
class SigningEngine:
    """The engine that signed a request.

    Attributes:
        principal: with its groups and roles.
        reusable: whether its key was registered with a reusable token.
    """

    principal: Principal
    reusable: bool


@dataclass(frozen=True, slots=True)
class RegisteredKey:
    """A key of an engine.

    Attributes:
        id: what signatures name it by.
        expires_at: when it ends, unless it is used before.
    """

    id: uuid.UUID
    expires_at: datetime


class EngineKeys:
    """Registers and looks up the keys of engines.

    Args:
        engine: the catalog's database, upgraded.
        tokens: the tokens in it.
        clock: the time, with a zone.

    Attributes:
        nonces: of signatures that were valid.
    """

    def __init__(self, engine: Engine, tokens: TokenStore, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._tokens = tokens
        self._clock = clock
        # A signature from the future is valid until its time and the window have passed.
        self.nonces: Final = SeenNonces(2 * round(WINDOW.total_seconds() * 1000) + 1000)

    def bootstrap(self, token: str) -> TokenInfo:
        """Return the bootstrap token of an engine that starts.

        Raises:
            NotAuthenticated: it is not a valid token of an engine.
            StateUnavailable: the database does not answer.
        """
        return self._tokens.identify(token, "engine", "engine-reusable")

    def register(self, token: TokenInfo, public_key: bytes) -> RegisteredKey:
        """Register the public key of an engine that starts.

        Args:
            token: what `bootstrap` answered.
            public_key: Ed25519, 32 bytes.

        Raises:
            NotAuthenticated: the token has registered another key, and serves once; or it was revoked.
            RequestInvalid: the key is of another length.
            StateUnavailable: the database does not answer.
        """
        if len(public_key) != PUBLIC_KEY_BYTES:
            raise RequestInvalid(
                f"The public key has {len(public_key)} bytes.",
                rule="engine-key",
                hint=f"Send the {PUBLIC_KEY_BYTES} bytes of an Ed25519 key (RFC 8032).",
            )
        now_ms = to_ms(self._clock())
        with write(self._engine) as connection:
            is_free = _claim(connection, token, now_ms)
            connection.execute(delete(lw_engine_key).where(lw_engine_key.c.expires_ms <= now_ms))
            known = _known(connection, token, public_key)
            if known is None and not is_free:
                raise _used()
            return known or _add(connection, token, public_key, now_ms)

    def authenticate(self, signature: RequestSignature, request: SignedRequest) -> SigningEngine:
        """Return the engine that signed a request.

        Raises:
            NotAuthenticated: no key in force made this signature; or it is too old, or was used before.
            StateUnavailable: the database does not answer, or too many requests come.
        """
        key_id, now = signature.parameters.key_id, self._clock()
        row = _FIND.named(self._engine, key_id=str(key_id))
        if row is None or not _in_force(row, to_ms(now)) or not signature.is_by(row["public_key"], request):
            raise NotAuthenticated(
                "The engine's signature is not valid, or its key has expired.",
                rule=RULE,
                hint="Restart the engine with a new token. Check that proxies do not change path and query.",
            )
        self._require_fresh(signature, now)
        self._keep(key_id, row["key_expires_ms"], now)
        return SigningEngine(self._tokens.holder(row), row["kind"] == "engine-reusable")

    def _require_fresh(self, signature: RequestSignature, now: datetime) -> None:
        parameters = signature.parameters
        apart = abs(now.timestamp() - parameters.created)
        if apart > WINDOW.total_seconds():
            raise _stale(f"The time of the signature differs from the catalog's time by {apart:.0f} s.")
        if not self.nonces.is_first(parameters.key_id, parameters.nonce, to_ms(now)):
            raise _stale("The signature was already used.")

    def _keep(self, key_id: uuid.UUID, expires_ms: int, now: datetime) -> None:
        """Extend the lifetime of a key in use; not written at each request."""
        wanted = to_ms(now + KEY_IDLE)
        if wanted - expires_ms < _RENEW_AFTER.total_seconds() * 1000:
            return
        with write(self._engine) as connection:
            mine = lw_engine_key.c.id == str(key_id)
            connection.execute(update(lw_engine_key).where(mine).values(expires_ms=wanted))


def _claim(connection: Connection, token: TokenInfo, now_ms: int) -> bool:
    """Record the use of a token; return whether it can register another key. Holds its row against others."""
    wanted = [lw_token.c.id == str(token.id), lw_token.c.revoked_ms.is_(None)]
    if token.kind == "engine":
        wanted.append(lw_token.c.used_ms.is_(None))
    return connection.execute(update(lw_token).where(*wanted).values(used_ms=now_ms)).rowcount == 1


def _known(connection: Connection, token: TokenInfo, public_key: bytes) -> RegisteredKey | None:
    same = (lw_engine_key.c.token_id == str(token.id), lw_engine_key.c.public_key == public_key)
    row = connection.execute(select(lw_engine_key).where(*same)).mappings().one_or_none()
    return None if row is None else _registered(row["id"], row["expires_ms"])


def _add(connection: Connection, token: TokenInfo, public_key: bytes, now_ms: int) -> RegisteredKey:
    key_id, expires_ms = str(uuid.uuid4()), now_ms + round(KEY_IDLE.total_seconds() * 1000)
    connection.execute(
        insert(lw_engine_key).values(
            id=key_id,
            token_id=str(token.id),
            public_key=public_key,
            created_ms=now_ms,
            expires_ms=expires_ms,
        )
    )
    return _registered(key_id, expires_ms)


def _registered(key_id: str, expires_ms: int) -> RegisteredKey:
    expires_at = from_ms(expires_ms)
    assert expires_at is not None
    return RegisteredKey(uuid.UUID(key_id), expires_at)


def _in_force(row: Mapping[str, Any], now_ms: int) -> bool:
    return row["revoked_ms"] is None and now_ms < row["key_expires_ms"]


def _used() -> NotAuthenticated:
    return NotAuthenticated(
        "The engine's token has already registered a key. It is valid for one start.",
        rule="engine-token-used",
        hint="Issue a new token. If none of your engines has used this token, revoke it: another "
        "process has used it.",
    )


def _stale(problem: str) -> NotAuthenticated:
    return NotAuthenticated(
        problem, rule=STALE_RULE, hint="Sign the request again with the time in the answer."
    )
