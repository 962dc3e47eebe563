"""Runs the service with uvicorn, until a signal stops it: in this process, or in workers.

- The listening socket is opened first: if the port is in use, our error is raised before anything is served.
- On SIGTERM or SIGINT, requests in progress are finished, for a bounded time. Then `serve` returns, so that
  its caller can close the catalog.
- Our own boundary logs requests, by route and status; uvicorn's access log would show addresses.
- `catalog.http.connections` limits connections, and the time and size of requests. There is a file descriptor
  for each connection that can be open, so that accepting never fails for lack of one.
"""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import math
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, Final, cast

import uvicorn
from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool

from catalog.audit.formats import LineFormat
from catalog.audit.stream import Exports
from catalog.base.log_fields import fields
from catalog.http.app import Shared, create_app
from catalog.http.connections import MAX_LEAVING, BoundedProtocol, Connections
from catalog.http.tallies import Tally
from catalog.http.telemetry import Telemetry
from catalog.http.threads import provide_threads
from catalog.http.tls import Certificate, Handshake
from catalog.http.worker_states import Publishing, WorkerStates
from catalog.http.workers import Supervisor, Worker
from catalog.service.audit_archive import ArchiveSchedule
from catalog.service.policy_sync import PolicySync
from catalog.service.replicas import LOOK_S, Replicas
from catalog.service.services import Services
from catalog.settings.catalog import Settings
from catalog.settings.sections import HttpSettings
from policy.errors import RequestInvalid, StateUnavailable

_log: Final = logging.getLogger("lakewarden.service")

_STOP_WAIT_S: Final = 30
#: Connections that the kernel accepts in advance; the event loop opens as many in one round.
_BACKLOG: Final = 128
#: Connections that a worker opens in one round, so that it leaves others to workers that have time.
_ROUND_OF_WORKER: Final = 1
#: File descriptors for everything but connections: the database, storage, the KMS, the audit log.
_OTHER_FILES: Final = 256
_LOOPBACK: Final = "127.0.0.1"
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def serve(settings: Settings, services: Services) -> None:
    """Serve until a signal stops the process; print one line with the address.

    Args:
        settings: the address to listen on.
        services: the open catalog; the caller closes it afterwards.

    Raises:
        RequestInvalid: the address cannot be listened on, the process cannot open enough files, or
            telemetry cannot be sent as the settings and the environment say.
        StateUnavailable: the database does not answer.
    """
    reserve_descriptors(settings.http.max_connections)
    with closing(listen(settings.http)) as listener, _telemetry(settings) as telemetry:
        _say(settings, listener)
        with _signals_end_quietly(), _background_work(services):
            # Objects that exist now stay. Scanning them in every garbage collection would delay plans.
            gc.freeze()
            about = _about(settings, listener)
            _log.info("service started", extra=about)
            make_server(services, telemetry=telemetry).run(sockets=[listener])
            _log.info("service stopped", extra=about)


def supervise(settings: Settings, run: Callable[[Worker], int]) -> int:
    """Serve in worker processes until a signal stops this one; return the exit code.

    Args:
        settings: the address, and the number of workers.
        run: opens the catalog in a worker process and calls `serve_worker`; returns the exit code.

    Raises:
        RequestInvalid: as `serve`.
    """
    reserve_descriptors(settings.http.max_connections)
    with (
        closing(listen(settings.http)) as listener,
        TemporaryDirectory(prefix="lakewarden-") as directory,
    ):
        supervisor = Supervisor(run, listener, settings.http.workers, Path(directory))
        about = _about(settings, listener)

        def begun() -> None:
            _say(settings, listener)
            _log.info("service started", extra=about)

        # What is imported now is shared by all workers.
        gc.freeze()
        code = supervisor.run(begun)
        if code == 0:
            _log.info("service stopped", extra=about)
        return code


def serve_worker(worker: Worker, services: Services) -> None:
    """Serve in a worker process until a signal stops it.

    Args:
        worker: what the supervisor gave.
        services: the open catalog, opened in this process; the caller closes it afterwards.

    Raises:
        StateUnavailable: the database does not answer.
    """
    states = WorkerStates(worker.directory, worker.number, worker.workers)
    shared = Shared(Tally(worker.connections, worker.number), Tally(worker.bodies, worker.number), states)
    services.engine_keys.nonces.share(worker.nonces, worker.number)
    # Until the process ends: the supervisor repeats its signal, also while the catalog is closed.
    _ignore_signals()
    with ExitStack() as stack:
        if worker.number == 0:
            stack.enter_context(_background_work(services, worker.directory / "exports.json"))
        telemetry = stack.enter_context(_telemetry(services.settings))
        gc.freeze()
        server = make_server(services, shared, worker.ready, telemetry)
        app: FastAPI = server.config.app  # type: ignore[assignment]

        def publish() -> None:
            with suppress(StateUnavailable):
                # An idle worker loads newer policies too.
                services.policies.current()
            states.publish(app.state.metrics.snapshot(services))

        stack.enter_context(closing(Publishing(publish)))
        server.run(sockets=[worker.listener])


@contextmanager
def _background_work(services: Services, positions: Path | None = None) -> Iterator[None]:
    """Synchronize policies, write the export files of the audit log, and archive it: in one process."""
    audit = services.settings.audit
    files = Exports(
        services.engine, audit.stream_file, audit.checkpoint_file, positions, LineFormat(audit.stream_format)
    )
    with closing(files), closing(ArchiveSchedule(services)):
        with closing(PolicySync(services)):
            yield
        # Closing the audit log writes counted records, which have to reach the export files.
        services.audit.close()


def _say(settings: Settings, listener: socket.socket) -> None:
    print(f"Lakewarden serves {settings.catalog.name!r} at {_shown(settings, listener)}", flush=True)


def _about(settings: Settings, listener: socket.socket) -> dict[str, Any]:
    address = _shown(settings, listener)
    return fields(catalog=settings.catalog.name, address=address, version=version("lakewarden"))


@contextmanager
def served(services: Services) -> Iterator[str]:
    """Serve on a free port of the loopback interface, in a thread, for as long as the block lasts.

    Args:
        services: the open catalog; the caller closes it afterwards.

    Yields:
        the address.

    Raises:
        RequestInvalid: no address can be listened on.
    """
    with (
        closing(listen(HttpSettings(host=_LOOPBACK, port=0))) as listener,
        _telemetry(services.settings) as telemetry,
    ):
        server = make_server(services, telemetry=telemetry)
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listener]}, name="lakewarden", daemon=True
        )
        thread.start()
        try:
            yield _shown(services.settings, listener)
        finally:
            server.should_exit = True
            thread.join(_STOP_WAIT_S)


def listen(http: HttpSettings) -> socket.socket:
    """Open a listening socket.

    Raises:
        RequestInvalid: the address cannot be listened on, or the certificate cannot be used.
    """
    if http.tls is not None:
        Certificate(http.tls)
    try:
        found = socket.getaddrinfo(http.host, http.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        return _listening(*found[0])
    except OSError as error:
        raise RequestInvalid(
            f"The service cannot listen on {http.host} port {http.port}: {error.strerror}.",
            rule="listen",
            hint="Change `http.host` or `http.port`, or stop what uses the port.",
        ) from error


def _listening(family: int, kind: int, protocol: int, _: str, address: tuple[object, ...]) -> socket.socket:
    """Open a listening socket that names its protocol.

    Accepted connections inherit the protocol, and asyncio sets TCP_NODELAY only with it. Otherwise each
    answer waits about 40 ms for the client's delayed acknowledgement.
    """
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """Return the address of a listening socket."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    return f"{scheme}://{shown}:{port}"


def _shown(settings: Settings, listener: socket.socket) -> str:
    return url_of(listener, "http" if settings.http.tls is None else "https")


def reserve_descriptors(connections: int) -> None:
    """Raise the process's soft limit of open files to the number that the connections need.

    Raises:
        RequestInvalid: the hard limit is lower.
    """
    needed = connections + MAX_LEAVING + _BACKLOG + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise RequestInvalid(
            f"{connections} connections need {needed} open files, but the process can open {hard}.",
            rule="open-files",
            hint="Raise the hard limit of open files (`ulimit -Hn`), or lower `http.max_connections`.",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _telemetry(settings: Settings) -> Telemetry:
    return Telemetry(settings.telemetry, os.environ)


def make_server(
    services: Services,
    shared: Shared | None = None,
    on_ready: Callable[[], None] | None = None,
    telemetry: Telemetry | None = None,
) -> uvicorn.Server:
    """Create a server that is ready to run on a listening socket.

    Args:
        services: the open catalog.
        shared: what the workers of the service share; None if this process serves alone.
        on_ready: called when connections are accepted.
        telemetry: what is sent of this process; None to send nothing.
    """
    alone = shared is None
    shared = shared or Shared()
    app = create_app(services, shared, None if telemetry is None else telemetry.tracing)
    if telemetry is not None:
        telemetry.watch(lambda: app.state.metrics.snapshot(services))
    connections = Connections(services.settings.http, app.state.metrics, opened=shared.connections)
    return _Server(
        uvicorn.Config(
            app,
            http=_protocol_of(connections),
            loop="asyncio",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            backlog=_BACKLOG if alone else _ROUND_OF_WORKER,
            timeout_graceful_shutdown=_STOP_WAIT_S,
            callback_notify=partial(run_in_threadpool, services.replicas.look),
            timeout_notify=math.ceil(LOOK_S),
        ),
        connections,
        services.replicas,
        on_ready,
    )


def _protocol_of(connections: Connections) -> type[asyncio.Protocol]:
    """Return the factory of the protocol of a connection, which uvicorn calls as the class of one."""
    tls = connections.http.tls
    certificate = None if tls is None else Certificate(tls)

    def protocol(**given: Any) -> asyncio.Protocol:
        following = partial(BoundedProtocol, **given, connections=connections)
        return following() if certificate is None else Handshake(certificate, connections, following)

    return cast("type[asyncio.Protocol]", protocol)


class _Server(uvicorn.Server):
    """uvicorn's server, whose event loop counts failures to accept instead of logging each.

    It looks for replicas with other settings, and removes itself from the list of replicas at the end.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        connections: Connections,
        replicas: Replicas,
        on_ready: Callable[[], None] | None,
    ) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._connections = connections
        self._replicas = replicas

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        asyncio.get_running_loop().set_exception_handler(self._connections.on_loop_error)
        provide_threads()
        await super().startup(sockets)
        for each in sockets or ():
            # The event loop makes the kernel's queue as short as its rounds.
            each.listen(_BACKLOG)
        if self._on_ready is not None:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish the requests under way."""
        await super().shutdown(sockets)
        await run_in_threadpool(self._replicas.leave)


@contextmanager
def _signals_end_quietly() -> Iterator[None]:
    """Ignore the stopping signal when uvicorn raises it again at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = _ignore_signals()
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _ignore_signals() -> dict[signal.Signals, Any]:
    """Ignore the stopping signals where uvicorn does not handle them; return the handlers before."""
    return {each: signal.signal(each, _ignored) for each in _SIGNALS}


def _ignored(number: int, frame: FrameType | None) -> None:
    """Do nothing."""
