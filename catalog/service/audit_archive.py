"""Archives the audit log: on behalf of a user, and by schedule.

- A user needs `admin` on the service. By schedule the service itself moves records (`lakewarden`), as the
  settings say, which belong to the host.
- Both are recorded before anything moves, and at the end with the outcome. A look that finds nothing to move
  leaves no record.
- Each process looks, at times of its own. If two move records at once, one takes effect.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sqlalchemy.exc import IntegrityError

from catalog.audit.archive import Archive
from catalog.audit.archiving import Archiver, Moved
from catalog.authorization.authorizer import Caller
from catalog.base.errors import CommitConflict
from catalog.base.progress import Tell, silent
from catalog.closing import closed
from catalog.service.services import Services
from catalog.settings.catalog import Settings
from catalog.storage.base import Storage
from catalog.storage.errors import translated
from policy.decision import Decision, Reason
from policy.errors import LakewardenError, RequestInvalid
from policy.location.location import Location
from policy.principal import Principal
from policy.privileges.operations import On, required

_ACTION: Final = "audit.archive"
_DAY_MS: Final = 24 * 3600 * 1000
#: The part of the time between two looks by which the first one can be later, so that processes that start
#: together do not look together.
_SPREAD: Final = 0.2
_CLOSING_S: Final = 5.0
_SCHEDULE: Final = Caller(Principal("lakewarden"), None, "audit-archive")

_log: Final = logging.getLogger("lakewarden.audit")


def archive_of(settings: Settings, storage: Storage) -> Archive | None:
    """Return the archive that the settings name, if there is one."""
    named = settings.audit.archive
    return None if named is None else Archive(storage, Location.parse(named))


def archiver_of(services: Services, public_keys: Iterable[str] = ()) -> Archiver:
    """Return what archives records of a catalog.

    Args:
        services: the open catalog.
        public_keys: keys of earlier signatures of checkpoints, in hexadecimal digits.

    Raises:
        RequestInvalid: no archive is configured.
        StorageUnavailable: its directory cannot be created.
    """
    archive = archive_of(services.settings, services.storage)
    if archive is None:
        raise RequestInvalid(
            "The audit log has no archive.",
            rule="audit-archive",
            hint="Set `audit.archive` to a location outside of the warehouse.",
        )
    if archive.location.scheme == "file":
        # Records name users; a directory that exists is its operator's.
        with translated(archive.location):
            Path("/", *archive.location.segments).mkdir(0o700, parents=True, exist_ok=True)
    return Archiver(services.engine, archive, services.audit_signer, public_keys=frozenset(public_keys))


def archive_as(
    services: Services, caller: Caller, public_keys: Iterable[str] = (), tell: Tell = silent
) -> Moved:
    """Move the records that are due, on behalf of a user.

    Args:
        services: the open catalog.
        caller: the user.
        public_keys: keys of earlier signatures of checkpoints, in hexadecimal digits.
        tell: is told the progress.

    Raises:
        NotAuthorized: `admin` on the service is needed.
        RequestInvalid: no archive is configured.
        MetadataTampered: the log or the archive has problems; nothing was removed.
        CommitConflict: another process archived at the same time; nothing was removed.
        StateUnavailable, CommitStateUnknown, StorageUnavailable: database or storage do not answer.
    """
    archiver = archiver_of(services, public_keys)
    requests = required(_ACTION, On.service(caller.principal, services.settings.catalog.name))
    services.authorizer.require(caller, _ACTION, _what(services), requests)
    return archiver.move(_before_ms(services), services.audit.writer_id, services.now_ms(), tell)


def archive_due(services: Services) -> Moved:
    """Move the records that are due, by schedule; errors as `archive_as`."""
    archiver = archiver_of(services)
    if not archiver.is_due(_before_ms(services)):
        return Moved(0, 0)
    with closed(services.authorizer, _SCHEDULE, _ACTION, changes=True):
        why = Decision.allow(Reason("audit-archive", "`audit.archive_after_days` says so."))
        services.authorizer.record(_SCHEDULE, _ACTION, _what(services), why)
        return archiver.move(_before_ms(services), services.audit.writer_id, services.now_ms())


class ArchiveSchedule:
    """Archives records in a separate thread, if an archive is configured.

    Args:
        services: the open catalog; `close` comes before it is closed.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lakewarden-audit-archive", daemon=True)
        if services.settings.audit.archive is not None:
            self._thread.start()

    @property
    def is_running(self) -> bool:
        """Return whether it looks for records."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Stop; a move that is under way is waited for, for a bounded time, and can be interrupted safely."""
        self._ended.set()
        if self.is_running:
            self._thread.join(_CLOSING_S)

    def _run(self) -> None:
        every_s = self._services.settings.audit.archive_every_s
        wait_s = every_s * random.uniform(0, _SPREAD)
        while not self._ended.wait(wait_s):
            self._look()
            wait_s = every_s

    def _look(self) -> None:
        state = self._services.archive_state
        try:
            moved = archive_due(self._services)
        except (CommitConflict, IntegrityError):
            _log.info("another process archived records of the audit log at the same time")
        except Exception as error:  # noqa: BLE001 - whatever fails, the next look has to come
            # The database grows until an operator acts. The message of a foreign error can contain a secret.
            state.is_failing = True
            _log.error("records of the audit log were not archived (%s)", _cause(error))
        else:
            state.is_failing = False
            if moved.records:
                _log.info("%d records of the audit log were archived", moved.records)


def _before_ms(services: Services) -> int:
    return services.now_ms() - _days(services) * _DAY_MS


def _days(services: Services) -> int:
    return services.settings.audit.archive_after_days


def _what(services: Services) -> str:
    return f"records of more than {_days(services)} days"


def _cause(error: Exception) -> str:
    return error.message if isinstance(error, LakewardenError) else type(error).__name__
