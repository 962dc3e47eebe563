"""The authorization matrix: what engines and administrators ask for, and the service as such."""

from __future__ import annotations

import base64
import secrets
from typing import Any, Final

import httpx

from tests.authorization import places
from tests.authorization.model import BOOTSTRAP, NEVER
from tests.authorization.roles import ENGINE_ALONE, OWN, OWNER, STEWARD, THROUGH_ENGINE, WITH_TOKEN
from tests.authorization.rows import EVERYBODY, Row, Try, sent
from tests.authorization.world import PLAIN, UNSEALED
from tests.support.http_calls import SCHEMA

_LOADERS: Final = "reader writer alterer owner keeper mason releaser sparked steward"
_READERS: Final = "reader writer owner releaser sparked steward"
_WRITERS: Final = "writer owner releaser sparked steward"
_ALTERERS: Final = "alterer owner keeper mason steward"
_CREATORS: Final = "creator keeper mason releaser sparked steward"
_LOAD: Final = ("select|update|alter",)
_ENGINE: Final = f"/engine/v1/tables/{OWN}"
_ADMIN: Final = f"/admin/v1/tables/{OWN}"
_ENGINE_TABLE: Final = "/engine/v1/tables/{namespace}/{table}"
_ADMIN_TABLE: Final = "/admin/v1/tables/{namespace}/{table}"
_EVERY_WAY: Final = (places.LOCATION, *places.WRITE_PATHS, places.LIST)
_NOT_YOURS: Final = (400, "RequestInvalid")


def _register_key(attempt: Try) -> httpx.Response:
    public_key = base64.b64encode(secrets.token_bytes(32)).decode()
    return attempt.http.post("/engine/v1/keys", json={"public-key": public_key})


def _plan(attempt: Try, *, encrypted: bool = False, **asked: Any) -> httpx.Response:
    url = f"{_ENGINE}/{attempt.standing(encrypted=encrypted)}/plan"
    return attempt.http.post(url, json={"columns": ["id"], **asked})


def _inspect(attempt: Try, kind: str) -> httpx.Response:
    url = f"{_ENGINE}/{attempt.standing()}/inspect"
    return attempt.http.post(url, json={"metadata-table": kind})


def _begin(attempt: Try, *, encrypted: bool = False) -> httpx.Response:
    return attempt.http.post(f"{_ENGINE}/{attempt.standing(encrypted=encrypted)}/writes")


def _whole_files(attempt: Try) -> httpx.Response:
    body = {"filter": {"type": "true"}}
    return attempt.http.post(f"{_ENGINE}/{attempt.standing()}/whole-files", json=body)


def _alter(attempt: Try, *changes: dict[str, Any]) -> httpx.Response:
    return attempt.http.post(f"{_ENGINE}/{attempt.table()}/alter", json={"changes": list(changes)})


def _send(attempt: Try) -> httpx.Response:
    table = attempt.table()
    value = sent(attempt, PLAIN if attempt.absent else table)
    change = {"action": "set-property", "name": attempt.via, "value": value}
    return attempt.http.post(f"{_ENGINE}/{table}/alter", json={"changes": [change]})


def _stage(attempt: Try, **properties: str) -> httpx.Response:
    body = attempt.created(**({"properties": properties} if properties else {}))
    if attempt.state is not None and attempt.via != places.LOCATION:
        # The table's own directories have to be on its list, or nothing could be written.
        body["properties"] = _consistent(attempt, body["properties"])
    return attempt.http.post(f"/engine/v1/namespaces/{OWN}/staged-writes", json=body)


def _replace(attempt: Try, *, encrypted: bool = False, **properties: str) -> httpx.Response:
    url = f"{_ENGINE}/{attempt.standing(encrypted=encrypted)}/replace"
    return attempt.http.post(url, json={"schema": SCHEMA, "properties": properties})


def _create(attempt: Try, **more: Any) -> httpx.Response:
    return attempt.http.post(f"/engine/v1/namespaces/{OWN}/tables", json=attempt.created(**more))


def _consistent(attempt: Try, properties: dict[str, str]) -> dict[str, str]:
    names = ("write.data.path", "write.metadata.path", places.LIST)
    return dict.fromkeys(names, properties[attempt.via]) | properties


def _commit_write(attempt: Try, *, mine: bool) -> httpx.Response:
    write = attempt.world.write_of(attempt.role if mine else OWN, attempt.table())
    return attempt.http.post(f"/engine/v1/writes/{write}/commit", json={"operation": "append"})


def _abort_write(attempt: Try, *, mine: bool) -> httpx.Response:
    write = attempt.world.write_of(attempt.role if mine else OWN, PLAIN)
    return attempt.http.delete(f"/engine/v1/writes/{write}")


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


def _token(attempt: Try) -> httpx.Response:
    body = {"principal": "dave", "kind": "user", "ttl-s": 60}
    return attempt.http.post("/admin/v1/tokens", json=body)


def _revoke(attempt: Try) -> httpx.Response:
    token = attempt.world.new_token()
    return attempt.http.delete(f"/admin/v1/tokens/{token}")


def _master_key(attempt: Try, action: str) -> httpx.Response:
    name = attempt.world.new("k")
    if attempt.allowed and action:
        attempt.world.lake.kms.create_master_key(name)
    return attempt.http.post(f"/admin/v1/master-keys{action}", json={"id": name})


def _get(url: str) -> Any:
    return lambda attempt: attempt.http.get(url)


ENGINE_ROWS: Final = (
    Row(
        f"POST {_ENGINE_TABLE}/load",
        "load",
        _LOAD,
        _LOADERS,
        lambda attempt: attempt.http.post(f"{_ENGINE}/{attempt.standing()}/load"),
        on_table=True,
    ),
    Row(
        f"POST {_ENGINE_TABLE}/inspect",
        "read the snapshots",
        _LOAD,
        _LOADERS,
        lambda attempt: _inspect(attempt, "snapshots"),
        on_table=True,
        known_to="any",
    ),
    Row(
        f"POST {_ENGINE_TABLE}/inspect",
        "read the files",
        ("select",),
        _READERS,
        lambda attempt: _inspect(attempt, "files"),
        on_table=True,
        known_to="any",
    ),
    Row(f"POST {_ENGINE_TABLE}/plan", "plan", ("select",), _READERS, _plan, on_table=True, known_to="any"),
    Row(
        f"POST {_ENGINE_TABLE}/plan",
        "plan position deletes",
        ("select",),
        _READERS,
        lambda attempt: _plan(attempt, columns=["pos"], **{"position-deletes": True}),
        on_table=True,
        known_to="any",
    ),
    Row(
        f"POST {_ENGINE_TABLE}/plan",
        "plan on an encrypted table",
        ("select", "release|engine"),
        "releaser sparked steward",
        lambda attempt: _plan(attempt, encrypted=True),
        on_table=True,
        known_to="any",
    ),
    Row(
        f"POST {_ENGINE_TABLE}/whole-files",
        "delete whole files",
        ("update",),
        _WRITERS,
        _whole_files,
        on_table=True,
    ),
    Row(f"POST {_ENGINE_TABLE}/writes", "begin a write", ("update",), _WRITERS, _begin, on_table=True),
    Row(
        f"POST {_ENGINE_TABLE}/writes",
        "begin a write to an encrypted table",
        ("update", "release|engine"),
        "releaser sparked steward",
        lambda attempt: _begin(attempt, encrypted=True),
        on_table=True,
    ),
    Row(
        f"POST {_ENGINE_TABLE}/replace",
        "replace",
        ("alter", "update"),
        "owner steward",
        _replace,
    ),
    Row(
        f"POST {_ENGINE_TABLE}/replace",
        "replace an encrypted one",
        ("alter", "update", "release|engine"),
        "steward",
        lambda attempt: _replace(attempt, encrypted=True),
    ),
    Row(
        f"POST {_ENGINE_TABLE}/replace",
        "replace an encrypted one by a plaintext one",
        ("alter", "update", "unprotect"),
        "owner steward",
        lambda attempt: _replace(attempt, encrypted=True, **{"encryption.mechanism": "plaintext"}),
    ),
    Row(
        f"POST {_ENGINE_TABLE}/alter",
        "a column",
        ("alter",),
        _ALTERERS,
        lambda attempt: _alter(attempt, {"action": "add-column", "path": ["x"], "type": "long"}),
        on_table=True,
    ),
    Row(
        f"POST {_ENGINE_TABLE}/alter",
        "the name of a column",
        ("alter", "select"),
        "owner steward",
        lambda attempt: _alter(attempt, {"action": "rename-column", "path": ["id"], "name": "key"}),
        on_table=True,
    ),
    Row(
        f"POST {_ENGINE_TABLE}/alter",
        "nothing",
        ("alter",),
        _ALTERERS,
        lambda attempt: _alter(attempt, {"action": "remove-property", "name": "absent"}),
        on_table=True,
    ),
    Row(
        f"POST {_ENGINE_TABLE}/alter",
        "no branch",
        ("update",),
        _WRITERS,
        lambda attempt: _alter(attempt, {"action": "drop-branch", "name": "absent", "if-exists": True}),
        on_table=True,
    ),
    Row(
        f"POST {_ENGINE_TABLE}/alter",
        "a location",
        ("alter",),
        _ALTERERS,
        _send,
        bare=False,
        via=(*places.WRITE_PATHS, places.LIST),
        states=tuple(places.STATES),
        on_table=True,
    ),
    Row(
        "POST /engine/v1/keys",
        "a key of the engine's",
        (BOOTSTRAP,),
        ENGINE_ALONE,
        _register_key,
        refusal=(401, "NotAuthenticated"),
    ),
    Row(
        "POST /engine/v1/namespaces/{namespace}/tables",
        "create",
        ("new:create",),
        _CREATORS,
        _create,
        via=(places.LOCATION,),
        states=places.NEW_TABLES,
    ),
    Row(
        "POST /engine/v1/namespaces/{namespace}/tables",
        "create an encrypted one",
        ("new:create", "use"),
        "mason releaser sparked steward",
        lambda attempt: _create(attempt, properties={"encryption.mechanism": "envelope"}),
    ),
    Row(
        "POST /engine/v1/namespaces/{namespace}/staged-writes",
        "create as select",
        ("new:create",),
        _CREATORS,
        _stage,
        via=(places.LOCATION, "write.data.path"),
        states=places.NEW_TABLES,
    ),
    Row(
        "POST /engine/v1/namespaces/{namespace}/staged-writes",
        "create an encrypted one as select",
        ("new:create", "use", "release|engine"),
        "releaser sparked steward",
        lambda attempt: _stage(attempt, **{"encryption.mechanism": "envelope"}),
    ),
    Row(
        "POST /engine/v1/writes/{write_id}/commit",
        "a write of one's own",
        ("update",),
        _WRITERS,
        lambda attempt: _commit_write(attempt, mine=True),
    ),
    Row(
        "POST /engine/v1/writes/{write_id}/commit",
        "a write of another user",
        (NEVER,),
        "",
        lambda attempt: _commit_write(attempt, mine=False),
        refusal=_NOT_YOURS,
    ),
    Row(
        "DELETE /engine/v1/writes/{write_id}",
        "a write of one's own",
        ("token",),
        EVERYBODY,
        lambda attempt: _abort_write(attempt, mine=True),
        ok=204,
    ),
    Row(
        "DELETE /engine/v1/writes/{write_id}",
        "a write of another user",
        (NEVER,),
        "",
        lambda attempt: _abort_write(attempt, mine=False),
        refusal=_NOT_YOURS,
    ),
)

_TABLE_ROWS: Final = (
    Row(
        f"GET {_ADMIN_TABLE}",
        "look",
        _LOAD,
        _LOADERS,
        lambda attempt: attempt.http.get(f"{_ADMIN}/{attempt.standing()}"),
        on_table=True,
    ),
    Row(
        f"PATCH {_ADMIN_TABLE}",
        "the allowed list",
        ("alter",),
        _ALTERERS,
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
        _CREATORS,
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
    Row(f"POST {_ADMIN_TABLE}/restore", "restore", ("alter",), _ALTERERS, _restore, on_table=True),
    Row(
        f"POST {_ADMIN_TABLE}/register",
        "register",
        ("new:create",),
        _CREATORS,
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
