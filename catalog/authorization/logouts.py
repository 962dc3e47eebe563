"""Keeps which logins ended at their identity provider, so that access tokens of them are refused.

- A session that ended has no valid token any more. Where the provider ended all sessions of a subject, the
  tokens that it issued for the subject until then are not valid.
- A token that names no session can be of any one of its subject. So it ends with the first of them.
- What is kept for a request is read in the statement that reads its user: a logout takes effect with the next
  request, in every process.
- Of names, the database has a SHA-256. A logout is kept as long as a token that it ends could be valid.

Source: OpenID Connect Back-Channel Logout 1.0, sections 2.4 and 2.7.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, Engine, and_, bindparam, delete, exists, or_, select

from catalog.base.times import to_ms
from catalog.db.engine import read, write
from catalog.db.inserts import insert_into
from catalog.db.schema import lw_logout

_SESSION: Final = "session"
_SUBJECT: Final = "subject"
_NO_SESSION: Final = "subject without session"


@dataclass(frozen=True, slots=True)
class Login:
    """What an access token says of the login that it comes from.

    Attributes:
        issuer: the `iss` of the token.
        session: its `sid`, or None.
        subject: its `sub`, or None.
        issued_at: its `iat`.
    """

    issuer: str
    session: str | None
    subject: str | None
    issued_at: datetime

    def values(self) -> dict[str, object]:
        """The values of the parameters of `has_ended`."""
        alone = None if self.session is not None else self.subject
        return {
            "session": _key(self.issuer, _SESSION, self.session),
            "subject": _key(self.issuer, _SUBJECT, self.subject),
            "without_session": _key(self.issuer, _NO_SESSION, alone),
            "issued_ms": to_ms(self.issued_at),
        }


@dataclass(frozen=True, slots=True)
class Logout:
    """What ended at an identity provider.

    Attributes:
        issuer: the `iss` of the provider.
        session: the session that ended; None for all sessions of the subject.
        subject: the subject; None where the session alone is named.
        at: when the provider ended it.
        lifetime: how long a token that was issued before can be valid after now.
    """

    issuer: str
    session: str | None
    subject: str | None
    at: datetime
    lifetime: timedelta

    def named(self) -> Iterator[str]:
        """The keys of the rows that it is kept in."""
        kinds = {_SESSION: self.session, _SUBJECT if self.session is None else _NO_SESSION: self.subject}
        keys = (_key(self.issuer, kind, name) for kind, name in kinds.items())
        return (each for each in keys if each is not None)


def has_ended() -> ColumnElement[bool]:
    """Return the condition that a login has ended, with the parameters of `Login.values`."""
    key, before = lw_logout.c.key, lw_logout.c.at_ms >= bindparam("issued_ms")
    ended = or_(key == bindparam("subject"), key == bindparam("without_session"))
    return exists(select(key).where(or_(key == bindparam("session"), and_(ended, before))))


class Logouts:
    """The logouts in the catalog's database.

    Args:
        engine: the database, upgraded.
        now: the time, with a zone.
    """

    def __init__(self, engine: Engine, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._now = now

    def is_news(self, logout: Logout) -> bool:
        """Return whether a logout ends anything that is not known to have ended.

        Raises:
            StateUnavailable: the database does not answer.
        """
        keys = list(logout.named())
        known = select(lw_logout.c.key).where(
            lw_logout.c.key.in_(keys), lw_logout.c.at_ms >= to_ms(logout.at)
        )
        with read(self._engine) as connection:
            return len(connection.execute(known).all()) < len(keys)

    def add(self, logout: Logout) -> None:
        """Keep a logout; an earlier one of the same changes nothing. Those that end no token are removed.

        Raises:
            StateUnavailable: the database does not answer.
        """
        now = self._now()
        rows = [
            {"key": key, "at_ms": to_ms(logout.at), "expires_ms": to_ms(now + logout.lifetime)}
            for key in logout.named()
        ]
        with write(self._engine) as connection:
            connection.execute(delete(lw_logout).where(lw_logout.c.expires_ms <= to_ms(now)))
            added = insert_into(connection, lw_logout)
            later = {name: added.excluded[name] for name in ("at_ms", "expires_ms")}
            connection.execute(
                added.on_conflict_do_update(
                    index_elements=["key"], set_=later, where=lw_logout.c.at_ms < added.excluded.at_ms
                ),
                rows,
            )


def _key(issuer: str, kind: str, name: str | None) -> str | None:
    if name is None:
        return None
    return hashlib.sha256(json.dumps([issuer, kind, name]).encode("ascii")).hexdigest()
