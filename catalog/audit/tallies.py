"""Counts refusals, so that a flood of them can neither fill the audit log nor delay grants.

- The first refusals of a user in a window are recorded before they are answered, each with its own record: up
  to `DISTINCT` that differ in engine, action, resource or reasons.
- A refusal that repeats another is counted. Beyond `DISTINCT` different ones, refusals are counted by action
  and rule (a kind). The first of each kind is recorded, and says that counting begins. There are at most
  `KINDS` kinds; all others share one more kind.
- A counted refusal is answered when the record that it is counted under is durable.
- When the window ends, each count becomes one record with its number of decisions. So a user causes at most
  ``2 * (DISTINCT + KINDS + 1)`` records per window and process, and does not affect other users.
- Some refusals of all users are counted together, by action and rule, in one record per window: those while
  the space for refusals is used up, and those of users beyond `USERS` in one window.
- Memory is bounded: beyond `ENTRIES` open counts, a user has one refusal of their own, and the kinds.
- If a process is killed, the counts of its open windows are lost, but no record.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final, NamedTuple, TypeAlias

from catalog.audit.records import (
    NOBODY,
    AuditRecord,
    Row,
    decisive_only,
    decisive_rule,
    digest,
    to_columns,
    with_reason,
)
from policy.decision import Reason

DISTINCT: Final = 16
KINDS: Final = 16
USERS: Final = 5_000
ENTRIES: Final = 10_000

_EQUAL: Final = ("engine", "action", "resource", "reasons")
_OTHER: Final = ("other", "other")
#: The action of records that count refusals of all users.
_COUNTED: Final = "audit.counted"
#: The rules of the remark in records that count refusals: equal ones, those of one kind, and all others.
_REPEATED: Final = "repeated"
_AGGREGATED: Final = "aggregated"
_OTHERS: Final = "aggregated-others"
_WHICH: Final = {_AGGREGATED: "of this action by this rule", _OTHERS: "of other actions or rules"}
_KIND: Final = re.compile(r"([1-9][0-9]*) of (\S+); some users: ", re.ASCII)
_SAMPLES: Final = 3
_SAMPLE_LENGTH: Final = 120

#: Action and rule.
_Kind: TypeAlias = tuple[str, str]
#: A kind, or the digest of the fields in which equal refusals agree.
_Key: TypeAlias = str | _Kind


@dataclass(slots=True)
class Count:
    """The refusals after one that is recorded or being recorded.

    Attributes:
        first: the recorded refusal.
        on_record: done when it is durable; failed when it is not.
        counts: `_REPEATED` for refusals that equal the first, `_AGGREGATED` for those of its action and rule,
            `_OTHERS` for those of any.
    """

    first: Row
    on_record: Future[None] = field(default_factory=Future)
    counts: str = _REPEATED
    number: int = 0
    last: Row = field(default_factory=dict)
    samples: list[str] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Count one more refusal."""
        self.number += 1
        self.last = {name: row[name] for name in ("at_ms", "request_id", "resource", "engine")}
        if self.counts != _REPEATED and len(self.samples) < _SAMPLES:
            _sample(self.samples, str(row["resource"]))

    def row(self) -> Row:
        """Return the record of the counted refusals, with time and request of the last one."""
        since = f"since the record of request {self.first['request_id']}"
        reason = Reason(_REPEATED, f"Refused {self.number} more times {since}.")
        if self.counts != _REPEATED:
            detail = f"{self.number} more refusals {_WHICH[self.counts]} {since}. Some resources: "
            reason = Reason(self.counts, detail + ", ".join(self.samples))
        return with_reason({**self.first, **self.last, "decisions": self.number}, reason)


class Admitted(NamedTuple):
    """The count of a refusal; `leads` says that this refusal is recorded, and the count depends on it."""

    tally: Count
    leads: bool


@dataclass(slots=True)
class _User:
    """The open window of one user."""

    end_s: float
    equal: dict[_Key, Count] = field(default_factory=dict)
    kinds: dict[_Key, Count] = field(default_factory=dict)

    def counts(self) -> Iterator[Count]:
        yield from self.equal.values()
        yield from self.kinds.values()


@dataclass(slots=True)
class _Crowd:
    """The counts for all users together."""

    end_s: float
    at_ms: int = 0
    numbers: dict[_Kind, int] = field(default_factory=dict)
    users: dict[_Kind, list[str]] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        kind = (str(row["action"]), decisive_rule(row))
        if kind not in self.numbers and len(self.numbers) >= KINDS - 2:
            kind = _OTHER
        self.at_ms = max(self.at_ms, int(str(row["at_ms"])))
        self.numbers[kind] = self.numbers.get(kind, 0) + 1
        users = self.users.setdefault(kind, [])
        if len(users) < _SAMPLES:
            _sample(users, str(row["principal"]))

    def row(self) -> Row:
        total = sum(self.numbers.values())
        why = Reason(
            "counted",
            f"{total} refusals without records: the space for refusals is used up, or there are too "
            "many users.",
        )
        kinds = [
            Reason(rule, f"{number} of {action}; some users: {', '.join(self.users[action, rule])}")
            for (action, rule), number in self.numbers.items()
        ]
        record = AuditRecord(NOBODY, None, _COUNTED, "*", False, (why, *kinds), "", self.at_ms, total)
        return to_columns(record)


class Tallies:
    """The open windows; thread-safe.

    Args:
        window_s: how long refusals are counted before the counts are written, in seconds.
        is_full: whether the space for refusals is used up.
    """

    def __init__(self, window_s: float, is_full: Callable[[], bool]) -> None:
        self._window_s = window_s
        self._is_full = is_full
        self._lock = threading.Lock()
        self._users: dict[str, _User] = {}
        self._crowd: _Crowd | None = None
        self._entries = 0
        self._closed = False

    def admit(self, row: Row) -> Admitted | None:
        """Find where a refusal is counted, and count it unless it is the first one there.

        Returns:
            None if it is counted for all users together, or counting has ended: see `is_closed`.
        """
        with self._lock:
            if self._closed:
                return None
            user = None if self._is_full() else self._user(str(row["principal"]))
            if user is None:
                self._add_to_crowd(row)
                return None
            found = self._count_of(user, row)
            if not found.leads:
                found.tally.add(row)
            return found

    @property
    def is_closed(self) -> bool:
        """Return whether counting has ended."""
        return self._closed

    def take(self) -> list[Row]:
        """Close the windows whose time is over, and return the records of their counts."""
        now = time.monotonic()
        with self._lock:
            users = [self._users.pop(name) for name in self._over(now)]
            self._entries -= sum(len(user.equal) + len(user.kinds) for user in users)
            return self._rows(users, now)

    def close(self) -> list[Row]:
        """Stop counting, and return the records of all counts."""
        with self._lock:
            self._closed = True
            # A refusal that is not recorded yet was not answered.
            users = list(self._users.values())
            self._users.clear()
            return self._rows(users, math.inf)

    def _user(self, name: str) -> _User | None:
        user = self._users.get(name)
        if user is None and len(self._users) < USERS:
            user = self._users[name] = _User(time.monotonic() + self._window_s)
        return user

    def _count_of(self, user: _User, row: Row) -> Admitted:
        key = digest({name: row[name] for name in _EQUAL})
        count = user.equal.get(key)
        if count is not None:
            return Admitted(count, leads=False)
        if len(user.equal) < (DISTINCT if self._entries < ENTRIES else 1):
            return self._begin(user.equal, key, Count(row))
        kind: _Kind = (str(row["action"]), decisive_rule(row))
        if kind not in user.kinds and len(user.kinds) >= KINDS:
            kind = _OTHER
        count = user.kinds.get(kind)
        if count is not None:
            return Admitted(count, leads=False)
        counts = _OTHERS if kind == _OTHER else _AGGREGATED
        remark = Reason(counts, f"Further refusals {_WHICH[counts]} are counted.")
        return self._begin(user.kinds, kind, Count(with_reason(row, remark), counts=counts))

    def _begin(self, counts: dict[_Key, Count], key: _Key, count: Count) -> Admitted:
        counts[key] = count
        self._entries += 1

        def settled(done: Future[None]) -> None:
            if done.cancelled() or done.exception() is not None:
                self._forget(counts, key)
            else:
                # The state of a window is small, even if the record is large.
                count.first = decisive_only(count.first)

        count.on_record.add_done_callback(settled)
        return Admitted(count, leads=True)

    def _forget(self, counts: dict[_Key, Count], key: _Key) -> None:
        """Remove a refusal that could not be recorded: its request is answered with an error."""
        with self._lock:
            del counts[key]
            self._entries -= 1

    def _add_to_crowd(self, row: Row) -> None:
        if self._crowd is None:
            self._crowd = _Crowd(time.monotonic() + self._window_s)
        self._crowd.add(row)

    def _over(self, now: float) -> list[str]:
        """Return the users whose window is over, except those whose record is being written."""
        # Windows are equally long, so they end in the order in which they began.
        ended = takewhile(lambda each: each[1].end_s <= now, self._users.items())
        return [name for name, user in ended if all(count.on_record.done() for count in user.counts())]

    def _rows(self, users: Iterable[_User], now: float) -> list[Row]:
        counts = (count for user in users for count in user.counts())
        rows = [count.row() for count in counts if count.number and count.on_record.done()]
        if self._crowd is not None and self._crowd.end_s <= now:
            rows.append(self._crowd.row())
            self._crowd = None
        return rows


def counted_together(record: AuditRecord) -> list[AuditRecord]:
    """Return what a record counts of all users, each action and rule by itself; empty for another record."""
    if record.action != _COUNTED or record.principal != NOBODY:
        return []
    found = [
        replace(record, action=kind[2], reasons=(reason,), decisions=int(kind[1]))
        for reason in record.reasons[1:]
        if (kind := _KIND.match(reason.detail)) is not None
    ]
    # An edited record must not count less than it says.
    return found if sum(each.decisions for each in found) == record.decisions else [record]


def one_of_several(record: AuditRecord, several: str) -> AuditRecord:
    """Return a record with `several` for what it names of one of the refusals that it counts alone."""
    counts = {each.rule for each in record.reasons[1:]} if record.decisions > 1 else set[str]()
    if _OTHERS in counts:
        reasons = (Reason(several, several),)
        return replace(record, action=several, resource=several, engine=None, reasons=reasons)
    return replace(record, resource=several, engine=None) if _AGGREGATED in counts else record


def _sample(samples: list[str], text: str) -> None:
    shown = text[:_SAMPLE_LENGTH]
    if shown not in samples:
        samples.append(shown)
