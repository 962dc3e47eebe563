"""Runs the steps of a request in one thread of the pool.

Endpoints wait for the database and storage, so they run in threads. Each change of thread costs CPU time. So
from the moment when its body was read, a request keeps to one thread: `in_one_thread` runs a coroutine there,
whose steps that would change the thread run at once (`in_thread`).

The pool is the event loop's own (`provide_threads`): a change of thread takes fewer turns of the
loop there than with the framework's `run_in_threadpool`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, wraps
from typing import Any, Final, ParamSpec, TypeVar

#: How many requests run at a time.
_THREADS: Final = 40

_Result = TypeVar("_Result")
_Given = ParamSpec("_Given")


def provide_threads() -> None:
    """Give the running event loop the threads of requests."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "lakewarden-request"))


async def in_thread(
    function: Callable[_Given, _Result], *args: _Given.args, **named: _Given.kwargs
) -> _Result:
    """Run a function that waits: at once in a thread of the pool, else in such a thread."""
    if not _is_event_loop():
        return function(*args, **named)
    return await _in_pool(partial(function, *args, **named))


async def in_one_thread(make: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
    """Run a coroutine in a thread of the pool; it must not wait for the event loop.

    Args:
        make: makes the coroutine.
    """
    if not _is_event_loop():
        return await make()
    return await _in_pool(partial(_finished, make))


def threaded(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Return an endpoint as a coroutine that runs it by `in_thread`; the framework would always change the
    thread.
    """
    if inspect.iscoroutinefunction(endpoint):
        return endpoint

    @wraps(endpoint)
    async def run(**values: Any) -> Any:
        return await in_thread(partial(endpoint, **values))

    return run


async def _in_pool(function: Callable[[], _Result]) -> _Result:
    return await asyncio.get_running_loop().run_in_executor(None, copy_context().run, function)


def _finished(make: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
    coroutine = make()
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: _Result = end.value
        return result
    coroutine.close()
    raise RuntimeError("a request waits for the event loop in a thread of the pool")


def _is_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
