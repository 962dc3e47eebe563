"""A request keeps to one thread after its body was read, and no step of it waits for the event loop there."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.dependencies.models import Dependant

from catalog.http import endpoint_calls, threads
from catalog.http.app import create_app
from catalog.http.routing import GuardedRoute
from catalog.http.threads import in_one_thread, in_thread, threaded
from tests.support.lake import ALICE, open_lake
from tests.support.service import open_service


def test_no_dependency_of_a_route_changes_the_thread(tmp_path: Path) -> None:
    """The framework runs functions that are no coroutines in another thread, from the event loop alone."""
    with open_lake(tmp_path) as lake:
        routes = [each for each in create_app(lake.services).routes if isinstance(each, GuardedRoute)]
    calls = {call for route in routes for call in _calls(route.dependant)}
    assert len(calls) > 100
    assert {call for call in calls if not inspect.iscoroutinefunction(call)} == set()


def _calls(dependant: Dependant) -> Iterator[object]:
    call = dependant.call
    yield call if inspect.isroutine(call) else type(call).__call__
    for each in dependant.dependencies:
        yield from _calls(each)


def test_no_body_is_validated_in_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: hold up all requests by a large body with an idempotency key, whose request can wait there."""
    seen: list[bool] = []
    real = endpoint_calls.request_body_to_args

    async def watched(*given: Any) -> Any:
        seen.append(threads._is_event_loop())
        return await real(*given)

    monkeypatch.setattr(endpoint_calls, "request_body_to_args", watched)
    with open_service(tmp_path) as service, service.client(ALICE) as client:
        for headers in ({}, {"Idempotency-Key": "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"}):
            body = {"namespace": [f"n{len(headers)}"]}
            answer = client.post(f"{service.prefix}/namespaces", json=body, headers=headers)
            assert answer.status_code == 200, answer.text
    assert seen == [False, False]


def test_steps_run_in_one_thread_and_see_their_errors() -> None:
    def place() -> int:
        return threading.get_ident()

    async def steps() -> set[int]:
        with pytest.raises(ZeroDivisionError):
            await in_thread(lambda: 1 // 0)
        return {await in_thread(place), await threaded(place)(), place(), await in_one_thread(nested)}

    async def nested() -> int:
        return await in_thread(place)

    async def outside() -> tuple[set[int], int]:
        return await in_one_thread(steps), await in_thread(place)

    places, _ = asyncio.run(outside())
    assert len(places) == 1
    assert places != {threading.get_ident()}


def test_a_step_that_waits_for_the_event_loop_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="waits for the event loop"):
        asyncio.run(in_one_thread(lambda: asyncio.sleep(0)))
