"""The service as an ASGI application.

    /v1          Iceberg REST, for standard clients
    /engine/v1   the engine API
    /admin/v1    administration
    /kms/v1      Hadoop's KMS protocol, if enabled in the settings
    /console     pages for browsers, if the settings have an address for them
    /identity/v1 messages of identity providers about logouts, if an issuer in the settings sends them
    /livez       whether the process answers; needs no token, as the two below
    /readyz      what the catalog can serve now: reading, writing, encrypted tables
    /healthz     whether requests are decided, and what an operator has to look at
    /metrics     counters, for every user with a valid token
    /openapi.json  the description of all APIs, for every user with a valid token

Endpoints are synchronous and run in a thread pool, because they mostly wait for the database and storage: a
request in one thread (`catalog.http.threads`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Final, Literal

from fastapi import APIRouter, Depends, FastAPI, Request, Response, Security
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.telemetry import TelemetryConfig
from pydantic import Field
from sqlalchemy import literal, select

from catalog.db.engine import read
from catalog.http import (
    admin_keys,
    admin_kms_endpoint,
    admin_lake,
    admin_master_keys,
    admin_policies,
    admin_report,
    admin_service,
    admin_tables,
    admin_users,
    engine_routes,
    engine_snapshots,
    engine_views,
    errors,
    iceberg_credentials,
    iceberg_namespaces,
    iceberg_plans,
    iceberg_signing,
    iceberg_tables,
    iceberg_transactions,
    iceberg_views,
    identity_routes,
    kms_routes,
)
from catalog.http.auth import USER_SCHEME, MetricsOf, ServicesOf
from catalog.http.base_models import Answer
from catalog.http.boundary import Boundary
from catalog.http.metrics import Metrics
from catalog.http.metrics_text import CONTENT_TYPE, rendered
from catalog.http.operations import ERRORS, modelled
from catalog.http.route_table import RouteTable
from catalog.http.routing import Bodies, GuardedRoute
from catalog.http.tallies import Tally
from catalog.http.worker_states import WorkerStates
from catalog.service.archive_state import ARCHIVE_PROBLEM
from catalog.service.probes import ANSWER_S, Ability
from catalog.service.services import Services
from catalog.settings.catalog import Settings
from policy.errors import StateUnavailable

if TYPE_CHECKING:
    from catalog.http.tracing import Tracing

#: The framework would send bodies and exception messages to any service that the environment configures.
_NO_TELEMETRY: Final[TelemetryConfig] = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}
#: A check that begins with a request is overdue before the request stops waiting.
_SPARE_S: Final = 0.1
_ICEBERG: Final = (
    iceberg_namespaces.router,
    iceberg_tables.router,
    iceberg_plans.router,
    iceberg_transactions.router,
    iceberg_views.router,
)

#: Operations without a token.
open_router: Final = APIRouter(tags=["service"])
service_router: Final = APIRouter(
    tags=["service"], route_class=GuardedRoute, responses=ERRORS, dependencies=[Security(USER_SCHEME)]
)


async def _states(request: Request) -> WorkerStates | None:
    states: WorkerStates | None = request.app.state.states
    return states


StatesOf = Annotated[WorkerStates | None, Depends(_states)]


class Health(Answer):
    """The health of the service.

    Attributes:
        status: ``degraded`` if an operator has to act.
        problems: the problems; empty if there are none. They name no setting, table, path, user or host.
    """

    status: Literal["ok", "degraded"]
    problems: list[str] = Field(default_factory=list)


class Life(Answer):
    """The state of the process.

    Attributes:
        status: always ``alive``.
    """

    status: Literal["alive"] = "alive"


class Ready(Answer):
    """What the catalog can serve.

    Attributes:
        status: ``unavailable`` if something cannot be served.
        unavailable: what cannot be served: ``reading``, ``writing``, ``encrypted-tables``.
        problems: the reasons; they name no table, path or user.
    """

    status: Literal["ready", "unavailable"]
    unavailable: list[Ability] = Field(default_factory=list)
    problems: list[str] = Field(default_factory=list)


@open_router.get("/livez")
async def livez() -> Life:
    """Report that the process answers. No part is asked, so that an outage of a part restarts no process."""
    return Life()


@open_router.get(
    "/readyz",
    responses={503: {"model": Ready, "description": "Something cannot be served."}},
    response_model_exclude_defaults=True,
)
async def readyz(services: ServicesOf, response: Response) -> Ready:
    """Report what the catalog can serve now; needs no token.

    The status is 503 if reading, writing or encrypted tables cannot be served. An answer takes at most five
    seconds. Checks are made in the background, and their results are kept for some seconds.
    """
    # A request holds no thread while it waits, so that many of them stop no other request.
    if pending := [asyncio.wrap_future(each) for each in services.readiness.begin()]:
        await asyncio.wait(pending, timeout=ANSWER_S + _SPARE_S)
    report = services.readiness.report()
    if report.unavailable:
        response.status_code = 503
    status: Literal["ready", "unavailable"] = "unavailable" if report.unavailable else "ready"
    return Ready(status=status, unavailable=list(report.unavailable), problems=list(report.problems))


@open_router.get("/healthz", responses=modelled(503), response_model_exclude_defaults=True)
def healthz(services: ServicesOf, states: StatesOf) -> Health:
    """Report whether the service and its database answer, and whether it decides requests; needs no token.

    The status is 503 if no request would be decided: the host's clock is wrong, or the policies are too old.
    """
    with read(services.engine) as connection:
        connection.execute(select(literal(1)))
    services.clock.require()
    services.policies.current()
    problems = []
    if services.policies.problem is not None:
        problems.append("Newer policies are not in force. The service log has the reason.")
    if any(each.problem is not None for each in services.policies.sources.last):
        problems.append("A policy source cannot be synchronized. The service log has the reason.")
    if services.replicas.differences:
        # Without their names, which show strangers what is configured here.
        problems.append("Other replicas have different settings. The service log and /metrics name them.")
    if services.archive_state.is_failing:
        problems.append(ARCHIVE_PROBLEM)
    if states is not None:
        problems += states.problems()
    return Health(status="degraded" if problems else "ok", problems=problems)


@service_router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"description": "Prometheus' text format.", "content": {"text/plain": {}}}},
)
def show_metrics(metrics: MetricsOf, services: ServicesOf, states: StatesOf) -> Response:
    """Show counters and states of the service: any valid token. They name no table, user or path."""
    with suppress(StateUnavailable):
        # Loads newer policies if due, so that an idle process reports them too.
        services.policies.current()
    snapshot = metrics.snapshot(services)
    return Response(
        rendered(snapshot if states is None else states.merged(snapshot)), media_type=CONTENT_TYPE
    )


@service_router.get("/openapi.json", include_in_schema=False)
def describe(request: Request) -> JSONResponse:
    """Show the OpenAPI description: any valid token."""
    return JSONResponse(request.app.openapi())


_ROUTERS: Final = (
    iceberg_namespaces.config_router,
    engine_routes.bootstrap_router,
    engine_routes.router,
    engine_snapshots.router,
    engine_views.router,
    admin_tables.router,
    admin_keys.router,
    admin_master_keys.router,
    admin_kms_endpoint.router,
    admin_service.router,
    admin_users.router,
    admin_policies.router,
    admin_report.router,
    admin_lake.router,
    service_router,
    open_router,
)
_KMS_ROUTERS: Final = (kms_routes.router, kms_routes.handshake_router)


@dataclass(frozen=True)
class Shared:
    """What the workers of a service share; by default, this process serves alone.

    Attributes:
        connections: open connections, by address.
        bodies: bytes of request bodies, by user.
        states: the metrics of all workers; None if this process serves alone.
    """

    connections: Tally = field(default_factory=Tally)
    bodies: Tally = field(default_factory=Tally)
    states: WorkerStates | None = None


def create_app(services: Services, shared: Shared | None = None, tracing: Tracing | None = None) -> FastAPI:
    """Create the service for an open catalog.

    Args:
        services: the open catalog; the caller closes it afterwards.
        shared: what the workers of the service share.
        tracing: makes spans of requests; None to make none.
    """
    shared = shared or Shared()
    metrics = Metrics()
    # The framework would serve the description without a token, and pages with scripts of other servers.
    app = FastAPI(
        title="Lakewarden",
        version=version("lakewarden"),
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        telemetry=_NO_TELEMETRY,
        # A client that follows a redirect could send its token to another server.
        redirect_slashes=False,
    )
    app.state.services = services
    app.state.metrics = metrics
    http = services.settings.http
    app.state.states = shared.states
    app.state.bodies = Bodies(
        http.max_bodies_bytes, max(http.max_bodies_bytes // 2, http.max_body_bytes), shared.bodies
    )
    iceberg = (
        *_ICEBERG,
        *(() if services.credentials is None else (iceberg_credentials.router,)),
        *(() if services.signing is None else (iceberg_signing.router,)),
    )
    app.state.endpoints = tuple(sorted(_endpoints(iceberg)))
    optional = (
        *(_KMS_ROUTERS if services.settings.kms_endpoint.enabled else ()),
        *((identity_routes.router,) if services.settings.identity.takes_logouts else ()),
        *_console_routers(services.settings),
    )
    for router in (*_ROUTERS, *iceberg, *optional):
        # `include_router` would build every operation once more, at the first request of each service.
        app.router.routes.extend(router.routes)
    errors.install(app, _answer_without_route(services.settings))
    app.add_middleware(RouteTable, routes=app.router.routes)
    app.add_middleware(Boundary, metrics=metrics, tracing=tracing)
    return app


def _console_routers(settings: Settings) -> Sequence[APIRouter]:
    if settings.console.url is None:
        return ()
    # Templates are only read where there are pages.
    from catalog.http.console.app import ROUTERS

    return ROUTERS


def _answer_without_route(settings: Settings) -> errors.AnswerToError:
    """Return what answers requests that no route serves."""
    if settings.console.url is None:
        return errors.refusal
    from catalog.http.console.routes import answer_without_route

    return answer_without_route


def _endpoints(routers: Iterable[APIRouter]) -> Iterator[str]:
    """Return Iceberg operations as `/v1/config` lists them."""
    for router in routers:
        for route in router.routes:
            assert isinstance(route, GuardedRoute)
            # Clients compare whole paths, and the framework allows no dash in a parameter.
            path = route.path.replace("{plan_id}", "{plan-id}")
            yield from (f"{method} {path}" for method in sorted(route.methods or ()))
