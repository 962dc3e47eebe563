"""Metrics: Prometheus' format, states of the catalog, and a bounded number of series."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.base.durations import BOUNDS, Durations, summed
from catalog.base.outside_calls import CALLS, UNAVAILABLE, Part, outside_call
from catalog.db.engine import open_database, read
from catalog.http import gauges, metric_families
from catalog.http.metric_families import FAMILIES
from catalog.http.metrics import Metrics
from catalog.http.metrics_text import rendered
from catalog.policy_store import in_force
from catalog.policy_store.documents import PolicyDocuments
from catalog.policy_store.in_force import PolicyStore
from policy.errors import KmsUnavailable, StateUnavailable
from tests.support import databases
from tests.support.http_calls import encrypted_table, new_table
from tests.support.lake import write_unchecked
from tests.support.service import Service

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "observability.md"
DASHBOARD = ROOT / "examples" / "grafana" / "lakewarden.json"
#: Metrics that say the same as another one on the dashboard, or little to an operator.
NOT_SHOWN = {
    "lakewarden_request_seconds_total",
    "lakewarden_metrics_reports_total",
    "lakewarden_policy_source_version",
}
SERIES = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="[^"\n]*",?)+)\})? ([-0-9.e+]+)')


def _text(metrics: Metrics) -> str:
    return rendered(metrics.events())


def _values(text: str, name: str) -> dict[str, float]:
    """The values of a metric, by its labels as they are shown."""
    found = (SERIES.fullmatch(line) for line in text.splitlines() if not line.startswith("#"))
    return {each[2] or "": float(each[3]) for each in found if each and each[1] == name}


@pytest.mark.parametrize("rule", ["", "a b", 'x"}', "x" * 65, "s3://a/b", "line\nbreak"])
def test_only_names_of_rules_become_labels(rule: str) -> None:
    metrics = Metrics()
    metrics.refused(rule)
    assert 'lakewarden_refusals_total{rule="other"} 1\n' in _text(metrics)


def test_number_of_series_is_bounded() -> None:
    metrics = Metrics()
    for number in range(5_000):
        metrics.refused(f"rule-{number}")
    refusals = _values(_text(metrics), "lakewarden_refusals_total")
    assert len(refusals) <= 2_001 and sum(refusals.values()) == 5_000


def test_policies_that_are_not_the_newest_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_force, "_RELOAD_WAIT_S", 60.0)
    seconds = [0.0]
    engine = open_database(f"sqlite:///{tmp_path}/lake.db")
    databases.upgrade(engine)
    documents = PolicyDocuments(engine, "lake")
    policies = PolicyStore(documents, clock=lambda: seconds[0])
    known = gauges.policy_states(policies)
    assert not known[metric_families.OUTDATED] and known[metric_families.REVISION] == 0
    write_unchecked(documents, "a", b"{")
    seconds[0] = 7.0
    assert gauges.policy_states(policies)[metric_families.POLICY_AGE] == 7
    policies.current()
    known = gauges.policy_states(policies)
    assert known[metric_families.OUTDATED] and known[metric_families.POLICY_AGE] == 7


def test_counts_add_up() -> None:
    metrics = Metrics()
    for seconds in (0.25, 0.5):
        metrics.answered("GET", "/healthz", 200, seconds)
    metrics.committed("engine")
    text = _text(metrics)
    assert 'lakewarden_requests_total{method="GET",route="/healthz",status="200"} 2\n' in text
    assert 'lakewarden_request_seconds_total{method="GET",route="/healthz"} 0.75\n' in text
    assert 'lakewarden_commits_total{kind="engine"} 1\n' in text
    assert 'lakewarden_request_duration_seconds_bucket{method="GET",route="/healthz",le="0.25"} 1\n' in text
    assert 'lakewarden_request_duration_seconds_count{method="GET",route="/healthz"} 2\n' in text


@given(st.lists(st.lists(st.floats(0, 100), max_size=20), max_size=4))
def test_a_histogram_counts_each_duration_once_where_it_belongs(workers: list[list[float]]) -> None:
    parts = [Durations() for _ in workers]
    for part, seconds in zip(parts, workers, strict=True):
        for each in seconds:
            part.add(("a",), each)
    everything = [each for seconds in workers for each in seconds]
    found = summed(part.histograms() for part in parts)
    if not everything:
        assert found == {}
        return
    counts, total = found["a",]
    assert math.isclose(total, sum(everything), abs_tol=1e-9)
    for at, bound in enumerate(BOUNDS):
        assert sum(counts[: at + 1]) == sum(each <= bound for each in everything)
    assert sum(counts) == len(everything)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "answered"),
        (ValueError(), "answered"),
        (KmsUnavailable("x"), UNAVAILABLE),
        (TimeoutError(), UNAVAILABLE),
    ],
)
def test_a_call_without_an_answer_is_told_apart(error: Exception | None, outcome: str) -> None:
    def counted() -> int:
        found = CALLS.histograms().get((Part.KMS, "test", outcome))
        return 0 if found is None else sum(found.counts)

    before = counted()
    try:
        with outside_call(Part.KMS, "test"):
            if error is not None:
                raise error
    except type(error or ValueError()):
        pass
    assert counted() == before + 1


def test_a_database_that_is_gone_is_a_call_without_an_answer(tmp_path: Path) -> None:
    key = (Part.DATABASE, "read", UNAVAILABLE)
    before = sum(CALLS.histograms()[key].counts) if key in CALLS.histograms() else 0
    with pytest.raises(StateUnavailable), read(open_database(f"sqlite:///{tmp_path}/none.db")):
        pass
    assert sum(CALLS.histograms()[key].counts) == before + 1


def _check_labels(name: str, labels: list[str]) -> None:
    """The labels of a series are those that its family names."""
    family = FAMILIES.get(name) or FAMILIES[re.sub("_(bucket|sum|count)$", "", name)]
    bounds = ["le"] if name.endswith("_bucket") else []
    assert labels == [*family.labels, *bounds]


def test_states_of_the_catalog_are_shown(served: Service, alice: httpx.Client, namespace: str) -> None:
    assert new_table(alice, served.prefix, namespace).status_code == 200
    text = alice.get("/metrics").text
    shown = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    assert shown == [(name, family.kind) for name, family in FAMILIES.items()]
    for line in text.splitlines():
        if not line.startswith("# "):
            series = SERIES.fullmatch(line)
            assert series is not None, line
            _check_labels(series[1], re.findall(r'([a-z_]+)="', series[2] or ""))
    for part, operation in (("database", "write"), ("database", "select"), ("storage", "create")):
        labels = f'part="{part}",operation="{operation}",outcome="answered"'
        assert _values(text, "lakewarden_call_duration_seconds_count")[labels] > 0
    (build,) = _values(text, "lakewarden_build_info")
    assert build.startswith('version="') and "python=" in build
    assert _values(text, "lakewarden_database_connections_max") == {
        'pool="writers"': 32,
        'pool="readers"': 32,
    }
    assert set(_values(text, "lakewarden_database_connections")) == {
        f'pool="{pool}",state="{state}"' for pool in ("writers", "readers") for state in ("used", "idle")
    }
    assert _values(text, "lakewarden_audit_queue_records") == {"": 0}
    assert _values(text, "lakewarden_cache_bytes").keys() == {'cache="manifests"'}


def test_lookups_in_caches_are_counted(served: Service, alice: httpx.Client, namespace: str) -> None:
    assert encrypted_table(alice, namespace).is_success

    def lookups(result: str) -> float:
        found = _values(alice.get("/metrics").text, "lakewarden_cache_lookups_total")
        return found[f'cache="keys",result="{result}"']

    hits, misses = lookups("hit"), lookups("miss")
    served.lake.services.peks._cached.clear()
    for _ in range(2):
        begun = alice.post(f"/engine/v1/tables/{namespace}/t/writes")
        assert begun.is_success, begun.text
    assert (lookups("hit") - hits, lookups("miss") - misses) == (1, 1)


def test_the_page_lists_all_metrics() -> None:
    rows = re.findall(r"^\| `(lakewarden_\w+)` \| (\w+) \| (.*?) \|", PAGE.read_text(), re.MULTILINE)
    assert {name: (kind, labels) for name, kind, labels in rows} == {
        name: (family.kind, ", ".join(f"`{each}`" for each in family.labels))
        for name, family in FAMILIES.items()
    }


def test_the_dashboard_queries_metrics_that_exist() -> None:
    """Every metric and label of the dashboard for Grafana is one of `/metrics`."""
    document = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in document["panels"] for target in panel.get("targets", ())]
    assert len(queries) > 15
    asked = set()
    for query in queries:
        names = set(re.findall(r"lakewarden_\w+", query))
        labels = {each for by in re.findall(r"by \(([^)]*)\)", query) for each in by.split(", ")}
        labels |= set(re.findall(r"[{,]\s*(\w+)\s*[=!]", query))
        known = {"le", "instance", "job"}
        for name in names:
            base = name if name in FAMILIES else re.sub("_(bucket|sum|count)$", "", name)
            assert base == name or FAMILIES[base].kind == "histogram", query
            known |= {*FAMILIES[base].labels}
            asked.add(base)
        assert labels <= known, query
    assert asked >= set(FAMILIES) - NOT_SHOWN
