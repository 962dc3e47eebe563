"""Keeps sessions of the console: a browser's cookie stands for the token of its user.

- A cookie is 32 random bytes. The database has a SHA-256 derived from them, and the token, sealed under a key
  that is derived from them, too. So neither the database nor the cookie alone has the token: a copied cookie
  shows pages, and cannot call the API.
- A session decides nothing. Each request has its token checked as the API checks it
  (`catalog.identity.bearer`), so that whatever ends the token ends the session with it.
- A session is new at each login, and ends with logout, or `console.session_s` after login. A user has at most
  `MOST_SESSIONS`; the oldest ends first.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from sqlalchemy import Engine, bindparam, delete, insert, select

from catalog.base.times import to_ms
from catalog.crypto.aead import Aead
from catalog.crypto.hkdf import derived
from catalog.crypto.secret import SecretBytes
from catalog.db.engine import read, write
from catalog.db.schema import lw_console_session
from policy.errors import DecryptionRefused, NotAuthenticated

#: How many sessions a user has at a time.
MOST_SESSIONS: Final = 20
_BYTES: Final = 32
_COOKIE: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_FOR_DIGEST: Final = b"lakewarden/console-session/digest/1"
_FOR_KEY: Final = b"lakewarden/console-session/key/1"
_session: Final = lw_console_session.c
_FIND: Final = select(_session.sealed_token).where(
    _session.digest == bindparam("digest"), _session.expires_ms > bindparam("now_ms")
)


class _Session(NamedTuple):
    """What a cookie gives: the row's digest, and what opens its token."""

    digest: str
    cipher: Aead

    @classmethod
    def of(cls, cookie: bytes) -> _Session:
        digest = hashlib.sha256(derived(cookie, _BYTES, _FOR_DIGEST)).hexdigest()
        return cls(digest, Aead(SecretBytes(derived(cookie, _BYTES, _FOR_KEY))))

    @property
    def context(self) -> bytes:
        """The token opens in the row of its own session alone."""
        return self.digest.encode("ascii")


class ConsoleSessions:
    """The sessions in the catalog's database.

    Args:
        engine: the database, upgraded.
        now: the time, with a zone.
        lifetime: how long a session lasts at most.
    """

    def __init__(self, engine: Engine, now: Callable[[], datetime], lifetime: timedelta) -> None:
        self._engine = engine
        self._now = now
        self._lifetime = lifetime

    def begin(self, principal: str, token: str) -> str:
        """Begin a session of a user, and return its cookie; those that are over are removed.

        Args:
            principal: name of the user of the token, which was checked.
            token: the token.

        Raises:
            StateUnavailable: the database does not answer.
        """
        cookie, now = secrets.token_bytes(_BYTES), self._now()
        session = _Session.of(cookie)
        row = {
            "digest": session.digest,
            "principal": principal,
            "sealed_token": session.cipher.seal(token.encode("utf-8"), session.context),
            "begun_ms": to_ms(now),
            "expires_ms": to_ms(now + self._lifetime),
        }
        newest = select(_session.digest).where(_session.principal == principal)
        newest = newest.order_by(_session.begun_ms.desc(), _session.digest).limit(MOST_SESSIONS - 1)
        with write(self._engine) as connection:
            connection.execute(delete(lw_console_session).where(_session.expires_ms <= to_ms(now)))
            kept = connection.execute(newest).scalars().all()
            older = delete(lw_console_session).where(
                _session.principal == principal, _session.digest.not_in(kept)
            )
            connection.execute(older)
            connection.execute(insert(lw_console_session).values(row))
        return base64.urlsafe_b64encode(cookie).rstrip(b"=").decode("ascii")

    def token(self, cookie: str) -> str:
        """Return the token that a cookie stands for; it is not checked here.

        Raises:
            NotAuthenticated: there is no such session, or it is over.
            StateUnavailable: the database does not answer.
        """
        session = _opened(cookie)
        if session is None:
            raise session_over("form: the cookie is none of a session")
        with read(self._engine) as connection:
            asked = {"digest": session.digest, "now_ms": to_ms(self._now())}
            sealed: bytes | None = connection.scalar(_FIND, asked)
        if sealed is None:
            raise session_over("unknown: there is no such session, or it is over")
        try:
            return session.cipher.open(sealed, session.context).decode("utf-8")
        except DecryptionRefused:
            raise session_over("changed: the row of the session does not open") from None

    def end(self, cookie: str) -> None:
        """End a session; of a text that is the cookie of none, nothing.

        Raises:
            StateUnavailable: the database does not answer.
        """
        session = _opened(cookie)
        if session is not None:
            with write(self._engine) as connection:
                connection.execute(delete(lw_console_session).where(_session.digest == session.digest))


def session_over(why: str) -> NotAuthenticated:
    """Return the refusal of a request without a session.

    Args:
        why: what was found, for the logs.
    """
    return NotAuthenticated(
        "You are not logged in, or your session is over.", rule="console-session", hint="Log in.", why=why
    )


def _opened(cookie: str) -> _Session | None:
    if _COOKIE.fullmatch(cookie) is None:
        return None
    return _Session.of(base64.urlsafe_b64decode(cookie + "="))
