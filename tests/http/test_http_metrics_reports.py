"""Metrics reports of standard clients are counted and logged, without what can hold values of rows."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

from tests.support.http_calls import new_table, refused
from tests.support.service import Service

_COUNT = {"unit": "count", "value": 7}
SCAN: dict[str, Any] = {
    "report-type": "scan-report",
    "table-name": "lake.sales.orders",
    "snapshot-id": 2**62,
    "filter": {"type": "eq", "term": "name", "value": "secret-literal"},
    "schema-id": 0,
    "projected-field-ids": [1, 2],
    "projected-field-names": ["id", "secret-column"],
    "metrics": {
        "result-data-files": _COUNT,
        "secret-metric": _COUNT,
        "total-planning-duration": {"count": 1, "time-unit": "nanoseconds", "total-duration": 5_000_000},
    },
    "metadata": {"engine-name": "secret-engine"},
}
COMMIT: dict[str, Any] = {
    "report-type": "commit-report",
    "table-name": "lake.sales.orders",
    "snapshot-id": 5,
    "sequence-number": 2,
    "operation": "append",
    "metrics": {"attempts": {"unit": "count", "value": 1}},
}


@pytest.fixture
def url(served: Service, alice: httpx.Client, namespace: str) -> str:
    assert new_table(alice, served.prefix, namespace).status_code == 200
    return f"{served.prefix}/namespaces/{namespace}/tables/t/metrics"


def _logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    found = [each for each in caplog.records if each.getMessage() == "metrics report"]
    return [vars(each)["lakewarden_fields"] for each in found]


def test_a_report_is_counted_and_logged_as_numbers(
    alice: httpx.Client, url: str, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="lakewarden.http"):
        for report in (SCAN, COMMIT):
            answer = alice.post(url, json=report)
            assert (answer.status_code, answer.content) == (204, b""), answer.text
    scan, commit = _logged(caplog)
    assert (
        scan.items()
        >= {
            "report": "scan",
            "principal": "alice",
            "table": f"{namespace}.t",
            "snapshot": 2**62,
            "result_data_files": 7,
            "total_planning_duration_ms": 5,
        }.items()
    )
    assert commit.items() >= {"report": "commit", "operation": "append", "attempts": 1}.items()
    assert "secret" not in str(scan)
    text = alice.get("/metrics").text
    for kind in ("scan", "commit"):
        assert f'lakewarden_metrics_reports_total{{kind="{kind}"}}' in text
    assert "secret" not in text and namespace not in text


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "wrong",
    [
        {"report-type": "other"},
        {"report-type": None},
        {"snapshot-id": "5"},
        {"snapshot-id": 2**63},
        {"snapshot-id": None},
        {"metrics": []},
        {"metrics": {"attempts": {"unit": "count"}}},
        {"metrics": {"attempts": {"unit": "count", "value": 1.5}}},
        {"metrics": {"attempts": {"unit": "count", "value": 2**70}}},
        {"metrics": {f"m{i}": _COUNT for i in range(300)}},
        {"metrics": {"m" * 2000: _COUNT}},
        {"metadata": {"a": 1}},
        {"filter": None},
        {"projected-field-ids": ["x"]},
    ],
)
def test_a_report_that_is_none_is_refused(
    alice: httpx.Client, url: str, wrong: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="lakewarden.http"):
        error = refused(alice.post(url, json=SCAN | wrong), 400, "RequestInvalid", "request")
    assert error["type"] == "BadRequestException" and "secret" not in error["message"]
    assert _logged(caplog) == []


def test_only_users_who_can_load_the_table_report_on_it(
    served: Service, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with served.client("bob") as bob, caplog.at_level(logging.INFO, logger="lakewarden.http"):
        refused(bob.post(url, json=SCAN), 403, "NotAuthorized")
        refused(bob.post(url.replace("/t/", "/no/"), json=SCAN), 403, "NotAuthorized")
    assert _logged(caplog) == []
