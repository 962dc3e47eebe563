"""Keys of the KMS endpoint for standard Hadoop clients, and who may do what with them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

from catalog.kms_server.endpoint import KmsEndpoint
from catalog.kms_server.store import Denial, KeySpec
from tests.support.lake import ALICE, BOB, CAROL, Lake, policy

IV: Final = bytes(range(16))
MATERIAL: Final = bytes(range(32))
EVERY_RIGHT: Final = ("use", "release", "rotate", "destroy")


def endpoint_policies() -> list[dict[str, Any]]:
    """Alice has every right on every key of the KMS endpoint; Bob may use them; Carol may release `pii`.

    Carol also has every right on the master key, which is none on a key of the KMS endpoint.
    """
    return [
        policy("door-alice", {"key": ["door/*"]}, {ALICE: EVERY_RIGHT}),
        policy("door-bob", {"key": ["door/*"]}, {BOB: ["use"]}),
        policy("door-carol", {"key": ["door/pii"]}, {CAROL: ["release"]}),
        policy("masters", {"key": ["lakewarden"]}, {CAROL: EVERY_RIGHT}),
    ]


def make_key(
    lake: Lake, name: str, *, bits: int = 256, denial: Denial = Denial.ERROR, versions: int = 1
) -> None:
    """A key of the KMS endpoint, as Alice makes it."""
    door: KmsEndpoint = lake.services.kms_endpoint
    door.create(lake.caller(ALICE), KeySpec(name, bits, None, {}, denial))
    for _ in range(versions - 1):
        door.roll(lake.caller(ALICE), name)


def encrypted(name: str, material: bytes = MATERIAL, iv: bytes = IV) -> dict[str, str]:
    """The body of a use of an encrypted key."""
    return {"name": name, "iv": b64encode(iv).decode(), "material": b64encode(material).decode()}
