"""Reports the keys of the catalog that end, or should be rotated, and what to do.

Rules:
- A key ends if it is scheduled for destruction, at that time or, once it has passed, with the next clean-up.
- A key in force should be rotated if it has used up half of its encryptions (`catalog.state.invocations`), or
  if it is as old as the report asks. The catalog has no rotation period of its own. A key of the KMS endpoint
  is as old as its current version.
- Keys of tables, of dropped tables and of the KMS endpoint are compared. When master keys end, is known to
  their KMS alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from catalog.base.times import from_ms
from catalog.db.engine import read
from catalog.key_management.key_list import ListedKey
from catalog.kms_server.store import made_ms
from catalog.reports.report import Chart, Report
from catalog.service.services import Services
from catalog.state.invocations import MOST, counted
from catalog.state.stored_keys import KeyFilter
from policy.encryption.epochs import PekRef
from policy.ranger.parse import no_pause

_COLUMNS: Final = ("due", "reason", "belongs to", "key", "version", "master key", "state", "what to do")
_PAGE: Final = 1_000
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


@dataclass(frozen=True, slots=True)
class Period:
    """What is compared.

    Attributes:
        now: the time, with a zone.
        within: how long from now keys are looked for.
        rotate_after: the age at which a key in force should be rotated; None if ages do not count.
    """

    now: datetime
    within: timedelta
    rotate_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class _Use:
    """How a key is used.

    Attributes:
        times: how many times it has encrypted.
        since_ms: since when new data is encrypted with it, in milliseconds since 1970; None if none is.
    """

    times: int
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class _Due:
    """A key that is due.

    Attributes:
        at: the time; None for now.
        reason: why.
        remedy: what to do.
    """

    at: datetime | None
    reason: str
    remedy: str


def expiring_report(services: Services, period: Period, pause: Callable[[], None] = no_pause) -> Report:
    """Report the keys that are due, the first ones first.

    Args:
        services: the open catalog.
        period: what is compared.
        pause: called for each page of keys; can raise to end the report.

    Raises:
        StateUnavailable: the database does not answer.
    """
    found = [(key, due) for key, use in _keys(services, pause) for due in _due(services, key, use, period)]
    found.sort(key=lambda each: (each[1].at or period.now, each[0].stored.pek.ref.pek_id, each[1].reason))
    keys = [_document(key, due) for key, due in found]
    amounts = Counter(str(each["reason"]) for each in keys)
    return Report(
        "Keys that are due",
        _COLUMNS,
        [tuple(each.values()) for each in keys],
        {
            "at": period.now.isoformat(),
            "within-s": int(period.within.total_seconds()),
            "rotate-after-s": None
            if period.rotate_after is None
            else int(period.rotate_after.total_seconds()),
            "keys": keys,
        },
        [Chart("Keys by reason", amounts)] if amounts else [],
        [_compared(period)],
    )


def _compared(period: Period) -> str:
    ages = (
        "Ages are not compared: give an age with --older-than."
        if period.rotate_after is None
        else f"Ages of keys in force are compared with {_length(period.rotate_after)}."
    )
    return (
        f"Compared: times of scheduled destruction up to {_moment(period.now + period.within)}, and the "
        f"encryptions of each key with half of the limit, {MOST // 2:,}. {ages} Only its KMS "
        "knows when a master key expires."
    )


def _length(given: timedelta) -> str:
    """Return a duration as `--older-than` takes it: 365d, 90s."""
    seconds = int(given.total_seconds())
    return next(f"{seconds // each}{unit}" for unit, each in _UNITS if seconds % each == 0)


def _keys(services: Services, pause: Callable[[], None]) -> Iterator[tuple[ListedKey, _Use]]:
    """Return all keys that are not destroyed, with their use."""
    with read(services.engine) as connection:
        at_endpoint = made_ms(connection, services.catalog)
    after: PekRef | None = None
    while page := services.key_list.page(KeyFilter(), after, _PAGE):
        pause()
        with read(services.engine) as connection:
            used = counted(connection, {each.stored.pek.id for each in page})
        for each in page:
            pek = each.stored.pek
            since = each.stored.created_ms if each.in_force else at_endpoint.get(pek.id)
            yield each, _Use(used.get((pek.id, pek.version), 0), since)
        after = page[-1].stored.pek.ref


def _due(services: Services, key: ListedKey, use: _Use, period: Period) -> Iterator[_Due]:
    pek = key.stored.pek
    if pek.destroy_after_ms is not None:
        at = from_ms(pek.destroy_after_ms)
        if at <= period.now:
            yield _Due(at, "destruction", "It cannot be kept any more. The next clean-up destroys it.")
        elif at <= period.now + period.within:
            keep = f"lakewarden key enable {_table(key)} --key {pek.id} --version {pek.version}"
            yield _Due(at, "destruction", f"To keep it, run `{keep}` before then.")
    if use.since_ms is None:
        return
    if services.invocations.needs_rotation(use.times):
        yield _Due(None, "encryption limit", f"{_rotate(key)} It has encrypted {use.times:,} times.")
    if period.rotate_after is not None:
        at = from_ms(use.since_ms) + period.rotate_after
        if at <= period.now + period.within:
            yield _Due(at, "age", _rotate(key))


def _rotate(key: ListedKey) -> str:
    if key.stored.endpoint_key is not None:
        return "Roll the key with a client of the KMS endpoint."
    return f"Run `lakewarden key rotate {_table(key)}`."


def _document(key: ListedKey, due: _Due) -> dict[str, Any]:
    pek = key.stored.pek
    return {
        "due": None if due.at is None else _moment(due.at),
        "reason": due.reason,
        "belongs-to": _owner(key),
        "id": str(pek.id),
        "version": pek.version,
        "master-key-id": pek.master_key_id,
        "state": pek.state.value,
        "what-to-do": due.remedy,
    }


def _owner(key: ListedKey) -> str:
    if key.stored.endpoint_key is not None:
        return f"KMS endpoint: {key.stored.endpoint_key}"
    return str(key.stored.table or f"dropped table {key.stored.pek.table_uuid}")


def _table(key: ListedKey) -> str:
    """Return how commands call the table of a key."""
    return str(key.stored.table or key.stored.pek.table_uuid)


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")
