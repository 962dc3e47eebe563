"""What the service logs: one line a request, as text or JSON, and nothing secret."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from catalog.base import crash_points
from catalog.base.log_fields import fields
from catalog.http import boundary
from catalog.identity.refusals import ProviderUnavailable
from catalog.service import service_log
from catalog.service.service_log import Limit, Outages, configure
from catalog.settings.sections import LogSettings
from policy.errors import KmsUnavailable, StateUnavailable, StorageUnavailable
from tests.support.hooks import once_at
from tests.support.http_calls import new_table
from tests.support.lake import ALICE, BOB
from tests.support.service import Service, open_service

PATIENCE_S = 20.0
Lines = Callable[[], list[dict[str, Any]]]


@contextmanager
def logging_to(stream: io.StringIO, **settings: Any) -> Iterator[None]:
    """The process logs there, as the service does."""
    root, names = logging.getLogger(), ("", "lakewarden", "catalog")
    handlers, levels = root.handlers[:], [logging.getLogger(name).level for name in names]
    hooks = threading.excepthook, sys.unraisablehook
    configure(LogSettings(**settings), stream)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        logging.captureWarnings(False)
        threading.excepthook, sys.unraisablehook = hooks
        for name, level in zip(names, levels, strict=True):
            logging.getLogger(name).setLevel(level)


@pytest.fixture
def lines() -> Iterator[Lines]:
    """What was logged since, as JSON."""
    stream = io.StringIO()
    with logging_to(stream, format="json"):
        yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def of(lines: Lines, request_id: str, count: int = 1) -> list[dict[str, Any]]:
    """The lines of a request, which is logged when it has been answered."""
    return until(lambda: [each for each in lines() if each.get("request_id") == request_id], count)


def until(look: Callable[[], list[Any]], count: int) -> list[Any]:
    """What is found once there are so many."""
    deadline = time.monotonic() + PATIENCE_S
    while len(found := look()) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    return found


def test_a_request_is_one_line(served: Service, alice: httpx.Client, namespace: str, lines: Lines) -> None:
    new_table(alice, served.prefix, namespace)
    request_id = uuid4().hex
    alice.post(f"/engine/v1/tables/{namespace}/t/plan", json={}, headers={"X-Request-Id": request_id})
    (line,) = of(lines, request_id)
    assert datetime.fromisoformat(line.pop("time")).tzinfo is not None
    assert line.pop("duration_ms") >= 0
    assert line == {
        "level": "INFO",
        "logger": "lakewarden.http",
        "message": "request",
        "request_id": request_id,
        "principal": ALICE,
        "action": "table.plan",
        "resource": f"{namespace}.t",
        "method": "POST",
        "route": "/engine/v1/tables/{namespace}/{table}/plan",
        "status": 200,
        "outcome": "granted",
    }


@pytest.mark.parametrize(
    ("sent", "logged"),
    [("local-17/42", "local-17/42"), ("a b", None), ("x" * 129, None), ("lw\u00e9", None), ("", None)],
)
def test_a_query_of_an_engine_is_named_if_it_is_an_id(
    served: Service, alice: httpx.Client, lines: Lines, sent: str, logged: str | None
) -> None:
    request_id = uuid4().hex
    headers = {"X-Request-Id": request_id, "Lakewarden-Query": sent.encode("latin-1")}
    alice.get("/v1/config", headers=httpx.Headers(headers))
    (line,) = of(lines, request_id)
    assert line.get("query") == logged


def test_a_refusal_names_its_rule(served: Service, namespace: str, lines: Lines) -> None:
    request_id = uuid4().hex
    with served.client(BOB, "spark") as bob:
        bob.post(f"/engine/v1/tables/{namespace}/t/plan", json={}, headers={"X-Request-Id": request_id})
    (line,) = of(lines, request_id)
    assert (line["principal"], line["engine"], line["action"]) == (BOB, "spark", "table.plan")
    assert (line["outcome"], line["rule"], line["status"]) == ("refused", "policy-no-match", 403)


def test_an_unforeseen_error_is_told_by_type_and_place(
    served: Service, alice: httpx.Client, namespace: str, lines: Lines
) -> None:
    request_id = uuid4().hex

    def break_down() -> None:
        raise ZeroDivisionError("lw_secret")

    with crash_points.hooked(once_at("checked", break_down)):
        new_table(
            httpx.Client(base_url=served.url, headers={**alice.headers, "X-Request-Id": request_id}),
            served.prefix,
            namespace,
        )
    failed, request = of(lines, request_id, 2)
    assert (failed["level"], failed["error"]) == ("ERROR", "ZeroDivisionError")
    assert "break_down" in failed["places"]
    assert (request["level"], request["outcome"], request["status"]) == ("WARNING", "failed", 500)
    assert "lw_secret" not in json.dumps(lines())


def test_a_flood_without_tokens_does_not_fill_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    monkeypatch.setattr(boundary, "_STRANGERS_A_MINUTE", 5)
    monkeypatch.setattr(service_log, "_AGAIN_S", 1e9)
    with open_service(tmp_path) as service, service.client(None) as nobody, service.client() as alice:
        for _ in range(20):
            assert nobody.get("/v1/config").status_code == 401
        alice.get("/v1/config", headers={"X-Request-Id": "last"})
        of(lines, "last")
    assert len([each for each in lines() if each["message"] == "request"]) == 6


def test_lines_that_were_left_out_are_counted() -> None:
    now = [0.0]
    limit = Limit(2, lambda: now[0])
    assert [limit.admits() for _ in range(5)] == [0, 0, None, None, None]
    now[0] = 60.0
    assert [limit.admits() for _ in range(3)] == [3, 0, None]


@pytest.mark.parametrize("format", ["text", "json"])
def test_nothing_breaks_out_of_its_line_and_no_token_is_shown(format: str) -> None:
    stream, token = io.StringIO(), "lw_" + "0" * 32 + "_" + "s" * 43
    with logging_to(stream, format=format):
        log = logging.getLogger("lakewarden.test")
        log.info("a\nb %s", token, extra=fields(principal=f"x\n{token} y", path="s3://u:p@h/x"))
        try:
            raise ValueError(token)
        except ValueError:
            log.exception("it failed")
        logging.getLogger("botocore").info("not of ours")
        logging.getLogger("botocore").warning("of a library: %s", token)
    told = stream.getvalue()
    assert len(told.splitlines()) == 3
    assert "sss" not in told and "u:p@" not in told and "not of ours" not in told
    assert "ValueError" in told and "botocore" in told and "of a library" not in told


def test_a_task_whose_error_nobody_takes_is_told_by_type_and_place(lines: Lines) -> None:
    """asyncio shows the exception in its message."""

    async def fail() -> None:
        raise ValueError("s3://lake/secret")

    async def forget() -> None:
        task = asyncio.ensure_future(fail())
        await asyncio.wait([task])

    asyncio.run(forget())
    gc.collect()
    (line,) = lines()
    assert (line["logger"], line["level"], line["error"]) == ("asyncio", "ERROR", "ValueError")
    assert "fail" in line["places"] and "secret" not in json.dumps(line)


@pytest.mark.parametrize(
    "logger", ["uvicorn.error", "uvicorn.lakewarden", "urllib3.connectionpool", "py.warnings"]
)
def test_a_librarys_message_is_left_out(lines: Lines, logger: str) -> None:
    logging.getLogger(logger).error("GET /v1/secret broke: %r", ValueError("secret"))
    (line,) = lines()
    assert line["logger"] == logger and "test_http_service_log.py" in line["source"]
    assert "secret" not in json.dumps(line)


class _Broken:
    def __del__(self) -> None:
        raise ValueError("secret")


def _fail() -> None:
    raise ValueError("secret")


def _end_a_thread() -> None:
    thread = threading.Thread(target=_fail)
    thread.start()
    thread.join()


@pytest.mark.parametrize(("fail", "place"), [(_Broken, "__del__"), (_end_a_thread, "_fail")])
def test_an_error_that_nothing_handles_is_told_by_type_and_place(
    lines: Lines, capfd: pytest.CaptureFixture[str], fail: Callable[[], object], place: str
) -> None:
    fail()
    gc.collect()
    (line,) = lines()
    assert (line["level"], line["error"]) == ("ERROR", "ValueError") and place in line["places"]
    assert "secret" not in json.dumps(line) + "".join(capfd.readouterr())


def test_text_has_time_level_logger_message_and_fields() -> None:
    stream = io.StringIO()
    with logging_to(stream):
        logging.getLogger("lakewarden.test").warning("it is so", extra=fields(a=1, b="two words", c=None))
    time, rest = stream.getvalue().rstrip("\n").split(" ", 1)
    assert datetime.fromisoformat(time).tzinfo is not None
    assert rest == 'WARNING lakewarden.test it is so a=1 b="two words"'


def test_levels_below_the_least_are_left_out() -> None:
    stream = io.StringIO()
    with logging_to(stream, level="error"):
        logging.getLogger("lakewarden.test").warning("less")
        logging.getLogger("catalog.test").error("more")
    assert "less" not in stream.getvalue() and "more" in stream.getvalue()


def test_calls_are_logged_at_debug_by_operation_and_time(served: Service, namespace: str) -> None:
    stream = io.StringIO()
    with logging_to(stream, format="json", level="debug"), served.client() as alice:
        assert alice.get(f"{served.prefix}/namespaces/{namespace}").status_code == 200
        # A request is logged when it has been answered.
        until(lambda: [each for each in stream.getvalue().splitlines() if "lakewarden.http" in each], 1)
    found = [json.loads(each) for each in stream.getvalue().splitlines()]
    calls = [each for each in found if each["logger"] == "lakewarden.calls"]
    assert {each["message"] for each in calls} == {"call of the database"}
    assert all(each["outcome"] == "answered" and each["duration_ms"] >= 0 for each in calls)
    assert not any(each["logger"].startswith("sqlalchemy") for each in found)


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        (StateUnavailable, "database"),
        (KmsUnavailable, "KMS"),
        (StorageUnavailable, "storage"),
        (ProviderUnavailable, "identity provider"),
    ],
)
def test_an_outage_is_told_when_it_begins_lasts_and_ends(kind: Any, part: str, lines: Lines) -> None:
    now = [0.0]
    outages = Outages(lambda: now[0])
    for at in (0.0, 1.0, 59.0, 60.0):
        now[0] = at
        outages.ended("POST /a", kind("It does not answer."), succeeded=False)
    outages.ended("GET /b", None, succeeded=True)
    outages.ended("POST /a", None, succeeded=False)
    assert [each["message"] for each in lines()] == [f"the {part} does not answer"] * 2
    outages.ended("POST /a", None, succeeded=True)
    last = lines()[-1]
    assert (last["message"], last["requests_failed"]) == (f"the {part} answers again", 4)
    outages.ended("POST /a", None, succeeded=True)
    assert len(lines()) == 3


def test_an_outage_that_a_request_meets_is_told(
    served: Service, alice: httpx.Client, namespace: str, lines: Lines
) -> None:
    def fail() -> None:
        raise StorageUnavailable("The storage does not answer.")

    with crash_points.hooked(once_at("checked", fail)):
        assert new_table(alice, served.prefix, namespace).status_code == 503
    assert new_table(alice, served.prefix, namespace).status_code == 200
    told = until(lambda: [each["message"] for each in lines() if each["logger"] == "lakewarden.service"], 2)
    assert told == ["the storage does not answer", "the storage answers again"]
