"""Administers the KMS endpoint's keys, for operations that Hadoop's protocol does not have.

Policies on the key `door/NAME` decide.
"""

from __future__ import annotations

from fastapi import APIRouter, Security

from catalog.http.auth import USER_SCHEME, CallerOf, ServicesOf
from catalog.http.base_models import Answer, OwnBody
from catalog.http.operations import ERRORS
from catalog.http.routing import GuardedRoute
from catalog.kms_server.store import EndpointKey

router = APIRouter(
    prefix="/admin/v1/door-keys",
    route_class=GuardedRoute,
    tags=["admin: keys"],
    responses=ERRORS,
    dependencies=[Security(USER_SCHEME)],
)


class WhichEndpointKey(OwnBody):
    """The name of a key of the KMS endpoint."""

    name: str


class EndpointKeyAnswer(Answer):
    """A key of the KMS endpoint, without its bytes."""

    name: str
    bits: int
    versions: int
    state: str
    master_key_id: str

    @classmethod
    def of(cls, key: EndpointKey) -> EndpointKeyAnswer:
        """Convert a key to an answer."""
        return cls(
            name=key.name,
            bits=key.spec.bits,
            versions=key.versions,
            state=str(key.state),
            master_key_id=key.wrapping.master_key_id,
        )


class EndpointKeyList(Answer):
    """Keys of the KMS endpoint, sorted by name."""

    keys: list[EndpointKeyAnswer]


@router.get("")
def list_endpoint_keys(caller: CallerOf, services: ServicesOf) -> EndpointKeyList:
    """List the keys of the KMS endpoint that the caller has any permission on."""
    return EndpointKeyList(keys=[EndpointKeyAnswer.of(key) for key in services.kms_endpoint.keys(caller)])


@router.post("/disable")
def disable_endpoint_key(body: WhichEndpointKey, caller: CallerOf, services: ServicesOf) -> EndpointKeyAnswer:
    """Disable a key at once, in every version: `destroy` on the key."""
    return EndpointKeyAnswer.of(services.kms_endpoint.disable(caller, body.name))


@router.post("/enable")
def enable_endpoint_key(body: WhichEndpointKey, caller: CallerOf, services: ServicesOf) -> EndpointKeyAnswer:
    """Enable a disabled key: `destroy` on the key."""
    return EndpointKeyAnswer.of(services.kms_endpoint.enable(caller, body.name))
