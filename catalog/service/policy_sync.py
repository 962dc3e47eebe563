"""Synchronizes policies with Ranger Admins: in the background of the service.

- Each source has a thread, so that one that does not answer keeps no other from being asked. Every replica
  looks; one at a time asks (`catalog.policy_store.source_states`).
- A problem is logged when it begins, when it becomes another one, and when it ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from typing import Final

from sqlalchemy import Engine

from catalog.authorization.authorizer import Caller
from catalog.authorization.principals import Principals
from catalog.closing import closed
from catalog.policy_sources.negotiate import require_kerberos
from catalog.policy_sources.ranger_admin import SourceFailed
from catalog.policy_sources.synchronization import Outcome, Synchronization
from catalog.policy_store.changes import PolicyChanges, Prepared, about, reasons_of
from catalog.policy_store.documents import Edit, PolicyDocuments
from catalog.policy_store.in_force import PolicyStore
from catalog.policy_store.source_states import SourceStates
from catalog.service.services import Services
from catalog.settings.catalog import Settings
from policy.decision import Decision, Reason
from policy.errors import LakewardenError, RequestInvalid
from policy.principal import Principal

ACTION: Final = "policy.change"
_CLOSING_S: Final = 5.0
#: Seconds between two looks whether it is time to ask: at most, and as a part of the time between attempts.
_LONGEST_LOOK_S: Final = 5.0
_LOOKS: Final = 4

_log: Final = logging.getLogger("lakewarden.policies")


def synchronizations(
    settings: Settings,
    engine: Engine,
    policies: PolicyStore | None,
    principals: Principals,
    now: Callable[[], datetime],
    names: Iterable[str] = (),
) -> Mapping[str, Synchronization]:
    """Return what synchronizes the sources in the settings, by name.

    Row filters and masks are not checked against tables here: one that does not fit refuses the queries of
    its table, and need not keep everything else that Ranger changed from being in force.

    Args:
        settings: the settings.
        engine: the catalog's database.
        policies: the policies that this process decides by, if it does.
        principals: who could ask for administration.
        now: the time, with a zone.
        names: the sources; by default all.

    Raises:
        RequestInvalid: there is no such source, or an extra is not installed.
    """
    catalog, sources = settings.catalog.name, settings.ranger
    wanted = list(names) or list(sources)
    if unknown := [name for name in wanted if name not in sources]:
        raise RequestInvalid(
            f"There is no policy source {unknown[0]!r}. Sources: {', '.join(sources) or 'none'}.",
            rule="policy-source",
            hint="Name one that the settings have, as `[ranger.NAME]`.",
        )
    if any(sources[name].kerberos for name in wanted):
        require_kerberos()
    documents, states = PolicyDocuments(engine, catalog), SourceStates(engine, catalog, now)
    changes = PolicyChanges(documents, policies, principals, catalog, now, None, sources)
    release = version("lakewarden")
    return {
        name: Synchronization(name, sources[name], documents, changes, states, release) for name in wanted
    }


def decision_on(prepared: Prepared, more: Sequence[Reason]) -> Iterable[Decision]:
    """Return what is recorded of a change by a source: a decision for each record."""
    return (Decision.allow(*reasons, *more) for reasons in reasons_of(prepared, force=True))


class PolicySync:
    """Synchronizes all sources in the settings, in threads.

    Args:
        services: the open catalog; `close` comes before it is closed.

    Raises:
        RequestInvalid: an extra is not installed.
    """

    def __init__(self, services: Services) -> None:
        self._ended = threading.Event()
        self._sources = sources_of(services)
        self._threads = [
            threading.Thread(target=self._run, args=(each,), name=f"lakewarden-{each.name}", daemon=True)
            for each in self._sources
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop; an attempt is waited for, for a bounded time, and can be interrupted safely."""
        self._ended.set()
        for thread in self._threads:
            thread.join(_CLOSING_S)
        for source in self._sources:
            source.close()

    def _run(self, source: SourceSync) -> None:
        source.look()
        while not self._ended.wait(source.look_s):
            source.look()


class SourceSync:
    """Synchronizes one source whenever it is time, for one thread.

    Args:
        name: its name in the settings.
        synchronization: asks Ranger.
        services: the open catalog.
    """

    def __init__(self, name: str, synchronization: Synchronization, services: Services) -> None:
        self.name = name
        self._synchronization = synchronization
        self._services = services
        self._caller = Caller(Principal("lakewarden"), None, f"policy-source-{name}")
        self._problem: str | None = None
        #: Whether this process can still have the turn of an attempt that it did not end.
        self._interrupted = False

    @property
    def look_s(self) -> float:
        """Return the seconds between two looks."""
        return min(self._services.settings.ranger[self.name].poll_s / _LOOKS, _LONGEST_LOOK_S)

    def close(self) -> None:
        """Close the connections to Ranger."""
        self._synchronization.close()

    def look(self) -> None:
        """Ask Ranger if it is time, and log what changed; whatever fails, the next look has to come."""
        try:
            outcome = self._attempt()
        except SourceFailed as error:
            self._report(error.message)
        except Exception as error:  # noqa: BLE001 - see above
            # The message of a foreign error can contain a secret.
            self._interrupted = True
            self._report(error.message if isinstance(error, LakewardenError) else type(error).__name__)
        else:
            if outcome is not None:
                self._report(None)
                self._tell(outcome)

    def _attempt(self) -> Outcome | None:
        """Ask Ranger if it is time; None if it is not."""
        claim = self._synchronization.claim(force=self._interrupted)
        self._interrupted = False
        if claim is None:
            return None
        authorizer = self._services.authorizer

        def record(prepared: Prepared, edits: Sequence[Edit], more: Sequence[Reason]) -> None:
            for decision in decision_on(prepared, more):
                authorizer.record(self._caller, ACTION, about(edits), decision)

        with closed(authorizer, self._caller, "policies", changes=True, begun_only=True):
            outcome = self._synchronization.attempt(claim, self._caller, record)
        if self._services.policies.is_closed:
            # Other processes decide again when they look next; this one has just heard from Ranger.
            self._services.policies.reload()
        return outcome

    def _tell(self, outcome: Outcome) -> None:
        if outcome.prepared is not None:
            download = outcome.download
            _log.info(
                "source %s: %d policies are in force, %d were left out; versions: %s",
                self.name,
                download.policies,
                download.left_out,
                dict(download.versions),
            )

    def _report(self, problem: str | None) -> None:
        if problem is not None and problem != self._problem:
            _log.warning("source %s cannot be synchronized: %s", self.name, problem)
        if problem is None and self._problem is not None:
            _log.warning("source %s is synchronized again", self.name)
        self._problem = problem


def sources_of(services: Services) -> list[SourceSync]:
    """Return what synchronizes the sources of an open catalog; errors as `synchronizations`."""
    found = synchronizations(
        services.settings, services.engine, services.policies, services.principals, services.now
    )
    return [SourceSync(name, each, services) for name, each in found.items()]
