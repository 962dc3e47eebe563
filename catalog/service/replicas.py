"""Finds replicas of the service whose settings are different.

Replicas share a database and must have the same settings. Otherwise the decision on a request depends on the
replica that gets it. Each process that serves writes digests of its settings into the database, and compares
them with those of the others. It reports the names of different settings; values are never written.

Settings of a host (addresses, directories, files, caches) and credentials are not compared.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import Connection, Engine, delete, insert, select, update

from catalog.db.engine import read, write
from catalog.db.schema import lw_replica, lw_setting
from catalog.settings.catalog import Settings
from policy.errors import CommitStateUnknown, StateUnavailable

#: Seconds between two comparisons.
LOOK_S: Final = 30.0
#: Milliseconds after which an unseen replica is no longer compared, and after which it is deleted.
_GONE_MS: Final = 120_000
_FORGOTTEN_MS: Final = 24 * 3600 * 1000

#: Settings that belong to a host or are credentials.
_OF_HOST: Final = (
    "audit.stream_format",
    "cache.",
    "data_dir",
    "database.",
    "http.host",
    "http.port",
    "http.tls",
    "http.workers",
    "kms.options.",
    "log.",
    "s3.",
    "telemetry.",
)
#: The end of the names of settings that name a file.
_FILE: Final = "_file"
_OF_OTHER_KMS: Final = re.compile(r"other_kms\.[^.]+\.(?:options|secrets)\.")
#: Settings in the same sections that decide what clients get.
_OF_ALL: Final = frozenset({"s3.signing", "s3.sts.duration_s", "s3.sts.policy_variables", "s3.sts.role_arn"})
_UNSEALED: Final = "unsealed_metadata"

_log: Final = logging.getLogger("lakewarden.replicas")


def unsealed_default(engine: Engine) -> str:
    """Return whether unsealed metadata is allowed by default: ``forbid`` or ``allow``.

    The default applies if neither the namespace nor the settings say otherwise.

    Raises:
        StateUnavailable: the database does not answer.
    """
    with read(engine) as connection:
        found = connection.scalar(select(lw_setting.c.value).where(lw_setting.c.name == _UNSEALED))
    return "allow" if found == "allow" else "forbid"


def digests_of(settings: Settings, unsealed: str) -> dict[str, str]:
    """Compute the digests that replicas compare, by name.

    Args:
        settings: the settings of this process.
        unsealed: the default for unsealed metadata.
    """
    shared: dict[str, object] = {
        name: value
        for name, value in _leaves(settings.model_dump(mode="json"))
        if name in _OF_ALL
        or not (name.startswith(_OF_HOST) or name.endswith(_FILE) or _OF_OTHER_KMS.match(name))
    }
    shared[_UNSEALED] = unsealed
    return {name: _digest(json.dumps(value).encode()) for name, value in sorted(shared.items())}


class Replicas:
    """Compares this process with the other replicas of the catalog; thread-safe.

    Args:
        engine: the catalog's database.
        catalog: the catalog's name.
        digests: returns the digests of this process (`digests_of`).
        now_ms: the time in milliseconds.
        seconds: a monotonic clock.
    """

    def __init__(
        self,
        engine: Engine,
        catalog: str,
        digests: Callable[[], Mapping[str, str]],
        now_ms: Callable[[], int],
        seconds: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._catalog = catalog
        self._digests = digests
        self._now_ms = now_ms
        self._seconds = seconds
        self._id = str(uuid4())
        self._lock = threading.Lock()
        self._looked_at: float | None = None
        self._announced = False
        self._differences: tuple[str, ...] = ()

    @property
    def differences(self) -> tuple[str, ...]:
        """Return the names of the settings in which another replica differed at the last comparison."""
        return self._differences

    def look(self) -> None:
        """Write the digests of this process, and compare them with the others, if it is time.

        If the database does not answer, a warning is logged; requests report the outage.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._looked_at is None or self._seconds() - self._looked_at >= LOOK_S:
                self._looked_at = self._seconds()
                self._compare()
        except (StateUnavailable, CommitStateUnknown) as problem:
            _log.warning("replicas could not be compared: %s", type(problem).__name__)
        finally:
            self._lock.release()

    def announce(self) -> None:
        """Write the digests of this process, and compare nothing.

        Raises:
            StateUnavailable: the database cannot be written.
            CommitStateUnknown: it may have been written.
        """
        own = dict(self._digests())
        with write(self._engine) as connection:
            self._say(connection, own)

    def leave(self) -> None:
        """Delete the digests of this process when it ends."""
        if not self._announced:
            return
        try:
            with write(self._engine) as connection:
                connection.execute(delete(lw_replica).where(lw_replica.c.id == self._id))
        except (StateUnavailable, CommitStateUnknown) as problem:
            _log.warning("a replica that ended is left in the database: %s", type(problem).__name__)

    def _compare(self) -> None:
        own = dict(self._digests())
        with write(self._engine) as connection:
            self._say(connection, own)
            others = self._others(connection)
        names = {name for other in others for name in own.keys() | other.keys()}
        differences = tuple(
            sorted(name for name in names if any(other.get(name) != own.get(name) for other in others))
        )
        if differences and differences != self._differences:
            _log.warning("other replicas have different settings: %s", ", ".join(differences))
        self._differences = differences

    def _say(self, connection: Connection, own: Mapping[str, str]) -> None:
        self._announced = True
        now = self._now_ms()
        said = {"catalog": self._catalog, "seen_ms": now, "digests": json.dumps(own)}
        mine = lw_replica.c.id == self._id
        if not connection.execute(update(lw_replica).where(mine).values(**said)).rowcount:
            connection.execute(delete(lw_replica).where(lw_replica.c.seen_ms < now - _FORGOTTEN_MS))
            connection.execute(insert(lw_replica).values(id=self._id, **said))

    def _others(self, connection: Connection) -> list[dict[str, str]]:
        alive = (
            lw_replica.c.catalog == self._catalog,
            lw_replica.c.id != self._id,
            lw_replica.c.seen_ms > self._now_ms() - _GONE_MS,
        )
        return [json.loads(text) for text in connection.scalars(select(lw_replica.c.digests).where(*alive))]


def _leaves(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, object]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
