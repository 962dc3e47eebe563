"""Metrics reports of standard clients: what they measured of a scan or a commit.

A report is what a client says. It decides nothing, so it is counted and logged, and not kept. The log has the
metrics that the reference implementation defines, as numbers. It has no filter, no names of columns and no
metadata, because these can hold values of rows.

Source: Iceberg REST catalog specification, `reportMetrics`; Apache Iceberg, `ScanMetrics`, `CommitMetrics`.
"""

from __future__ import annotations

import logging
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from catalog.authorization.authorizer import Caller
from catalog.base.identifiers import TableName
from catalog.base.log_fields import Value, fields
from catalog.http.base_models import IcebergBody
from catalog.http.metrics import Metrics

_LONG: Final = 2**63 - 1
_INT: Final = 2**31 - 1

_Count = Annotated[int, Field(ge=0, le=_LONG, strict=True)]
_Text = Annotated[str, Field(max_length=1_024)]

#: Counters of a scan, and of a commit.
_COUNTERS: Final = frozenset(
    {
        "result-data-files",
        "result-delete-files",
        "scanned-data-manifests",
        "scanned-delete-manifests",
        "total-data-manifests",
        "total-delete-manifests",
        "total-file-size-in-bytes",
        "total-delete-file-size-in-bytes",
        "skipped-data-manifests",
        "skipped-delete-manifests",
        "skipped-data-files",
        "skipped-delete-files",
        "indexed-delete-files",
        "equality-delete-files",
        "positional-delete-files",
        "dvs",
        "attempts",
        "added-data-files",
        "removed-data-files",
        "total-data-files",
        "added-delete-files",
        "removed-delete-files",
        "total-delete-files",
        "added-records",
        "removed-records",
        "total-records",
        "added-files-size-bytes",
        "removed-files-size-bytes",
        "total-files-size-bytes",
    }
)
_TIMERS: Final = frozenset({"total-planning-duration", "total-duration"})
_NANOSECONDS: Final = {"nanoseconds": 1, "microseconds": 10**3, "milliseconds": 10**6, "seconds": 10**9}

_log: Final = logging.getLogger("lakewarden.http")


class CounterResult(IcebergBody):
    """`CounterResult`."""

    unit: _Text
    value: Annotated[int, Field(ge=-_LONG, le=_LONG, strict=True)]


class TimerResult(IcebergBody):
    """`TimerResult`."""

    time_unit: _Text
    count: _Count
    total_duration: _Count


class _Report(IcebergBody):
    """What both kinds of reports have."""

    table_name: _Text
    snapshot_id: Annotated[int, Field(ge=-_LONG, le=_LONG, strict=True)]
    metrics: Annotated[dict[_Text, CounterResult | TimerResult], Field(max_length=256)]
    metadata: Annotated[dict[_Text, str], Field(max_length=1_000)] = Field(default_factory=dict)


class ScanReport(_Report):
    """`ScanReport`; the filter is any expression, because clients replace the values in it."""

    report_type: Literal["scan-report"]
    filter: bool | dict[str, Any]
    schema_id: Annotated[int, Field(ge=-_INT, le=_INT, strict=True)]
    projected_field_ids: list[Annotated[int, Field(ge=-_INT, le=_INT, strict=True)]]
    projected_field_names: list[str]


class CommitReport(_Report):
    """`CommitReport`."""

    report_type: Literal["commit-report"]
    sequence_number: Annotated[int, Field(ge=-_LONG, le=_LONG, strict=True)]
    operation: Literal["append", "replace", "overwrite", "delete"]


ReportMetrics = Annotated[ScanReport | CommitReport, Field(discriminator="report_type")]
"""`ReportMetricsRequest`."""


def record(report: ScanReport | CommitReport, caller: Caller, name: TableName, metrics: Metrics) -> None:
    """Count a report, and write it to the service log.

    Args:
        report: the report.
        caller: who sent it; it was allowed.
        name: the table of the address.
        metrics: counts it.
    """
    kind = report.report_type.removesuffix("-report")
    metrics.reported(kind)
    about: dict[str, Value] = {"report": kind, "table": str(name), "snapshot": report.snapshot_id}
    if isinstance(report, CommitReport):
        about["operation"] = report.operation
    _log.info(
        "metrics report",
        extra=fields(
            request_id=caller.request_id, principal=caller.principal.name, **about, **_numbers(report)
        ),
    )


def _numbers(report: _Report) -> dict[str, Value]:
    """Return the known metrics of a report; durations in milliseconds."""
    numbers: dict[str, Value] = {}
    for name, result in report.metrics.items():
        label = name.replace("-", "_")
        if isinstance(result, CounterResult) and name in _COUNTERS:
            numbers[label] = result.value
        elif isinstance(result, TimerResult) and name in _TIMERS and result.time_unit in _NANOSECONDS:
            numbers[f"{label}_ms"] = result.total_duration * _NANOSECONDS[result.time_unit] // 10**6
    return numbers
