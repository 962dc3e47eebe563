"""Traces and metrics as a collector of OpenTelemetry gets them, and what a bad collector cannot do."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from catalog.base import outside_calls
from catalog.http import boundary
from catalog.http.metric_families import FAMILIES
from catalog.http.telemetry import Telemetry
from catalog.service import service_log
from catalog.settings.sections import TelemetrySettings
from policy.errors import RequestInvalid
from tests.support.http_calls import encrypted_table, new_table
from tests.support.lake import BOB
from tests.support.otlp import Collector, Span, collector
from tests.support.service import Service, open_service

SERVER, CLIENT = 2, 3
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SECRET_HEADER = "Q7canaryHeader"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent is sent soon."""
    for name in [each for each in os.environ if each.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")


@pytest.fixture
def receiver() -> Iterator[Collector]:
    with collector() as running:
        yield running


@pytest.fixture
def traced(tmp_path: Path, receiver: Collector) -> Iterator[Service]:
    overrides = {"TELEMETRY__TRACES": "true", "TELEMETRY__ENDPOINT": receiver.url}
    with open_service(tmp_path, **overrides) as service:
        yield service


def spans_of(receiver: Collector, request_id: str) -> tuple[Span, list[Span]]:
    """The span of a request, and those of its calls."""

    def look() -> Span | None:
        found = (
            each for each in receiver.spans() if each.attributes.get("lakewarden.request_id") == request_id
        )
        return next(found, None)

    request = receiver.until(look)
    return request, [each for each in receiver.spans() if each.parent_id == request.span_id]


def test_a_request_is_a_span_with_its_calls(traced: Service, receiver: Collector) -> None:
    with traced.client() as alice:
        alice.post(f"{traced.prefix}/namespaces", json={"namespace": ["db"]})
        headers = {"X-Request-Id": "made", "traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "k=canary"}
        made = alice.post(
            "/engine/v1/namespaces/db/tables",
            json={"name": "t", "schema": _SCHEMA, "properties": {"encryption.mechanism": "envelope"}},
            headers=headers,
        )
        assert made.is_success, made.text
    request, calls = spans_of(receiver, "made")
    assert (request.name, request.kind) == ("POST /engine/v1/namespaces/{namespace}/tables", SERVER)
    assert (request.trace_id, request.parent_id) == (TRACE, PARENT)
    assert request.attributes == {
        "http.request.method": "POST",
        "http.route": "/engine/v1/namespaces/{namespace}/tables",
        "http.response.status_code": 200,
        "lakewarden.request_id": "made",
        "lakewarden.principal": "alice",
        "lakewarden.action": "table.create",
        "lakewarden.resource": "db.t",
        "lakewarden.outcome": "granted",
    }
    assert {each.trace_id for each in calls} == {TRACE} and {each.kind for each in calls} == {CLIENT}
    assert {"kms create", "storage create", "database write"} <= {each.name for each in calls}
    assert all(
        each.attributes.keys() == {"lakewarden.part", "lakewarden.operation", "lakewarden.outcome"}
        and 0 <= each.nanoseconds <= request.nanoseconds
        for each in calls
    )
    assert receiver.resource()["service.name"] == "lakewarden"
    assert b"canary" not in b"".join(body for _, body in receiver.bodies)


def test_a_refusal_is_a_span_with_its_rule(traced: Service, receiver: Collector) -> None:
    with traced.client(BOB) as bob:
        answer = bob.get(f"{traced.prefix}/namespaces/db/tables/t", headers={"X-Request-Id": "refused"})
        assert answer.status_code == 403
    request, _ = spans_of(receiver, "refused")
    assert request.attributes["lakewarden.rule"] == answer.json()["error"]["rule"]
    assert request.attributes["lakewarden.outcome"] == "refused" and not request.is_error


@pytest.mark.parametrize(
    "headers",
    [
        [("traceparent", "00-x-y-01")],
        [("traceparent", f"00-{'0' * 32}-{PARENT}-01")],
        [("traceparent", f"00-{TRACE}-{PARENT}-01"), ("traceparent", f"00-{'a' * 32}-{PARENT}-01")],
    ],
)
def test_a_parent_that_is_none_begins_a_trace(
    traced: Service, receiver: Collector, headers: list[tuple[str, str]]
) -> None:
    httpx.get(f"{traced.url}/livez", headers=[*headers, ("X-Request-Id", "alone")])
    request, _ = spans_of(receiver, "alone")
    assert request.parent_id == "" and request.trace_id not in (TRACE, "a" * 32, "0" * 32)


def test_no_token_and_no_literal_is_in_what_is_sent(traced: Service, receiver: Collector) -> None:
    """Requests that bring secrets in headers, names, queries and bodies."""
    token = traced.token("alice")
    with traced.client() as alice:
        alice.get(f"/v1/config?warehouse={token}", headers={"X-Secret": SECRET_HEADER})
        alice.get(f"{traced.prefix}/namespaces/{token}/tables/t")
        alice.post(f"{traced.prefix}/namespaces", json={"namespace": [f"s3://ann:{SECRET_HEADER}@b/c"]})
        alice.post("/admin/v1/policies/check", json={"password": SECRET_HEADER})
        alice.get("/livez", headers={"X-Request-Id": "last"})
    spans_of(receiver, "last")
    sent = b"".join(body for _, body in receiver.bodies)
    assert b"lakewarden.action" in sent
    assert SECRET_HEADER.encode() not in sent
    assert token.rpartition("_")[2].encode() not in sent


def test_a_request_has_a_bounded_number_of_spans(
    traced: Service, receiver: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    from catalog.http import tracing

    monkeypatch.setattr(tracing, "_MOST_CALLS", 3)
    with traced.client() as alice:
        alice.post(f"{traced.prefix}/namespaces", json={"namespace": ["db"]})
        new_table(
            httpx.Client(base_url=traced.url, headers={**alice.headers, "X-Request-Id": "many"}),
            traced.prefix,
            "db",
        )
    request, calls = spans_of(receiver, "many")
    assert len(calls) == 3 and request.attributes["lakewarden.calls_left_out"] > 0


def test_a_flood_without_tokens_sends_few_spans(
    traced: Service, receiver: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: requests of nobody, to fill the collector."""
    monkeypatch.setattr(service_log, "_AGAIN_S", 1e9)
    with traced.client(None) as nobody:
        for _ in range(boundary._STRANGERS_A_MINUTE + 30):
            assert nobody.get("/v1/config").status_code == 401
    with traced.client() as alice:
        alice.get("/v1/config", headers={"X-Request-Id": "last"})
    spans_of(receiver, "last")
    refused = [each for each in receiver.spans() if each.attributes.get("http.response.status_code") == 401]
    assert 0 < len(refused) <= boundary._STRANGERS_A_MINUTE
    known = {each.span_id for each in receiver.spans() if each.kind == SERVER}
    assert {each.parent_id for each in receiver.spans() if each.kind == CLIENT} <= known


def test_calls_of_other_threads_belong_to_the_request(traced: Service, receiver: Collector) -> None:
    def work() -> None:
        with outside_calls.outside_call(outside_calls.Part.STORAGE, "read"):
            pass

    tracing = outside_calls._tracer
    assert tracing is not None
    span = tracing.begin(())  # type: ignore[attr-defined]
    thread = threading.Thread(target=outside_calls.of_this_request(work))
    thread.start()
    thread.join()
    alone = threading.Thread(target=work)
    alone.start()
    alone.join()
    span.end("GET", "/x", {"request_id": "threads"})
    _, calls = spans_of(receiver, "threads")
    assert [each.name for each in calls] == ["storage read"]


def test_metrics_are_those_of_the_page(tmp_path: Path, receiver: Collector) -> None:
    overrides = {"TELEMETRY__METRICS": "true", "TELEMETRY__ENDPOINT": receiver.url}
    with open_service(tmp_path, **overrides) as service:
        with service.client() as alice:
            alice.post(f"{service.prefix}/namespaces", json={"namespace": ["db"]})
            assert encrypted_table(alice, "db").is_success

        def look() -> Mapping[str, Any] | None:
            found = receiver.metrics()
            return found[-1] if found and "lakewarden_commits_total" in found[-1] else None

        found = receiver.until(look)
    assert found.keys() <= FAMILIES.keys() and len(found) > 15
    for name, metric in found.items():
        kinds = {"counter": "sum", "gauge": "gauge", "histogram": "histogram"}
        assert metric.WhichOneof("data") == kinds[FAMILIES[name].kind], name
        for point in getattr(metric, metric.WhichOneof("data")).data_points:
            assert [each.key for each in point.attributes] == list(FAMILIES[name].labels)
    (commits,) = found["lakewarden_commits_total"].sum.data_points
    assert commits.as_double == 1 and found["lakewarden_commits_total"].sum.is_monotonic
    durations = found["lakewarden_request_duration_seconds"].histogram
    assert durations.aggregation_temporality == 2
    assert all(sum(each.bucket_counts) == each.count > 0 for each in durations.data_points)
    assert not receiver.spans()


def test_off_sends_and_imports_nothing(
    tmp_path: Path, receiver: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    telemetry = Telemetry(TelemetrySettings(), os.environ)
    telemetry.watch(lambda: pytest.fail("no snapshot is taken"))
    assert telemetry.tracing is None and outside_calls._tracer is None
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    telemetry = Telemetry(TelemetrySettings(traces=True, metrics=True), os.environ)
    telemetry.watch(lambda: pytest.fail("no snapshot is taken"))
    assert telemetry.tracing is None
    telemetry.close()
    assert receiver.bodies == []


def test_standard_variables_apply(
    tmp_path: Path, receiver: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={SECRET_HEADER}",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_SERVICE_NAME": "lake-prod",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=prod",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with open_service(tmp_path, TELEMETRY__TRACES="true") as service:
        httpx.get(f"{service.url}/livez", headers={"X-Request-Id": "one"})
        spans_of(receiver, "one")
    assert receiver.headers[0]["api-key"] == SECRET_HEADER
    assert receiver.headers[0]["Content-Encoding"] == "gzip"
    assert receiver.resource()["service.name"] == "lake-prod"
    assert receiver.resource()["deployment.environment"] == "prod"


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        ("OTEL_TRACES_EXPORTER", "console"),
        ("OTEL_PROPAGATORS", "b3"),
        ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
        ("OTEL_TRACES_SAMPLER_ARG", "2"),
        ("OTEL_TRACES_SAMPLER_ARG", "nan"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
    ],
)
def test_a_variable_that_would_be_ignored_is_refused(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(RequestInvalid) as caught:
        Telemetry(TelemetrySettings(traces=True), os.environ)
    assert caught.value.rule == "telemetry" and value not in caught.value.message
    assert outside_calls._tracer is None


@pytest.mark.nightly
@pytest.mark.parametrize("fault", ["it hangs", "it refuses", "nothing listens"])
def test_a_bad_collector_delays_and_fails_no_request(
    tmp_path: Path,
    receiver: Collector,
    fault: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Requests are answered while the collector holds every connection; the end of the service is bounded."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    monkeypatch.setattr("catalog.http.telemetry._CLOSING_S", 0.2)
    url = receiver.url
    if fault == "it hangs":
        receiver.hold.clear()
    elif fault == "it refuses":
        receiver.answer = 401
    else:
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            url = f"http://127.0.0.1:{free.getsockname()[1]}"
    overrides = {"TELEMETRY__TRACES": "true", "TELEMETRY__METRICS": "true", "TELEMETRY__ENDPOINT": url}
    with caplog.at_level(logging.WARNING), open_service(tmp_path, **overrides) as service:
        with service.client() as alice:
            assert all(alice.get("/v1/config").status_code == 200 for _ in range(30))
        if fault == "it refuses":
            receiver.until(lambda: _told(caplog) == 2)
            receiver.answer = 200
            receiver.until(lambda: "takes data again" in caplog.text)
        # Once for traces, and once for metrics; what is lost at the end is told again.
        assert _told(caplog) <= 2
    # The service is closed; a collector that hangs still holds what was sent.
    assert receiver.hold.is_set() is (fault != "it hangs")
    assert not re.search("Queue full|Failed to export", caplog.text)


def test_a_body_that_a_collector_sends_is_not_read(traced: Service, receiver: Collector) -> None:
    """Attack: answers without an end, which would fill the memory of the service."""
    receiver.is_endless = True
    for each in ("first", "second"):
        httpx.get(f"{traced.url}/livez", headers={"X-Request-Id": each})
        spans_of(receiver, each)
    receiver.until(lambda: receiver.endings >= 2)


def test_a_redirect_of_a_collector_is_told_and_not_followed(
    traced: Service, receiver: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answer = 307
    httpx.get(f"{traced.url}/livez")
    receiver.until(lambda: _told(caplog))
    assert {path for path, _ in receiver.bodies} == {"/v1/traces"}


def _told(caplog: pytest.LogCaptureFixture) -> int:
    return len([each for each in caplog.records if "does not take data" in each.getMessage()])


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.exporter.otlp.proto.http", None)
    with pytest.raises(RequestInvalid, match=r"lakewarden\[otel\]"):
        Telemetry(TelemetrySettings(metrics=True), {})


@pytest.mark.parametrize("endpoint", ["http://u:p@h:4318", "ftp://h", "http://h?k=v", "h:4318"])
def test_an_endpoint_has_no_credentials(endpoint: str) -> None:
    with pytest.raises(ValueError, match="endpoint"):
        TelemetrySettings(endpoint=endpoint)


_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "id", "type": "long", "required": False}],
}
