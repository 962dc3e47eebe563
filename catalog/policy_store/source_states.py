"""The state of each policy source in the catalog's database: turns, confirmations, problems.

- One process at a time asks a source: an attempt claims the turn for a limited time, and what it finds counts
  only while it has the turn. The next claim ends the turn of an attempt that takes too long.
- What is put in force and its state change in one transaction (`taken`), so that versions and confirmation
  always belong to the documents that are there.
- Times are those of the database's clock, if it has one. A confirmation counts from the begin of its
  attempt. Of a clock that went back behind the latest attempt nothing can be said: such an age is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, Engine, RowMapping, case, or_, select, update

from catalog.db.clock import database_ms
from catalog.db.engine import read, write
from catalog.db.inserts import insert_into
from catalog.db.schema import lw_policy_source
from policy.errors import StateUnavailable

#: What a clock can be set back by without notice, in milliseconds: two hosts of one database differ by that.
_STEP_MS: Final = 5_000
_LONGEST_PROBLEM: Final = 2_000
_sources: Final = lw_policy_source.c


@dataclass(frozen=True, slots=True)
class Claim:
    """The turn of one attempt: the source, the attempt's id, and when it began, in milliseconds."""

    source: str
    id: str
    begun_ms: int


@dataclass(frozen=True, slots=True)
class Download:
    """What the documents in force were made from.

    Attributes:
        origin: digest of the source's address and service; versions of another origin are not compared.
        made_from: digest of the documents, and of what made them from the download.
        versions: Ranger's numbers, by what was downloaded.
        policies: the number of policies.
        left_out: the number of policies that were refused.
        taken_ms: when it was put in force, in milliseconds since 1970 UTC.
    """

    origin: str
    made_from: str
    versions: Mapping[str, int]
    policies: int
    left_out: int
    taken_ms: int


@dataclass(frozen=True, slots=True)
class SourceState:
    """What is known of a source.

    Attributes:
        name: its name in the settings.
        download: what is in force; None before the first download.
        confirmed_ms: when the source last confirmed it, in milliseconds since 1970 UTC; None if never.
        age_s: seconds since then; None if it was never confirmed, or the clock went back.
        problem: why the last attempt failed; None if it did not.
    """

    name: str
    download: Download | None
    confirmed_ms: int | None
    age_s: float | None
    problem: str | None


def unknown(name: str) -> SourceState:
    """Return the state of a source that was never asked."""
    return SourceState(name, None, None, None, None)


class SourceStates:
    """The states of the policy sources of one catalog; thread-safe.

    Args:
        engine: the catalog's database, upgraded.
        catalog: the catalog's name.
        now: the time, with a zone, for a database without a clock.
    """

    def __init__(self, engine: Engine, catalog: str, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._catalog = catalog
        self._now = now

    def of(self, names: Iterable[str]) -> Sequence[SourceState]:
        """Return the states of sources, in their order.

        Raises:
            StateUnavailable: the database does not answer.
        """
        with read(self._engine) as connection:
            now_ms = database_ms(connection, self._now)
            query = select(lw_policy_source).where(_sources.catalog == self._catalog)
            found = {row["name"]: _state(row, now_ms) for row in connection.execute(query).mappings()}
        return [found.get(name) or unknown(name) for name in names]

    def claim(self, name: str, *, longest_s: float, force: bool = False) -> Claim | None:
        """Take the turn to ask a source.

        Args:
            name: the source.
            longest_s: seconds after which another attempt can take the turn.
            force: take it although it is not due, or another attempt has it.

        Returns:
            None if it is not due.

        Raises:
            StateUnavailable: the database does not answer.
            CommitStateUnknown: the turn may have been taken.
        """
        with write(self._engine) as connection:
            now_ms = database_ms(connection, self._now)
            self._add(connection, name)
            claim = Claim(name, str(uuid4()), now_ms)
            # With a clock that went back, the next time would be far away.
            due = or_(_sources.next_ms <= now_ms, _sources.attempted_ms > now_ms + _STEP_MS)
            taken = connection.execute(
                update(lw_policy_source)
                .where(*self._is(name), *(() if force else (due,)))
                .values(
                    claim=claim.id,
                    next_ms=now_ms + int(longest_s * 1000),
                    attempted_ms=case((_sources.attempted_ms > now_ms, _sources.attempted_ms), else_=now_ms),
                )
            )
            return claim if taken.rowcount else None

    def confirmed(self, claim: Claim, next_s: float) -> None:
        """Record that the source confirmed what is in force; the next attempt is due after `next_s` seconds.

        Raises:
            StateUnavailable: another attempt has the turn, or the database does not answer; nothing changed.
            CommitStateUnknown: it may or may not have been recorded.
        """
        with write(self._engine) as connection:
            self._end(connection, claim, next_s, **_confirmation(claim))

    def taken(self, connection: Connection, claim: Claim, download: Download, next_s: float) -> None:
        """Record what is put in force by the transaction of `connection`.

        Raises:
            StateUnavailable: another attempt has the turn.
        """
        self._end(
            connection,
            claim,
            next_s,
            **_confirmation(claim),
            origin=download.origin,
            made_from=download.made_from,
            versions=json.dumps(dict(download.versions), sort_keys=True),
            policies=download.policies,
            left_out=download.left_out,
            taken_ms=download.taken_ms,
        )

    def unchanged(self, claim: Claim, download: Download, next_s: float) -> None:
        """Record a download that says the same as the documents in force; errors as `confirmed`."""
        with write(self._engine) as connection:
            self.taken(connection, claim, download, next_s)

    def failed(self, claim: Claim, problem: str, next_s: float) -> None:
        """Record that an attempt failed; errors as `confirmed`."""
        with write(self._engine) as connection:
            self._end(connection, claim, next_s, problem=problem[:_LONGEST_PROBLEM])

    def _end(self, connection: Connection, claim: Claim, next_s: float, **values: object) -> None:
        ended = connection.execute(
            update(lw_policy_source)
            .where(*self._is(claim.source), _sources.claim == claim.id)
            .values(claim=None, next_ms=claim.begun_ms + int(next_s * 1000), **values)
        )
        if ended.rowcount != 1:
            raise StateUnavailable(
                f"Another process asked the policy source {claim.source} meanwhile; nothing was changed.",
                rule="policy-source-turn",
                hint="Repeat the synchronization.",
            )

    def _add(self, connection: Connection, name: str) -> None:
        counts = dict.fromkeys(("next_ms", "attempted_ms", "policies", "left_out", "taken_ms"), 0)
        row = {"catalog": self._catalog, "name": name, "versions": "{}", **counts}
        connection.execute(insert_into(connection, lw_policy_source).values(row).on_conflict_do_nothing())

    def _is(self, name: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
        return _sources.catalog == self._catalog, _sources.name == name


def _confirmation(claim: Claim) -> dict[str, object]:
    return {"confirmed_ms": claim.begun_ms, "attempted_ms": claim.begun_ms, "problem": None}


def _state(row: RowMapping, now_ms: int) -> SourceState:
    confirmed_ms = row["confirmed_ms"]
    is_known = confirmed_ms is not None and row["attempted_ms"] <= now_ms + _STEP_MS
    return SourceState(
        name=row["name"],
        download=_download(row),
        confirmed_ms=confirmed_ms,
        age_s=max(now_ms - confirmed_ms, 0) / 1000 if is_known else None,
        problem=row["problem"],
    )


def _download(row: RowMapping) -> Download | None:
    if row["made_from"] is None:
        return None
    return Download(
        origin=row["origin"],
        made_from=row["made_from"],
        versions=json.loads(row["versions"]),
        policies=row["policies"],
        left_out=row["left_out"],
        taken_ms=row["taken_ms"],
    )
