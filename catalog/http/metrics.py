"""Counters and states of the service, in Prometheus' text format.

- Labels are methods, route templates, statuses and rule names, never a name of a table or principal, a path
  or a token. So every user with a valid token can read them.
- The number of series is bounded for any input.
- With several workers, `catalog.http.worker_states` adds up the snapshots of all.

Source: Prometheus, "Exposition formats", text-based format 0.0.4.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from catalog.db.clock import DatabaseClock
from catalog.kms.clients import KmsClients
from catalog.policy_store.in_force import PolicyStore
from catalog.service.archive_state import ArchiveState
from catalog.service.replicas import Replicas

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_MAX_SERIES: Final = 2_000
_RULE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_OTHER: Final = "other"

_HELP: Final = {
    "lakewarden_requests_total": "Requests answered, by route and status.",
    "lakewarden_request_seconds_total": "Time spent on requests, by route.",
    "lakewarden_refusals_total": "Requests refused, by rule.",
    "lakewarden_commits_total": "Commits that took effect, by kind.",
    "lakewarden_metrics_reports_total": "Metrics reports of clients, by kind.",
    "lakewarden_connections_refused_total": "Connections and requests that a limit ended, by rule.",
}

_KMS_CALLS: Final = "lakewarden_kms_calls_total"
_KMS_CIRCUIT: Final = "lakewarden_kms_circuit_open"

_CONNECTIONS: Final = "lakewarden_connections_open"

_DIFFERS: Final = "lakewarden_replicas_setting_differs"

_STATES: Final = {
    "lakewarden_policies_outdated": "1 if newer policies were refused or cannot be read, else 0.",
    "lakewarden_policies_age_seconds": "Time since the policies in force were last known to be the newest.",
    "lakewarden_policies_closed": "1 if the policies are too old to decide anything, else 0.",
    "lakewarden_clock_off": "1 if the clock of this host is off the database's, so that no token is judged.",
    "lakewarden_audit_archive_failing": "1 if old records of the audit log could not be archived, else 0.",
    "lakewarden_replicas_different_settings": "Number of settings in which other replicas differ.",
    "lakewarden_policies_revision": "Number of the last change of the catalog's own policies in force.",
}

_Labels = tuple[tuple[str, str], ...]
#: A name, and its labels.
Series = tuple[str, _Labels]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What `/metrics` shows of one process, or of all workers.

    Attributes:
        counts: events by series.
        connections: open connections.
        states: the values of `_STATES`, in their order.
        differences: the settings in which other replicas differ.
        kms_calls: calls by series.
        circuit_open: whether a circuit breaker of a KMS is open.
    """

    counts: Mapping[Series, float]
    connections: int
    states: tuple[float, ...]
    differences: tuple[str, ...]
    kms_calls: Mapping[Series, float]
    circuit_open: bool

    def render(self) -> str:
        """Render everything as text."""
        return (
            _render_counts(sorted(self.counts.items()), self.connections)
            + _render_states(self.states, self.differences)
            + _render_kms(sorted(self.kms_calls.items()), self.circuit_open)
        )


class Metrics:
    """Counts events of the service; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Series] = Counter()
        self._connections = 0

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered.

        Args:
            method: the HTTP method.
            route: the template of the path.
            status: of the answer.
            seconds: from the request's head to the answer's last byte.
        """
        where = (("method", method), ("route", route))
        self._add("lakewarden_requests_total", (*where, ("status", str(status))), 1)
        self._add("lakewarden_request_seconds_total", where, seconds)

    def refused(self, rule: str) -> None:
        """Count a request that a rule refused."""
        self._add("lakewarden_refusals_total", (("rule", rule if _RULE.fullmatch(rule) else _OTHER),), 1)

    def connections(self, count: int) -> None:
        """Set the number of open connections."""
        self._connections = count

    def connection_refused(self, rule: str) -> None:
        """Count a connection or request that a limit ended before the application received it."""
        self._add("lakewarden_connections_refused_total", (("rule", rule),), 1)

    def committed(self, kind: str) -> None:
        """Count a commit that took effect: ``create``, ``commit``, ``transaction`` or ``engine``."""
        self._add("lakewarden_commits_total", (("kind", kind),), 1)

    def reported(self, kind: str) -> None:
        """Count a metrics report of a client: ``scan`` or ``commit``."""
        self._add("lakewarden_metrics_reports_total", (("kind", kind),), 1)

    def render(self) -> str:
        """Render all counters as text."""
        with self._lock:
            counts = sorted(self._counts.items())
        return _render_counts(counts, self._connections)

    def snapshot(
        self,
        policies: PolicyStore,
        clock: DatabaseClock,
        replicas: Replicas,
        archive: ArchiveState,
        clients: KmsClients,
    ) -> Snapshot:
        """Return the counters, and the states of the process."""
        with self._lock:
            counts = dict(self._counts)
        calls = Counter[Series]()
        for client in clients.by_name.values():
            for each, count in client.counts().items():
                labels = ("kms", each.kms), ("operation", each.operation), ("outcome", each.outcome)
                calls[_KMS_CALLS, labels] += count
        is_open = any(client.circuit_open for client in clients.by_name.values())
        states = _states_of(policies, clock, replicas, archive)
        return Snapshot(counts, self._connections, states, replicas.differences, calls, is_open)

    @staticmethod
    def render_states(
        policies: PolicyStore, clock: DatabaseClock, replicas: Replicas, archive: ArchiveState
    ) -> str:
        """Render the process's states as text, and the settings in which other replicas differ, by name."""
        return _render_states(_states_of(policies, clock, replicas, archive), replicas.differences)

    def _add(self, name: str, labels: _Labels, amount: float) -> None:
        with self._lock:
            key = (name, labels)
            if key not in self._counts and len(self._counts) >= _MAX_SERIES:
                key = (name, tuple((label, _OTHER) for label, _ in labels))
            self._counts[key] += amount  # type: ignore[assignment]


def state_index(name: str) -> int:
    """Return where a state is in `Snapshot.states`."""
    return list(_STATES).index(name)


def _states_of(
    policies: PolicyStore, clock: DatabaseClock, replicas: Replicas, archive: ArchiveState
) -> tuple[float, ...]:
    return (
        float(policies.problem is not None),
        policies.age_s,
        float(policies.is_closed),
        float(clock.is_off),
        float(archive.is_failing),
        float(len(replicas.differences)),
        float(policies.last.stored.version.revision),
    )


def _render_counts(counts: Sequence[tuple[Series, float]], connections: int) -> str:
    opened = f"# HELP {_CONNECTIONS} Connections that are open.\n# TYPE {_CONNECTIONS} gauge\n"
    return "".join(_lines(counts)) + f"{opened}{_CONNECTIONS} {connections}\n"


def _render_states(values: tuple[float, ...], differences: tuple[str, ...]) -> str:
    states = "".join(
        f"# HELP {name} {text}\n# TYPE {name} gauge\n{name} {value:g}\n"
        for (name, text), value in zip(_STATES.items(), values, strict=True)
    )
    differs = (f'{_DIFFERS}{{setting="{_escaped(each)}"}} 1\n' for each in differences)
    return f"{states}# HELP {_DIFFERS} 1 for a setting in which other replicas differ.\n" + "".join(
        [f"# TYPE {_DIFFERS} gauge\n", *differs]
    )


def _render_kms(calls: Sequence[tuple[Series, float]], is_open: bool) -> str:
    lines = (f"{name}{{{_shown(labels)}}} {value:g}\n" for (name, labels), value in calls)
    return (
        f"# HELP {_KMS_CALLS} Calls to the KMS, by operation and outcome.\n# TYPE {_KMS_CALLS} counter\n"
        + "".join(lines)
        + f"# HELP {_KMS_CIRCUIT} 1 if a KMS, or some key in it, is left alone for not answering.\n"
        f"# TYPE {_KMS_CIRCUIT} gauge\n{_KMS_CIRCUIT} {int(is_open)}\n"
    )


def _lines(counts: Sequence[tuple[Series, float]]) -> Iterator[str]:
    for name, text in _HELP.items():
        yield f"# HELP {name} {text}\n# TYPE {name} counter\n"
        for (family, labels), value in counts:
            if family == name:
                yield f"{name}{{{_shown(labels)}}} {value:g}\n"


def _shown(labels: _Labels) -> str:
    return ",".join(f'{label}="{_escaped(each)}"' for label, each in labels)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
