"""Hadoop's KMS protocol, for standard Hadoop and ORC clients; disabled unless `kms_endpoint.enabled` is set.

`catalog.kms_server.identity` identifies the caller; `catalog.kms_server.endpoint` decides each use of a key.
A handshake (`OPTIONS`) is never refused: standard clients make one before their first call, and ORC would
show masks after a refusal.

Not supported: reading key material, key material of the caller, deleting keys, delegation tokens over HTTP
(an operator issues them), impersonation.

Source: Hadoop 3.4.3, "Hadoop KMS", "KMS HTTP REST API".
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request, Response, Security
from pydantic import Field

from catalog.authorization.authorizer import Caller
from catalog.http import kms_models as models
from catalog.http.auth import USER_SCHEME, CallerOf, ServicesOf, request_id_of
from catalog.http.operations import ERRORS
from catalog.http.routing import GuardedRoute, address_of
from catalog.kms_server.endpoint import MAX_BATCH, version_of
from catalog.kms_server.identity import COOKIE, Visit
from catalog.kms_server.names import VersionName, key_name
from policy.errors import NotAuthenticated

_MAX_NAMES: Final = 100

Document = dict[str, Any]
Batch = Annotated[list[models.BatchItem], Field(min_length=1, max_length=MAX_BATCH)]


class KmsEndpointRoute(GuardedRoute):
    """A route for callers that `CallerIdentification` identifies."""

    lists = frozenset({"key"})

    def _caller(self, request: Request) -> Caller:
        services = request.app.state.services
        visit, request_id = _visit(request), request_id_of(request)
        try:
            return Caller(services.identification.principal(visit), None, request_id)
        except NotAuthenticated as refusal:
            services.authorizer.turned_away(visit.address, request_id, refusal)
            raise


handshake_router: Final = APIRouter(prefix="/kms/v1", tags=["kms"], responses={400: ERRORS[400]})
router: Final = APIRouter(
    prefix="/kms/v1",
    route_class=KmsEndpointRoute,
    tags=["kms"],
    responses=ERRORS,
    dependencies=[Security(USER_SCHEME)],
)


@handshake_router.options("/{path:path}", response_class=Response)
def shake_hands(path: str, request: Request, services: ServicesOf) -> Response:
    """Answer the handshake of standard clients; users whose `user.name` is accepted get a cookie."""
    answer = Response()
    cookie = services.identification.greet(_visit(request))
    if cookie is not None:
        # Not `set_cookie`: it escapes the value, and Hadoop's clients do not unescape.
        answer.headers["Set-Cookie"] = f'{COOKIE}="{cookie}"; Path=/kms; HttpOnly; SameSite=Strict'
    return answer


@router.get("/keys/names")
def list_names(caller: CallerOf, services: ServicesOf) -> list[str]:
    """List the names of the keys that the caller has any permission on."""
    return services.kms_endpoint.names(caller)


@router.get("/keys/metadata")
def list_metadata(
    caller: CallerOf,
    services: ServicesOf,
    key: Annotated[list[str], Query(min_length=1, max_length=_MAX_NAMES)],
) -> list[Document]:
    """Show the metadata of several keys, in order: any permission on each of them."""
    return [models.metadata_of(services.kms_endpoint.metadata(caller, name)) for name in key]


@router.post("/keys", status_code=201)
def create_key(body: models.CreateKey, caller: CallerOf, services: ServicesOf, answer: Response) -> Document:
    """Create a key: `rotate` on it."""
    key = services.kms_endpoint.create(caller, body.to_spec())
    answer.headers["Location"] = f"/kms/v1/key/{key.name}"
    return models.version_of(key.current)


@router.get("/key/{name}")
@router.get("/key/{name}/_metadata")
def show_metadata(name: str, caller: CallerOf, services: ServicesOf) -> Document:
    """Show the metadata of a key: any permission on it. Empty if there is none."""
    return models.metadata_of(services.kms_endpoint.metadata(caller, name))


@router.get("/key/{name}/_currentversion")
def show_current_version(name: str, caller: CallerOf, services: ServicesOf) -> Document:
    """Show the name of the current version: any permission on the key. Its material is never sent."""
    key = services.kms_endpoint.metadata(caller, name)
    return models.version_of(key.current if key else None)


@router.get("/key/{name}/_versions")
def list_versions(name: str, caller: CallerOf, services: ServicesOf) -> list[Document]:
    """List the names of all versions: any permission on the key. Their material is never sent."""
    key = services.kms_endpoint.metadata(caller, name)
    versions = range(key.versions if key else 0)
    return [models.version_of(VersionName(name, each)) for each in versions]


@router.get("/keyversion/{version_name}")
def show_version(version_name: str, caller: CallerOf, services: ServicesOf) -> Document:
    """Show the name of a version: any permission on its key. Its material is never sent."""
    version = VersionName.parse(version_name)
    key = services.kms_endpoint.metadata(caller, version.key)
    return models.version_of(version_of(key, version) if key else None)


@router.post("/key/{name}")
def roll_key(name: str, body: models.RollKey, caller: CallerOf, services: ServicesOf) -> Document:
    """Create a new version of a key: `rotate` on it. Data under the older versions stays readable."""
    models.refuse_material(body.material)
    return models.version_of(services.kms_endpoint.roll(caller, name).current)


@router.post("/key/{name}/_invalidatecache", response_class=Response)
def invalidate_cache(name: str, caller: CallerOf, services: ServicesOf) -> Response:
    """Do nothing: there is no cache. Needs `rotate` on the key. Standard clients call it after each roll."""
    services.kms_endpoint.invalidate(caller, name)
    return Response()


@router.get("/key/{name}/_eek")
def generate_keys(
    name: str,
    caller: CallerOf,
    services: ServicesOf,
    eek_op: Annotated[Literal["generate"], Query()],
    num_keys: Annotated[int, Query(ge=1, le=MAX_BATCH)] = 1,
) -> list[Document]:
    """Generate encrypted keys: `use` on the key."""
    return models.encrypted_of(services.kms_endpoint.generate(caller, name, num_keys))


@router.post("/keyversion/{version_name}/_eek")
def use_encrypted_key(
    version_name: str,
    body: models.EncryptedMaterial,
    caller: CallerOf,
    services: ServicesOf,
    eek_op: Annotated[Literal["decrypt", "reencrypt"], Query()],
) -> Document:
    """Decrypt a key, `release`; or encrypt it again under the current version, `use`."""
    encrypted = body.to_encrypted(version_name)
    if eek_op == "decrypt":
        return models.decrypted_of(encrypted.version, services.kms_endpoint.decrypt(caller, encrypted))
    (anew,) = models.encrypted_of(services.kms_endpoint.reencrypt(caller, encrypted.version.key, [encrypted]))
    return anew


@router.post("/key/{name}/_reencryptbatch")
def reencrypt_keys(name: str, body: Batch, caller: CallerOf, services: ServicesOf) -> list[Document]:
    """Encrypt several keys again under the current version: `use` on their key."""
    items = [each.to_encrypted() for each in body]
    return models.encrypted_of(services.kms_endpoint.reencrypt(caller, key_name(name), items))


@router.post("/kek/_unwrap")
def unwrap_kek(body: models.WrappedKek, caller: CallerOf, services: ServicesOf) -> models.UnwrappedKek:
    """Unwrap a key of Parquet files: SELECT on each column that it decrypts, `release` on its master key."""
    return models.UnwrappedKek.of(services.parquet_keys.unwrap(caller, body.master_key_id, body.wrapped_kek))


def _visit(request: Request) -> Visit:
    return Visit(
        request.headers,
        request.query_params.multi_items(),
        request.cookies.get(COOKIE),
        address_of(request),
        request.scope["http_version"],
    )
