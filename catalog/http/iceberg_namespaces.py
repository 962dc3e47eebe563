"""Iceberg REST: configuration and namespaces.

Source: Iceberg REST catalog specification, `/v1/config` and `/v1/{prefix}/namespaces`.
"""

from __future__ import annotations

from urllib.parse import quote

from fastapi import APIRouter, Depends, Request, Response, Security

from catalog.base.existence import no_namespace
from catalog.base.identifiers import namespace_of
from catalog.http.auth import ENGINE_SCHEME, USER_SCHEME, CallerOf, ServicesOf
from catalog.http.bodies import LEVEL_SEPARATOR, namespace_from_path
from catalog.http.content_codings import compressible
from catalog.http.errors import NoSuchWarehouse
from catalog.http.iceberg_models import (
    CatalogConfig,
    CreateNamespace,
    NamespaceAnswer,
    NamespaceChange,
    NamespaceList,
    UpdateNamespace,
)
from catalog.http.idempotency import OnceOf
from catalog.http.operations import ERRORS, NO_CONTENT
from catalog.http.paging import PagingOf
from catalog.http.routing import IcebergRoute
from catalog.http.table_answers import PLANNING_MODE
from catalog.service.services import Services
from catalog.settings.catalog import Settings
from policy.errors import LocationInvalid
from policy.location.location import Location

_PREFIXED = "/v1/{prefix}"
#: Where a client gets tokens, in the properties of a catalog (Iceberg, `OAuth2Properties`).
_OAUTH2_SERVER_URI = "oauth2-server-uri"


async def check_prefix(prefix: str, services: ServicesOf) -> None:
    """Check that the prefix is the catalog's name, as `/v1/config` returns it."""
    if prefix != services.settings.catalog.name:
        raise NoSuchWarehouse(
            "The address has a prefix that this catalog does not serve.",
            rule="prefix",
            hint="Use the prefix in the answer of /v1/config.",
        )


config_router = APIRouter(
    prefix="/v1",
    route_class=IcebergRoute,
    tags=["iceberg"],
    responses=ERRORS,
    dependencies=[Security(USER_SCHEME), Security(ENGINE_SCHEME)],
)
router = APIRouter(
    prefix=_PREFIXED,
    route_class=IcebergRoute,
    tags=["iceberg"],
    responses=ERRORS,
    dependencies=[Depends(check_prefix), Security(USER_SCHEME), Security(ENGINE_SCHEME)],
)


@config_router.get("/config")
@compressible
def config(request: Request, services: ServicesOf, warehouse: str | None = None) -> CatalogConfig:
    """Return the client configuration: the prefix, and the operations that are served."""
    if warehouse is not None and not _is_ours(services, warehouse):
        raise NoSuchWarehouse(
            "The catalog does not serve this warehouse.",
            rule="warehouse",
            hint=f"Leave `warehouse` out, or give the name of the catalog: {services.settings.catalog.name}.",
        )
    overrides = {"prefix": quote(services.settings.catalog.name, safe="")}
    return CatalogConfig(
        defaults=_defaults(services.settings),
        overrides=overrides,
        endpoints=list(request.app.state.endpoints),
        # ISO 8601, in whole seconds.
        idempotency_key_lifetime=f"PT{services.settings.http.idempotency_lifetime_s}S",
    )


@router.get("/namespaces")
@compressible
def list_namespaces(
    caller: CallerOf,
    services: ServicesOf,
    paging: PagingOf,
    parent: str | None = None,
) -> NamespaceList:
    """List the namespaces directly below `parent` in which the caller has any permission.

    With `pageToken`, the answer is one page.
    """
    below = namespace_of(parent.split(LEVEL_SEPARATOR)) if parent else ()
    page = services.namespaces.children_page(caller, below, paging.wanted)
    return NamespaceList(
        namespaces=[list(each) for each in page.entries], next_page_token=paging.next_token(page.following)
    )


@router.post("/namespaces")
def create_namespace(
    body: CreateNamespace, caller: CallerOf, services: ServicesOf, once: OnceOf
) -> NamespaceAnswer:
    """Create a namespace: CREATE on it, and RWStorage on its location if one is given."""
    namespace = namespace_of(body.namespace)
    once(
        lambda: services.namespaces.create(caller, namespace, body.properties),
        lambda kept: services.repeats.namespace(caller, "namespace.create", namespace, kept, body.properties),
    )
    return NamespaceAnswer(namespace=list(namespace), properties=body.properties)


@router.get("/namespaces/{namespace}")
@compressible
def load_namespace(namespace: str, caller: CallerOf, services: ServicesOf) -> NamespaceAnswer:
    """Return the properties of a namespace; needs any permission in it."""
    name = namespace_from_path(namespace)
    return NamespaceAnswer(namespace=list(name), properties=services.namespaces.load(caller, name))


@router.head("/namespaces/{namespace}", status_code=NO_CONTENT)
def namespace_exists(namespace: str, caller: CallerOf, services: ServicesOf) -> Response:
    """Check that a namespace exists; needs any permission in it."""
    name = namespace_from_path(namespace)
    if not services.namespaces.exists(caller, name):
        raise no_namespace(name)
    return Response(status_code=NO_CONTENT)


@router.post("/namespaces/{namespace}/properties")
def update_namespace(
    namespace: str, body: UpdateNamespace, caller: CallerOf, services: ServicesOf, once: OnceOf
) -> NamespaceChange:
    """Set and remove properties: ALTER on the namespace, and RWStorage on a new location."""
    name = namespace_from_path(namespace)
    updated, removed, missing = once(
        lambda: services.namespaces.update(caller, name, body.removals, body.updates),
        lambda kept: services.repeats.updated(caller, name, kept, body.removals, body.updates),
    )
    return NamespaceChange(updated=updated, removed=removed, missing=missing)


@router.delete("/namespaces/{namespace}", status_code=NO_CONTENT)
def drop_namespace(namespace: str, caller: CallerOf, services: ServicesOf, once: OnceOf) -> Response:
    """Drop an empty namespace: DROP on it."""
    name = namespace_from_path(namespace)
    once(
        lambda: services.namespaces.drop(caller, name),
        lambda kept: services.repeats.namespace(caller, "namespace.drop", name, kept),
    )
    return Response(status_code=NO_CONTENT)


def _defaults(settings: Settings) -> dict[str, str]:
    """Return the properties that clients take where they have none of their own."""
    defaults: dict[str, str] = {}
    # Planning by clients is their own default.
    if settings.planning.mode != "client":
        defaults[PLANNING_MODE] = settings.planning.mode
    if settings.identity.oauth2_server_uri is not None:
        defaults[_OAUTH2_SERVER_URI] = settings.identity.oauth2_server_uri
    return defaults


def _is_ours(services: Services, warehouse: str) -> bool:
    """Return whether a warehouse is this catalog, by its name or by the location of its warehouse."""
    if warehouse == services.settings.catalog.name:
        return True
    try:
        return Location.parse(warehouse) == Location.parse(services.settings.warehouse)
    except LocationInvalid:
        return False
