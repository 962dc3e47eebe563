"""Reports what the catalog can serve now: reading, writing, encrypted tables.

- The database is written, not only read: without an audit record nothing is granted, so a full or locked
  database serves nothing. What is written is the row of this process among the replicas.
- The warehouse is checked as `catalog.storage.probing` says. If it can only be read, reading is served.
- Each KMS that wraps a key of the catalog unwraps one. A refusal is an answer. Without keys, no KMS is asked.
- A report names parts and abilities, and no table, path, user, host or KMS: it is answered without a token.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import select

from catalog.base.disk_space import is_full
from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.db.schema import lw_table
from catalog.envelope.peks import PekRecord
from catalog.kms.interface import KeyContext
from catalog.service.probes import Ability, Probe, Problem
from catalog.service.replicas import Replicas
from catalog.state.stored_keys import KeyFilter, select_keys
from catalog.state.table_state import TableState
from catalog.storage.probing import FULL, require_readable, require_writable
from policy.errors import (
    CommitStateUnknown,
    KmsUnavailable,
    LakewardenError,
    StateUnavailable,
    StorageUnavailable,
)
from policy.location.location import Location

_EVERYTHING: Final = frozenset(Ability)
_WRITING: Final = frozenset({Ability.WRITING})
_ENCRYPTED: Final = frozenset({Ability.ENCRYPTED_TABLES})

#: Seconds for which a result is kept. A call to a KMS can cost money.
_KEPT_S: Final = 5.0
_KMS_KEPT_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Report:
    """What cannot be served now.

    Attributes:
        unavailable: the abilities, in the order of their names; empty if everything can be served.
        problems: the reasons.
    """

    unavailable: tuple[Ability, ...]
    problems: tuple[str, ...]


class Readiness:
    """Checks the parts of a catalog; thread-safe.

    Args:
        context: the service context.
        replicas: the row that is written.
        seconds: a monotonic clock.
    """

    def __init__(
        self, context: ServiceContext, replicas: Replicas, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._context = context
        self._replicas = replicas
        self._warehouse = Location.parse(context.settings.warehouse)
        self._probes = (
            Probe("database", self._database, _EVERYTHING, kept_s=_KEPT_S, seconds=seconds),
            Probe("storage", self._storage, _EVERYTHING, kept_s=_KEPT_S, seconds=seconds),
            Probe("KMS", self._kms, _ENCRYPTED, kept_s=_KMS_KEPT_S, seconds=seconds),
        )

    def begin(self) -> list[Future[None]]:
        """Begin the checks that are due; return what to wait for, at most `ANSWER_S` seconds."""
        return [running for probe in self._probes if (running := probe.begin()) is not None]

    def report(self) -> Report:
        """Return what is known now."""
        problems = [problem for probe in self._probes if (problem := probe.problem()) is not None]
        lost = {ability for problem in problems for ability in problem.lost}
        return Report(tuple(sorted(lost)), tuple(problem.text for problem in problems))

    def parts(self) -> Iterator[tuple[str, Problem | None]]:
        """Yield each part and its problem, as it is known now."""
        return ((probe.part, probe.problem()) for probe in self._probes)

    def _database(self) -> Problem | None:
        try:
            self._replicas.announce()
            self._context.clock.require()
            self._context.policies.current()
        except (StateUnavailable, CommitStateUnknown) as error:
            return Problem(error.message, _EVERYTHING)
        file = self._context.engine.url.database
        if self._context.engine.dialect.name == "sqlite" and is_full(Path(str(file)).parent):
            return Problem("The disk of the catalog's database is full.", _EVERYTHING)
        return None

    def _storage(self) -> Problem | None:
        storage, warehouse = self._context.storage, self._warehouse
        try:
            require_readable(storage, warehouse, has_tables=self._has_tables())
        except StorageUnavailable as error:
            return Problem(f"The warehouse cannot be read ({error.rule}).", _EVERYTHING)
        except StateUnavailable:
            return None  # The check of the database reports it.
        try:
            require_writable(storage, warehouse)
        except StorageUnavailable as error:
            why = "is full" if error.rule == FULL else f"cannot be written ({error.rule})"
            return Problem(f"The warehouse {why}.", _WRITING)
        return None

    def _has_tables(self) -> bool:
        """Return whether a table lies in the warehouse."""
        columns = lw_table.c
        first, behind = (f"{self._warehouse.canonical}{end}" for end in ("/", chr(ord("/") + 1)))
        below = (columns.location >= first, columns.location < behind)
        mine = (columns.catalog == self._context.catalog, columns.state == TableState.ACTIVE, *below)
        with read(self._context.engine) as connection:
            return connection.scalar(select(columns.id).where(*mine).limit(1)) is not None

    def _kms(self) -> Problem | None:
        try:
            keys = self._a_key_of_each_kms()
        except StateUnavailable:
            return None  # The check of the database reports it.
        answers = [self._answers(key) for key in keys]
        return None if all(answers) else Problem("A KMS of encrypted tables does not answer.", _ENCRYPTED)

    def _a_key_of_each_kms(self) -> list[PekRecord]:
        with read(self._context.engine) as connection:
            return [
                key
                for name in self._context.kms_keys.clients.by_name
                for key in select_keys(connection, self._context.catalog, KeyFilter(kms=name), None, 1)
            ]

    def _answers(self, key: PekRecord) -> bool:
        client = self._context.kms_keys.clients.named(key.kms)
        try:
            client.get_key(key.wrapped, KeyContext(self._context.catalog, key.table_uuid)).wipe()
        except KmsUnavailable:
            return False
        except LakewardenError:
            return True
        return True
