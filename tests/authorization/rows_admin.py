"""The authorization matrix: what administrators ask for, and the service as such."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

import httpx

from catalog.base.errors import NoSuchTable
from catalog.base.identifiers import TableName
from tests.authorization import places
from tests.authorization.roles import OWN, OWNER, STEWARD, THROUGH_ENGINE, WITH_TOKEN
from tests.authorization.rows import EVERYBODY, Row, Try, sent
from tests.authorization.rows_engine import ALTERERS, CREATORS, LOAD, LOADERS
from tests.authorization.world import PLAIN, UNSEALED

_ADMIN: Final = f"/admin/v1/tables/{OWN}"
_ADMIN_TABLE: Final = "/admin/v1/tables/{namespace}/{table}"


def _change(attempt: Try) -> httpx.Response:
    table = attempt.table()
    if attempt.state is None:
        body = {"unset": [places.LIST]}
    else:
        body = {"set": {places.LIST: sent(attempt, PLAIN if attempt.absent else table)}}
    return attempt.http.patch(f"{_ADMIN}/{table}", json=body)


def _unprotect(attempt: Try) -> httpx.Response:
    body = {"set": {"encryption.mechanism": "plaintext"}, "force": True}
    return attempt.http.patch(f"{_ADMIN}/{attempt.table(encrypted=True)}", json=body)


def _adopt(attempt: Try) -> httpx.Response:
    name, where = attempt.world.new(), attempt.place()
    attempt.world.pointer(name, attempt.world.metadata_file(where))
    return attempt.http.post(f"{_ADMIN}/{name}/adopt")


def _reseal(attempt: Try) -> httpx.Response:
    table = attempt.table() if attempt.allowed else UNSEALED
    if attempt.allowed:
        attempt.world.unseal(table)
    return attempt.http.post(f"{_ADMIN}/{table}/reseal")


def _restore(attempt: Try) -> httpx.Response:
    return attempt.http.post(f"{_ADMIN}/{attempt.standing()}/restore")


def _register(attempt: Try) -> httpx.Response:
    file = attempt.world.metadata_file(attempt.place())
    url = f"{_ADMIN}/{attempt.world.new()}/register"
    return attempt.http.post(url, json={"metadata-location": file})


def _certificate(attempt: Try, *, erased: bool = False) -> httpx.Response:
    table = attempt.standing()
    body = {
        "id": str(uuid4()),
        "table": f"{OWN}.{table}",
        "identifiers": {
            "cost": 2**15,
            "block-size": 8,
            "parallelism": 1,
            "salt": "ab" * 16,
            "digests": ["cd" * 16],
        },
    }
    uuid = uuid4()
    with suppress(NoSuchTable):
        uuid = attempt.world.lake.services.loader.record(TableName((OWN,), table)).table_uuid
    facts = {"table-uuid": str(uuid), "rows": 0, "snapshots-gone": [], "snapshots-searched": []}
    what = {"erased": {**facts, "columns": ["id"]}} if erased else {"left": "A tag holds rows."}
    return attempt.http.post("/admin/v1/lake/certificates", json={**body, **what})


def _token(attempt: Try) -> httpx.Response:
    body = {"principal": "dave", "kind": "user", "ttl-s": 60}
    return attempt.http.post("/admin/v1/tokens", json=body)


def _revoke(attempt: Try) -> httpx.Response:
    token = attempt.world.new_token()
    return attempt.http.delete(f"/admin/v1/tokens/{token}")


def _user(attempt: Try, change: str) -> httpx.Response:
    name = attempt.world.new("u")
    attempt.world.lake.services.principals.assign(name, frozenset(), frozenset())
    return attempt.http.post(f"/admin/v1/users/{change}", json={"user": name})


def _master_key(attempt: Try, action: str) -> httpx.Response:
    name = attempt.world.new("k")
    if attempt.allowed and action:
        attempt.world.lake.kms.create_master_key(name)
    return attempt.http.post(f"/admin/v1/master-keys{action}", json={"id": name})


def _get(url: str) -> Any:
    return lambda attempt: attempt.http.get(url)


_TABLE_ROWS: Final = (
    Row(
        f"GET {_ADMIN_TABLE}",
        "look",
        LOAD,
        LOADERS,
        lambda attempt: attempt.http.get(f"{_ADMIN}/{attempt.standing()}"),
        on_table=True,
    ),
    Row(
        f"GET {_ADMIN_TABLE}/columns",
        "look",
        LOAD,
        LOADERS,
        lambda attempt: attempt.http.get(f"{_ADMIN}/{attempt.standing()}/columns"),
        on_table=True,
    ),
    Row(
        f"PATCH {_ADMIN_TABLE}",
        "the allowed list",
        ("alter",),
        ALTERERS,
        _change,
        via=(places.LIST,),
        states=tuple(places.STATES),
        on_table=True,
    ),
    Row(
        f"PATCH {_ADMIN_TABLE}",
        "drop the encryption",
        ("alter", "unprotect"),
        f"{OWNER} {STEWARD}",
        _unprotect,
        on_table=True,
    ),
    Row(
        f"POST {_ADMIN_TABLE}/adopt",
        "adopt",
        ("new:create",),
        CREATORS,
        _adopt,
        bare=False,
        via=(places.LOCATION,),
        states=places.NEW_TABLES,
    ),
    Row(
        f"POST {_ADMIN_TABLE}/reseal",
        "reseal",
        ("alter", "update"),
        f"{OWNER} {STEWARD}",
        _reseal,
    ),
    Row(
        f"POST {_ADMIN_TABLE}/clean-up",
        "list garbage",
        ("alter", "drop"),
        f"{OWNER} {STEWARD}",
        lambda attempt: attempt.http.post(f"{_ADMIN}/{attempt.table()}/clean-up", json={}),
        on_table=True,
    ),
    Row(
        f"POST {_ADMIN_TABLE}/clean-up",
        "remove garbage",
        ("alter", "drop"),
        f"{OWNER} {STEWARD}",
        lambda attempt: attempt.http.post(f"{_ADMIN}/{attempt.table()}/clean-up", json={"remove": True}),
        on_table=True,
    ),
    Row(f"POST {_ADMIN_TABLE}/restore", "restore", ("alter",), ALTERERS, _restore, on_table=True),
    Row(
        f"POST {_ADMIN_TABLE}/register",
        "register",
        ("new:create",),
        CREATORS,
        _register,
        bare=False,
        via=(places.LOCATION,),
        states=places.NEW_TABLES,
    ),
)

_SERVICE_ROWS: Final = (
    Row("GET /admin/v1/policies", "look", ("admin",), "admin steward", _get("/admin/v1/policies")),
    Row(
        "POST /admin/v1/policies/reload",
        "reload",
        ("admin",),
        "admin steward",
        lambda attempt: attempt.http.post("/admin/v1/policies/reload"),
    ),
    Row(
        "POST /admin/v1/policies/check",
        "ask",
        ("admin",),
        "admin steward",
        lambda attempt: attempt.http.post(
            "/admin/v1/policies/check",
            json={"user": "reader", "resource": {"database": OWN}, "access": "select"},
        ),
    ),
    Row("GET /admin/v1/audit", "look", ("audit",), "auditor steward", _get("/admin/v1/audit?limit=1")),
    Row(
        "GET /admin/v1/audit/verify", "verify", ("audit",), "auditor steward", _get("/admin/v1/audit/verify")
    ),
    Row(
        "GET /admin/v1/lake/tables",
        "list",
        ("audit",),
        "auditor steward",
        _get("/admin/v1/lake/tables?limit=1"),
    ),
    Row(
        "POST /admin/v1/lake/states",
        "look",
        ("audit",),
        "auditor steward",
        lambda attempt: attempt.http.post("/admin/v1/lake/states", json={"tables": [f"{OWN}.{PLAIN}"]}),
    ),
    Row(
        "POST /admin/v1/lake/certificates",
        "erased",
        ("alter", "drop", "update"),
        f"{OWNER} {STEWARD}",
        lambda attempt: _certificate(attempt, erased=True),
        on_table=True,
    ),
    Row(
        "POST /admin/v1/lake/certificates",
        "not erased",
        ("any",),
        "reader writer alterer owner creator dropper keeper mason releaser sparked steward",
        _certificate,
        on_table=True,
    ),
    Row("POST /admin/v1/tokens", "issue", ("admin",), "admin steward", _token),
    Row("GET /admin/v1/tokens", "look", ("admin",), "admin steward", _get("/admin/v1/tokens")),
    Row(
        "DELETE /admin/v1/tokens/{token_id}",
        "revoke",
        ("admin",),
        "admin steward",
        _revoke,
        ok=204,
    ),
    Row(
        "POST /admin/v1/tokens/revoke",
        "revoke",
        ("admin",),
        "admin steward",
        lambda attempt: attempt.http.post("/admin/v1/tokens/revoke", json={"principal": "dave"}),
    ),
    Row(
        "POST /admin/v1/tokens/{token_id}/rotate",
        "issue",
        ("admin",),
        "admin steward",
        lambda attempt: attempt.http.post(
            f"/admin/v1/tokens/{attempt.world.new_token()}/rotate", json={"ttl-s": 60}
        ),
    ),
    Row("GET /admin/v1/users", "look", ("admin",), "admin steward", _get("/admin/v1/users")),
    *(
        Row(
            f"POST /admin/v1/users/{change}",
            change,
            ("admin",),
            "admin steward",
            lambda attempt, change=change: _user(attempt, change),
        )
        for change in ("assign", "disable", "enable", "forget-claims", "delete")
    ),
    Row("GET /admin/v1/master-keys", "look", ("admin",), "admin steward", _get("/admin/v1/master-keys")),
    Row(
        "POST /admin/v1/master-keys",
        "make",
        ("admin",),
        "admin steward",
        lambda attempt: _master_key(attempt, ""),
    ),
    Row(
        "POST /admin/v1/master-keys/disable",
        "disable",
        ("admin",),
        "admin steward",
        lambda attempt: _master_key(attempt, "/disable"),
    ),
    Row(
        "POST /admin/v1/master-keys/enable",
        "enable",
        ("admin",),
        "admin steward",
        lambda attempt: _master_key(attempt, "/enable"),
    ),
    Row(
        "POST /admin/v1/sweep",
        "clean_up",
        ("admin",),
        "admin steward",
        lambda attempt: attempt.http.post("/admin/v1/sweep"),
    ),
    Row("GET /metrics", "look", ("token",), EVERYBODY, _get("/metrics")),
    Row("GET /openapi.json", "look", ("token",), EVERYBODY, _get("/openapi.json")),
    Row("GET /livez", "look", (), f"anonymous engine {EVERYBODY}", _get("/livez")),
    Row("GET /readyz", "look", (), f"anonymous engine {EVERYBODY}", _get("/readyz")),
    Row("GET /healthz", "look", (), f"anonymous engine {EVERYBODY}", _get("/healthz")),
)

_OWN_PROCESS: Final = " ".join(role for role in WITH_TOKEN if role != THROUGH_ENGINE)
_CODE_ROW: Final = Row(
    "POST /engine/v1/code",
    "run code",
    ("own-process|code",),
    _OWN_PROCESS,
    lambda attempt: attempt.http.post("/engine/v1/code"),
    ok=204,
)
ADMIN_ROWS: Final = (*_TABLE_ROWS, *_SERVICE_ROWS, _CODE_ROW)
