"""The authorization matrix: what engines ask for."""

from __future__ import annotations

import base64
import secrets
from typing import Any, Final

import httpx

from tests.authorization import places
from tests.authorization.model import BOOTSTRAP, NEVER
from tests.authorization.roles import ENGINE_ALONE, OWN
from tests.authorization.rows import EVERYBODY, Row, Try, sent
from tests.authorization.world import PLAIN
from tests.support.http_calls import SCHEMA

LOADERS: Final = "reader writer alterer owner keeper mason releaser sparked steward"
_READERS: Final = "reader writer owner releaser sparked steward"
_WRITERS: Final = "writer owner releaser sparked steward"
ALTERERS: Final = "alterer owner keeper mason steward"
CREATORS: Final = "creator keeper mason releaser sparked steward"
LOAD: Final = ("select|update|alter",)
_ENGINE: Final = f"/engine/v1/tables/{OWN}"
_ENGINE_TABLE: Final = "/engine/v1/tables/{namespace}/{table}"
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


ENGINE_ROWS: Final = (
    Row(
        f"POST {_ENGINE_TABLE}/load",
        "load",
        LOAD,
        LOADERS,
        lambda attempt: attempt.http.post(f"{_ENGINE}/{attempt.standing()}/load"),
        on_table=True,
    ),
    Row(
        f"POST {_ENGINE_TABLE}/access",
        "say what one can read",
        LOAD,
        LOADERS,
        lambda attempt: attempt.http.post(f"{_ENGINE}/{attempt.standing()}/access", json={}),
        on_table=True,
        known_to="any",
    ),
    Row(
        f"POST {_ENGINE_TABLE}/inspect",
        "read the snapshots",
        LOAD,
        LOADERS,
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
        ALTERERS,
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
        ALTERERS,
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
        ALTERERS,
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
        CREATORS,
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
        CREATORS,
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
