"""The authorization matrix of the KMS endpoint: its keys need rights of their own."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final

import httpx

from catalog.kms_server.store import Denial, KeySpec
from tests.authorization.roles import STEWARD
from tests.authorization.rows import EVERYBODY, Row, Try
from tests.authorization.world import ENDPOINT_KEY
from tests.support.lake import MASTER_KEY

_KMS: Final = "/kms/v1"
_ADMIN: Final = "/admin/v1/door-keys"
_ANY: Final = ("use|release|rotate|destroy",)
_ANYBODY_WITH_A_RIGHT: Final = "owner mason releaser sparked steward"
_USERS: Final = "mason releaser sparked steward"
_RELEASERS: Final = "releaser steward"
_ROTATORS: Final = "owner releaser steward"
_DESTROYERS: Final = "owner releaser steward"
_KEY: Final = {
    "name": ENDPOINT_KEY,
    "iv": b64encode(bytes(16)).decode(),
    "material": b64encode(bytes(32)).decode(),
}


def _get(path: str) -> Callable[[Try], httpx.Response]:
    return lambda attempt: attempt.http.get(f"{_KMS}/{path}")


def _post(path: str, body: Any) -> Callable[[Try], httpx.Response]:
    return lambda attempt: attempt.http.post(f"{_KMS}/{path}", json=body)


def _create(attempt: Try) -> httpx.Response:
    return attempt.http.post(f"{_KMS}/keys", json={"name": attempt.world.new("k")})


def _batch() -> list[dict[str, Any]]:
    inner = {"versionName": "EEK", "material": _KEY["material"]}
    return [{"versionName": f"{ENDPOINT_KEY}@0", "iv": _KEY["iv"], "encryptedKeyVersion": inner}]


def movable(attempt: Try) -> str:
    """A key to disable: one of its own where that works, so that others stay as they are."""
    if not attempt.allowed:
        return ENDPOINT_KEY
    name, lake = attempt.world.new("k"), attempt.world.lake
    lake.services.kms_endpoint.create(lake.caller(STEWARD), KeySpec(name, 256, None, {}, Denial.ERROR))
    return name


def _moving(act: str) -> Callable[[Try], httpx.Response]:
    return lambda attempt: attempt.http.post(f"{_ADMIN}/{act}", json={"name": movable(attempt)})


def _looking(route: str, path: str) -> Row:
    return Row(f"GET {_KMS}/{route}", "look", _ANY, _ANYBODY_WITH_A_RIGHT, _get(path))


def _unwrap(attempt: Try) -> httpx.Response:
    body = {"masterKeyID": MASTER_KEY, "wrappedKEK": attempt.world.wrapped_kek()}
    return attempt.http.post(f"{_KMS}/kek/_unwrap", json=body)


_EEK: Final = f"keyversion/{ENDPOINT_KEY}@0/_eek?eek_op="

ROWS: Final = (
    Row(
        f"OPTIONS {_KMS}/{{path:path}}",
        "shake hands",
        (),
        f"anonymous engine {EVERYBODY}",
        lambda attempt: attempt.http.options(f"{_KMS}/keys/names"),
    ),
    Row(f"GET {_KMS}/keys/names", "look", ("token",), EVERYBODY, _get("keys/names")),
    _looking("keys/metadata", f"keys/metadata?key={ENDPOINT_KEY}"),
    _looking("key/{name}", f"key/{ENDPOINT_KEY}"),
    _looking("key/{name}/_metadata", f"key/{ENDPOINT_KEY}/_metadata"),
    _looking("key/{name}/_currentversion", f"key/{ENDPOINT_KEY}/_currentversion"),
    _looking("key/{name}/_versions", f"key/{ENDPOINT_KEY}/_versions"),
    _looking("keyversion/{version_name}", f"keyversion/{ENDPOINT_KEY}@0"),
    Row(f"POST {_KMS}/keys", "make", ("rotate",), _ROTATORS, _create, ok=201),
    Row(f"POST {_KMS}/key/{{name}}", "roll", ("rotate",), _ROTATORS, _post(f"key/{ENDPOINT_KEY}", {})),
    Row(
        f"POST {_KMS}/key/{{name}}/_invalidatecache",
        "invalidate",
        ("rotate",),
        _ROTATORS,
        lambda attempt: attempt.http.post(f"{_KMS}/key/{ENDPOINT_KEY}/_invalidatecache"),
    ),
    Row(
        f"GET {_KMS}/key/{{name}}/_eek",
        "generate",
        ("use",),
        _USERS,
        _get(f"key/{ENDPOINT_KEY}/_eek?eek_op=generate"),
    ),
    Row(
        f"POST {_KMS}/keyversion/{{version_name}}/_eek",
        "decrypt",
        ("release",),
        _RELEASERS,
        _post(f"{_EEK}decrypt", _KEY),
    ),
    Row(
        f"POST {_KMS}/keyversion/{{version_name}}/_eek",
        "re-encrypt",
        ("use",),
        _USERS,
        _post(f"{_EEK}reencrypt", _KEY),
    ),
    Row(
        f"POST {_KMS}/key/{{name}}/_reencryptbatch",
        "re-encrypt",
        ("use",),
        _USERS,
        _post(f"key/{ENDPOINT_KEY}/_reencryptbatch", _batch()),
    ),
    Row(
        f"GET {_ADMIN}",
        "list keys",
        ("token",),
        EVERYBODY,
        lambda attempt: attempt.http.get(_ADMIN),
    ),
    *(
        Row(f"POST {_ADMIN}/{act}", f"{act} a key", ("destroy",), _DESTROYERS, _moving(act))
        for act in ("disable", "enable")
    ),
    Row(f"POST {_KMS}/kek/_unwrap", "open a file's key", ("select", "release"), _RELEASERS, _unwrap),
)
