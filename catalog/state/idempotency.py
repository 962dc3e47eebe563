"""Performs a request with an idempotency key once, and stores its outcome for a repetition.

- A key is bound to the principal, and to method, path and body of the request. The same key with another
  request is refused.
- An attempt is recorded before it begins, with a lease that its process renews. A repetition waits during
  that time. If the process dies, a repetition takes the record when the lease has ended.
- The attempt that holds the record stores the outcome in the transaction that takes effect (`settle`). So
  every effect has a record, and an attempt that lost its record has no effect.
- Only status and location are stored, no body. The answer is rebuilt from the catalog's state, after the
  caller is authorized again.
- Success and final refusals (400, 404, 409) are stored for the advertised lifetime. Outcomes that can differ
  in another attempt (401, 403, 413, 5xx) are not stored.

Source: Iceberg REST catalog specification, parameter `idempotency-key`; RFC 9562, section 5.7 (UUIDv7);
draft-ietf-httpapi-idempotency-key-header, section 2.7 (422 where a key is used for another request).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, Engine, Row, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from catalog.db.engine import read, write
from catalog.db.schema import lw_idempotency
from policy.errors import RequestInvalid, StateUnavailable

#: Milliseconds for which an attempt holds its record without renewing it.
LEASE_MS: Final = 30_000
#: The maximum number of records of one principal at a time.
MAX_RECORDS: Final = 10_000
#: The maximum length of a stored outcome, in characters.
MAX_DETAIL: Final = 1_000
_PRUNE_EVERY_MS: Final = 30_000


class IdempotencyKeyReused(RequestInvalid):
    """The idempotency key was used for another request."""


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request to perform once.

    Attributes:
        principal: name of the user.
        key: the client's idempotency key, or the catalog's own key for an operation that is performed once.
        fingerprint: SHA-256 in hex of everything that the key is bound to.
        status: the HTTP status of success; None if the outcome is not stored, but read from the catalog.
    """

    principal: str
    key: str
    fingerprint: str
    status: int | None


@dataclass(frozen=True, slots=True)
class Kept:
    """The stored outcome of an earlier request.

    Attributes:
        status: the HTTP status.
        detail: the metadata location, or other data that the answer is rebuilt from.
        refusal: the class of the error; None if the request succeeded.
        rule: the rule that refused it.
    """

    status: int
    detail: str | None = None
    refusal: str | None = None
    rule: str | None = None


@dataclass(slots=True)
class Attempt:
    """One attempt to perform a request; created by `IdempotencyKeys.begin`.

    Attributes:
        request: the request.
        id: tells attempts of the same request apart.
        settled: whether the outcome was stored in the transaction with the effect.
        unchanged: the outcome of a request that succeeds and changes nothing.
    """

    request: KeyedRequest
    id: str = field(default_factory=lambda: str(uuid4()))
    settled: bool = False
    unchanged: Kept | None = None

    def settle(self, connection: Connection, detail: str | None) -> None:
        """Record success in the transaction that takes effect.

        Raises:
            StateUnavailable: another attempt holds the record; the transaction must not take effect.
        """
        values = {"detail": detail, "status": self.request.status}
        if connection.execute(update(lw_idempotency).where(*self.mine()).values(**values)).rowcount != 1:
            raise StateUnavailable(
                "The request took too long, and a repetition took over. This attempt changed nothing.",
                rule="idempotency-key",
                hint="Repeat the request with the same idempotency key.",
            )
        self.settled = self.request.status is not None

    def mine(self) -> list[ColumnElement[bool]]:
        """Return the conditions that select the record if this attempt holds it."""
        return [*_is(self.request), lw_idempotency.c.attempt == self.id]


_current: Final[ContextVar[Attempt | None]] = ContextVar("lakewarden_attempt", default=None)


@contextmanager
def attempting(attempt: Attempt) -> Iterator[None]:
    """Treat effects inside of the block as effects of this attempt.

    A context variable holds the attempt, so that any transaction with an effect can store the outcome.
    Threads that run in the context of the request have it too.
    """
    token = _current.set(attempt)
    try:
        yield
    finally:
        _current.reset(token)


def settle(connection: Connection, detail: str | None = None) -> None:
    """Record, in the transaction that takes effect, that the current request succeeds.

    Does nothing for a request without an idempotency key.

    Args:
        connection: of the transaction.
        detail: data that the answer is rebuilt from.

    Raises:
        RequestInvalid: the detail is too long to store.
        StateUnavailable: see `Attempt.settle`.
    """
    attempt = _current.get()
    if attempt is None:
        return
    if detail is not None and len(detail) > MAX_DETAIL:
        raise RequestInvalid(
            "The request is too large for an idempotency key.",
            rule="idempotency-key",
            hint="Split it into smaller requests, or send it without the key.",
        )
    attempt.settle(connection, detail)


def succeeds_unchanged(detail: str | None = None) -> None:
    """Record that the current request succeeds and changes nothing; see `settle` for `detail`."""
    attempt = _current.get()
    if attempt is not None and attempt.request.status is not None:
        attempt.unchanged = Kept(attempt.request.status, detail)


class IdempotencyKeys:
    """Stores attempts and outcomes in the database, for all replicas.

    Args:
        engine: the catalog's database.
        now_ms: the time in milliseconds.
        lifetime_ms: how long an outcome is stored.
    """

    def __init__(self, engine: Engine, now_ms: Callable[[], int], lifetime_ms: int) -> None:
        self._engine = engine
        self._now_ms = now_ms
        self._lifetime_ms = lifetime_ms
        self._pruned_ms = 0
        self._lock = threading.Lock()

    def begin(self, request: KeyedRequest) -> Attempt | Kept | None:
        """Begin an attempt.

        Returns:
            the attempt; the outcome of an earlier attempt; or None while another attempt is in progress.

        Raises:
            IdempotencyKeyReused: the key belongs to another request.
            StateUnavailable: the principal has too many keys, or the database does not answer.
        """
        self._prune()
        # A repetition polls while another attempt is in progress: it takes no write lock.
        with read(self._engine) as connection:
            found = connection.execute(select(lw_idempotency).where(*_is(request))).first()
        if found is not None and not self._is_free(found):
            return _known(request, found)
        attempt = Attempt(request)
        try:
            with write(self._engine) as connection:
                return self._take(connection, attempt)
        except IntegrityError:
            return None  # Another attempt began at the same time.

    def _take(self, connection: Connection, attempt: Attempt) -> Attempt | Kept | None:
        request, now = attempt.request, self._now_ms()
        found = connection.execute(select(lw_idempotency).where(*_is(request)).with_for_update()).first()
        if found is not None and not self._is_free(found):
            return _known(request, found)
        values: dict[str, object] = {
            "attempt": attempt.id,
            "fingerprint": request.fingerprint,
            "status": None,
            "detail": None,
            "refusal": None,
            "rule": None,
            "lease_ms": now + LEASE_MS,
            "expires_ms": now + self._lifetime_ms,
        }
        if found is not None:
            if found.expires_ms > now:
                _require_same(request, found)
            connection.execute(update(lw_idempotency).where(*_is(request)).values(**values))
            return attempt
        self._require_room(connection, request.principal)
        key = {"principal": request.principal, "key": request.key}
        connection.execute(insert(lw_idempotency).values(**key, **values))
        return attempt

    def renew(self, attempt: Attempt) -> None:
        """Renew the lease. An attempt that lost its record is refused when it takes effect."""
        with write(self._engine) as connection:
            statement = update(lw_idempotency).where(*attempt.mine())
            connection.execute(statement.values(lease_ms=self._now_ms() + LEASE_MS))

    def end(self, attempt: Attempt, refusal: Kept | None = None) -> None:
        """Record the end of an attempt that had no effect, or whose effect was undone.

        Args:
            attempt: the attempt.
            refusal: its final refusal; None if there is none.
        """
        outcome = attempt.unchanged if refusal is None else refusal
        if outcome is None or attempt.request.status is None:
            self._forget(attempt)
        else:
            self._keep(attempt, outcome)

    def _keep(self, attempt: Attempt, outcome: Kept) -> None:
        with write(self._engine) as connection:
            connection.execute(
                update(lw_idempotency)
                .where(*attempt.mine())
                .values(
                    status=outcome.status, detail=outcome.detail, refusal=outcome.refusal, rule=outcome.rule
                )
            )

    def _forget(self, attempt: Attempt) -> None:
        """Remove the record of a request whose outcome is not stored; a record with an effect stays."""
        with write(self._engine) as connection:
            connection.execute(
                delete(lw_idempotency).where(*attempt.mine(), lw_idempotency.c.status.is_(None))
            )

    def _is_free(self, found: Row[tuple[object, ...]]) -> bool:
        """Return whether no attempt holds a record: the lease has ended, or the outcome has expired."""
        now: int = self._now_ms()
        until: int = found.lease_ms if found.status is None else found.expires_ms
        return until <= now

    def _require_room(self, connection: Connection, principal: str) -> None:
        count = (
            select(func.count()).select_from(lw_idempotency).where(lw_idempotency.c.principal == principal)
        )
        if (connection.scalar(count) or 0) >= MAX_RECORDS:
            raise StateUnavailable(
                f"{principal} has {MAX_RECORDS:,} idempotency keys in use, which is the limit.",
                rule="idempotency-keys",
                hint=f"Try again later: a key is kept for {self._lifetime_ms // 1000} seconds.",
            )

    def _prune(self) -> None:
        """Delete expired records from time to time."""
        now = self._now_ms()
        with self._lock:
            if now - self._pruned_ms < _PRUNE_EVERY_MS:
                return
            self._pruned_ms = now
        columns = lw_idempotency.c
        with write(self._engine) as connection:
            connection.execute(
                delete(lw_idempotency).where(columns.expires_ms <= now, columns.lease_ms <= now)
            )


def _is(request: KeyedRequest) -> list[ColumnElement[bool]]:
    return [lw_idempotency.c.principal == request.principal, lw_idempotency.c.key == request.key]


def _known(request: KeyedRequest, found: Row[tuple[object, ...]]) -> Kept | None:
    """Return the outcome of an earlier attempt; None while it is in progress."""
    _require_same(request, found)
    if found.status is None:
        return None
    return Kept(found.status, found.detail, found.refusal, found.rule)


def _require_same(request: KeyedRequest, found: Row[tuple[object, ...]]) -> None:
    if found.fingerprint != request.fingerprint:
        raise IdempotencyKeyReused(
            "The idempotency key was used for another request: method, path or body differ.",
            rule="idempotency-key",
            hint="Send a new UUIDv7 with each request. Send the same one only to repeat a request unchanged.",
        )
