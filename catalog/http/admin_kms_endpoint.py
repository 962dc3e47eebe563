"""Administration of the KMS endpoint's keys: what Hadoop's protocol has no words for.

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
    """A key of the KMS endpoint, by its name."""

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
        """A key as it is shown."""
        return cls(
            name=key.name,
            bits=key.spec.bits,
            versions=key.versions,
            state=str(key.state),
            master_key_id=key.wrapping.master_key_id,
        )


class EndpointKeyList(Answer):
    """Keys of the KMS endpoint, in order of their names."""

    keys: list[EndpointKeyAnswer]


@router.get("")
def list_endpoint_keys(caller: CallerOf, services: ServicesOf) -> EndpointKeyList:
    """The keys of the KMS endpoint that the caller has any right on."""
    return EndpointKeyList(keys=[EndpointKeyAnswer.of(key) for key in services.kms_endpoint.keys(caller)])


@router.post("/disable")
def disable_endpoint_key(body: WhichEndpointKey, caller: CallerOf, services: ServicesOf) -> EndpointKeyAnswer:
    """Make a key unusable at once, in every version: `destroy` on the key."""
    return EndpointKeyAnswer.of(services.kms_endpoint.disable(caller, body.name))


@router.post("/enable")
def enable_endpoint_key(body: WhichEndpointKey, caller: CallerOf, services: ServicesOf) -> EndpointKeyAnswer:
    """Make a disabled key usable again: `destroy` on the key."""
    return EndpointKeyAnswer.of(services.kms_endpoint.enable(caller, body.name))
