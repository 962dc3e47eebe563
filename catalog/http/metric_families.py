"""The metrics of the service by name: what each counts, and how those of several workers become one.

Names in code are the constants of this module. `docs/observability.md` lists the metrics for operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """The type of a metric, in Prometheus' words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """A metric.

    Attributes:
        kind: its type.
        help: what it shows.
        labels: the names of its labels.
        merge: of a gauge, what makes one value of those of all workers.
    """

    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    merge: Callable[[float, float], float] = max


def _counter(text: str, *labels: str) -> Family:
    return Family(Kind.COUNTER, text, labels)


def _gauge(text: str, *labels: str, merge: Callable[[float, float], float] = max) -> Family:
    return Family(Kind.GAUGE, text, labels, merge)


def _histogram(text: str, *labels: str) -> Family:
    return Family(Kind.HISTOGRAM, text, labels)


def _sum(first: float, second: float) -> float:
    return first + second


REQUESTS: Final = "lakewarden_requests_total"
REQUEST_SECONDS: Final = "lakewarden_request_seconds_total"
REQUEST_DURATION: Final = "lakewarden_request_duration_seconds"
CALL_DURATION: Final = "lakewarden_call_duration_seconds"
REFUSALS: Final = "lakewarden_refusals_total"
COMMITS: Final = "lakewarden_commits_total"
REPORTS: Final = "lakewarden_metrics_reports_total"
CONNECTIONS_REFUSED: Final = "lakewarden_connections_refused_total"
CONNECTIONS: Final = "lakewarden_connections_open"
KMS_CALLS: Final = "lakewarden_kms_calls_total"
KMS_CIRCUIT: Final = "lakewarden_kms_circuit_open"
LOOKUPS: Final = "lakewarden_cache_lookups_total"
CACHE_BYTES: Final = "lakewarden_cache_bytes"
POOL: Final = "lakewarden_database_connections"
POOL_MAX: Final = "lakewarden_database_connections_max"
AUDIT_QUEUE: Final = "lakewarden_audit_queue_records"
ARCHIVE_FAILING: Final = "lakewarden_audit_archive_failing"
OUTDATED: Final = "lakewarden_policies_outdated"
POLICY_AGE: Final = "lakewarden_policies_age_seconds"
CLOSED: Final = "lakewarden_policies_closed"
REVISION: Final = "lakewarden_policies_revision"
SOURCE_FAILING: Final = "lakewarden_policy_source_failing"
SOURCE_AGE: Final = "lakewarden_policy_source_age_seconds"
SOURCE_MAX_AGE: Final = "lakewarden_policy_source_max_age_seconds"
SOURCE_VERSION: Final = "lakewarden_policy_source_version"
CLOCK_OFF: Final = "lakewarden_clock_off"
DIFFERENT: Final = "lakewarden_replicas_different_settings"
DIFFERS: Final = "lakewarden_replicas_setting_differs"
BUILD: Final = "lakewarden_build_info"

#: All metrics, in the order in which they are shown.
FAMILIES: Final[Mapping[str, Family]] = {
    REQUESTS: _counter("Requests answered.", "method", "route", "status"),
    REQUEST_SECONDS: _counter("Time spent on requests.", "method", "route"),
    REQUEST_DURATION: _histogram("Time from a request's head to the answer's last byte.", "method", "route"),
    CALL_DURATION: _histogram(
        "Time of calls to the parts that the catalog needs.", "part", "operation", "outcome"
    ),
    REFUSALS: _counter("Requests refused.", "rule"),
    COMMITS: _counter("Commits that took effect.", "kind"),
    REPORTS: _counter("Metrics reports of clients.", "kind"),
    CONNECTIONS_REFUSED: _counter("Connections and requests that a limit ended.", "rule"),
    CONNECTIONS: _gauge("Connections that are open.", merge=_sum),
    KMS_CALLS: _counter("Calls to the KMS, each attempt once.", "kms", "operation", "outcome"),
    KMS_CIRCUIT: _gauge("1 if a KMS, or some key in it, is left alone for not answering."),
    LOOKUPS: _counter("Lookups in caches.", "cache", "result"),
    CACHE_BYTES: _gauge("Memory of caches.", "cache", merge=_sum),
    POOL: _gauge("Connections to the database.", "pool", "state", merge=_sum),
    POOL_MAX: _gauge("Maximum number of connections to the database.", "pool", merge=_sum),
    AUDIT_QUEUE: _gauge("Audit records that wait to be written.", merge=_sum),
    ARCHIVE_FAILING: _gauge("1 if old records of the audit log could not be archived, else 0."),
    OUTDATED: _gauge("1 if newer policies were refused or cannot be read, else 0."),
    POLICY_AGE: _gauge("Time since the policies in force were last known to be the newest."),
    CLOSED: _gauge("1 if the policies are too old to decide anything, else 0."),
    REVISION: _gauge("Number of the last change of the catalog's own policies in force.", merge=min),
    SOURCE_FAILING: _gauge("1 if a policy source could not be synchronized, else 0.", "source"),
    SOURCE_AGE: _gauge("Time since Ranger last confirmed the policies of a source.", "source"),
    SOURCE_MAX_AGE: _gauge("Age of a source's policies from which nothing is decided.", "source"),
    SOURCE_VERSION: _gauge("Version in Ranger of what is in force.", "source", "part", merge=min),
    CLOCK_OFF: _gauge("1 if the clock of this host is off the database's, so that no token is judged."),
    DIFFERENT: _gauge("Number of settings in which other replicas differ."),
    DIFFERS: _gauge("1 for a setting in which other replicas differ.", "setting"),
    BUILD: _gauge("1, with the versions of Lakewarden and Python.", "version", "python"),
}
