"""The authorization matrix: operations of the Iceberg REST protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import uuid4

import httpx

from tests.authorization import places
from tests.authorization.roles import ELSEWHERE, OWN, OWNER, STEWARD
from tests.authorization.rows import EVERYBODY, Row, Try, sending, setting
from tests.authorization.world import PLAIN, SPARE_KEY

_NAMESPACE: Final = "/v1/{prefix}/namespaces/{namespace}"
_TABLES: Final = f"{_NAMESPACE}/tables"
_TABLE: Final = f"{_TABLES}/{{table}}"
_ANY_ON_DATABASE: Final = "reader writer alterer creator dropper keeper mason releaser sparked steward"
_READERS: Final = "reader writer owner releaser sparked steward"
_WRITERS: Final = "writer owner releaser sparked steward"
_ALTERERS: Final = f"{OWNER} {STEWARD}"
_CREATORS: Final = "creator keeper mason releaser sparked steward"
_DROPPERS: Final = "owner dropper steward"
_LOAD: Final = "select|update|alter"
#: A standard client gets everything in a table that it is answered, so its user needs to see everything.
_WHOLE: Final = "select"
_EVERY_WAY: Final = (places.LOCATION, *places.WRITE_PATHS, places.LIST)


def _namespaces(attempt: Try) -> str:
    return f"{attempt.world.service.prefix}/namespaces"


def _create_namespace(attempt: Try) -> httpx.Response:
    properties = {} if attempt.state is None else {"location": attempt.place()}
    body = {"namespace": [attempt.world.new(f"{OWN}-")], "properties": properties}
    return attempt.http.post(_namespaces(attempt), json=body)


def _change_namespace(attempt: Try, **properties: str) -> httpx.Response:
    if attempt.state is not None:
        properties = {"location": attempt.place()}
    namespace = attempt.world.new_namespace() if attempt.allowed else OWN
    url = f"{_namespaces(attempt)}/{namespace}/properties"
    return attempt.http.post(url, json={"updates": properties})


def _soften_namespace(attempt: Try) -> httpx.Response:
    strict = {"lakewarden.unsealed": "forbid"}
    namespace = attempt.world.new_namespace(**strict) if attempt.allowed else OWN
    url = f"{_namespaces(attempt)}/{namespace}/properties"
    return attempt.http.post(url, json={"removals": ["lakewarden.unsealed"]})


def _drop_namespace(attempt: Try, **properties: str) -> httpx.Response:
    is_new = attempt.allowed or properties
    namespace = attempt.world.new_namespace(**properties) if is_new else OWN
    return attempt.http.delete(f"{_namespaces(attempt)}/{namespace}")


def _create(attempt: Try, **more: Any) -> httpx.Response:
    return attempt.http.post(f"{attempt.v1}/tables", json=attempt.created(**more))


def _commit_staged(attempt: Try) -> httpx.Response:
    """What a client sends that was shown a staged table; the identity was given to the role."""
    body = attempt.created()
    properties, location = dict(body.get("properties", {})), body.get("location")
    uuid, given = attempt.world.staged(attempt.role, body["name"], location)
    updates: list[dict[str, Any]] = [
        {"action": "assign-uuid", "uuid": uuid},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": {**body["schema"], "schema-id": 0}, "last-column-id": 2},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": given},
        {"action": "set-properties", "updates": properties},
    ]
    return attempt.commit(body["name"], *updates, requirements=[{"type": "assert-create"}])


def _drop(attempt: Try, query: str = "") -> httpx.Response:
    return attempt.http.delete(f"{attempt.v1}/tables/{attempt.table()}{query}")


def _register(attempt: Try) -> httpx.Response:
    file = attempt.world.metadata_file(attempt.place())
    body = {"name": attempt.world.new(), "metadata-location": file}
    return attempt.http.post(f"{attempt.v1}/register", json=body)


def _rename(attempt: Try, namespace: str = OWN) -> httpx.Response:
    source = {"namespace": [OWN], "name": attempt.table()}
    target = {"namespace": [namespace], "name": attempt.world.new()}
    url = f"{attempt.world.service.prefix}/tables/rename"
    return attempt.http.post(url, json={"source": source, "destination": target})


def _send(attempt: Try, commit: Callable[..., httpx.Response] = Try.commit) -> httpx.Response:
    table = attempt.table()
    # Who is refused is refused before anything is looked at, so any table will do for the location.
    return commit(attempt, table, sending(attempt, PLAIN if attempt.absent else table))


def _transact(attempt: Try, table: str, *updates: dict[str, Any]) -> httpx.Response:
    """Commit updates to a table as a transaction."""
    identifier = {"namespace": [OWN], "name": table}
    change = {"identifier": identifier, "requirements": [], "updates": list(updates)}
    url = f"{attempt.world.service.prefix}/transactions/commit"
    return attempt.http.post(url, json={"table-changes": [change]})


_COMMIT_REPORT: Final = {
    "report-type": "commit-report",
    "table-name": "t",
    "snapshot-id": 1,
    "sequence-number": 1,
    "operation": "append",
    "metrics": {},
}


def _plan(attempt: Try, *, encrypted: bool = False) -> httpx.Response:
    return attempt.http.post(f"{attempt.v1}/tables/{attempt.standing(encrypted=encrypted)}/plan", json={})


def _kept_plan(attempt: Try) -> str:
    """A plan of the role's, from when it had the right to it."""
    return str(uuid4()) if attempt.absent else attempt.world.plan_of(attempt.role, PLAIN)


def _with_plan(attempt: Try, method: str) -> httpx.Response:
    url = f"{attempt.v1}/tables/{attempt.standing()}/plan/{_kept_plan(attempt)}"
    return attempt.http.request(method, url)


def _tasks(attempt: Try) -> httpx.Response:
    body = {"plan-task": f"{_kept_plan(attempt)}.0"}
    return attempt.http.post(f"{attempt.v1}/tables/{attempt.standing()}/tasks", json=body)


ROWS: Final = (
    Row(
        "GET /v1/config",
        "look",
        ("token",),
        EVERYBODY,
        lambda attempt: attempt.http.get("/v1/config"),
    ),
    Row(
        "GET /v1/{prefix}/namespaces",
        "look; what is listed is tested below",
        ("token",),
        EVERYBODY,
        lambda attempt: attempt.http.get(_namespaces(attempt)),
    ),
    Row(
        "POST /v1/{prefix}/namespaces",
        "make one",
        ("db:create",),
        _CREATORS,
        _create_namespace,
        via=("namespace",),
        states=places.NAMESPACES,
    ),
    Row(
        f"GET {_NAMESPACE}",
        "look",
        ("db:any",),
        _ANY_ON_DATABASE,
        lambda attempt: attempt.http.get(attempt.v1),
    ),
    Row(
        f"HEAD {_NAMESPACE}",
        "look",
        ("db:any",),
        _ANY_ON_DATABASE,
        lambda attempt: attempt.http.head(attempt.v1),
        ok=204,
    ),
    Row(
        f"POST {_NAMESPACE}/properties",
        "set one",
        ("db:alter",),
        "alterer keeper mason steward",
        lambda attempt: _change_namespace(attempt, comment="x"),
        via=("namespace",),
        states=places.NAMESPACES,
    ),
    Row(
        f"POST {_NAMESPACE}/properties",
        "forbid unsealed metadata",
        ("db:alter",),
        "alterer keeper mason steward",
        lambda attempt: _change_namespace(attempt, **{"lakewarden.unsealed": "forbid"}),
    ),
    Row(
        f"POST {_NAMESPACE}/properties",
        "allow unsealed metadata",
        ("db:alter", "db:unprotect"),
        STEWARD,
        lambda attempt: _change_namespace(attempt, **{"lakewarden.unsealed": "allow"}),
    ),
    Row(
        f"POST {_NAMESPACE}/properties",
        "forbid unsealed metadata no more",
        ("db:alter", "db:unprotect"),
        STEWARD,
        _soften_namespace,
    ),
    Row(
        f"POST {_NAMESPACE}/properties",
        "let standard clients load encrypted tables",
        ("db:alter", "db:unprotect"),
        STEWARD,
        lambda attempt: _change_namespace(attempt, **{"encryption.standard-clients": "load"}),
    ),
    Row(f"DELETE {_NAMESPACE}", "drop", ("db:drop",), "dropper steward", _drop_namespace, ok=204),
    Row(
        f"DELETE {_NAMESPACE}",
        "drop one that forbids unsealed metadata",
        ("db:drop", "db:unprotect"),
        STEWARD,
        lambda attempt: _drop_namespace(attempt, **{"lakewarden.unsealed": "forbid"}),
        ok=204,
    ),
    Row(
        f"GET {_TABLES}",
        "look; what is listed is tested below",
        ("db:any",),
        _ANY_ON_DATABASE,
        lambda attempt: attempt.http.get(f"{attempt.v1}/tables"),
    ),
    Row(
        f"POST {_TABLES}",
        "create",
        ("new:create",),
        _CREATORS,
        _create,
        via=_EVERY_WAY,
        states=places.NEW_TABLES,
    ),
    Row(
        f"POST {_TABLES}",
        "create an encrypted one",
        ("new:create", "use", "engine"),
        "sparked",
        lambda attempt: _create(attempt, properties={"encryption.mechanism": "envelope"}),
    ),
    Row(
        f"POST {_TABLES}",
        "stage",
        ("new:create",),
        _CREATORS,
        lambda attempt: _create(attempt, **{"stage-create": True}),
        via=_EVERY_WAY,
        states=places.NEW_TABLES,
    ),
    Row(
        f"GET {_TABLE}",
        "load",
        (_LOAD, _WHOLE),
        _READERS,
        lambda attempt: attempt.http.get(f"{attempt.v1}/tables/{attempt.standing()}"),
        on_table=True,
    ),
    Row(
        f"GET {_TABLE}",
        "load an encrypted one",
        (_LOAD, "engine"),
        "sparked",
        lambda attempt: attempt.http.get(f"{attempt.v1}/tables/{attempt.standing(encrypted=True)}"),
        on_table=True,
    ),
    Row(f"POST {_TABLE}/plan", "plan", (_LOAD, _WHOLE), _READERS, _plan, on_table=True),
    Row(
        f"POST {_TABLE}/plan",
        "plan an encrypted one",
        (_LOAD, "engine"),
        "sparked",
        lambda attempt: _plan(attempt, encrypted=True),
        on_table=True,
    ),
    Row(
        f"GET {_TABLE}/plan/{{plan_id}}",
        "look",
        (_LOAD, _WHOLE),
        _READERS,
        lambda attempt: _with_plan(attempt, "GET"),
        on_table=True,
    ),
    Row(
        f"DELETE {_TABLE}/plan/{{plan_id}}",
        "cancel",
        ("any",),
        "reader writer alterer owner creator dropper keeper mason releaser sparked steward",
        lambda attempt: _with_plan(attempt, "DELETE"),
        ok=204,
        on_table=True,
    ),
    Row(f"POST {_TABLE}/tasks", "fetch", (_LOAD, _WHOLE), _READERS, _tasks, on_table=True),
    Row(
        f"HEAD {_TABLE}",
        "look",
        ("any",),
        "reader writer alterer owner creator dropper keeper mason releaser sparked steward",
        lambda attempt: attempt.http.head(f"{attempt.v1}/tables/{attempt.standing()}"),
        ok=204,
        on_table=True,
    ),
    Row(
        f"POST {_TABLE}",
        "commit snapshots",
        ("update", _WHOLE),
        _WRITERS,
        lambda attempt: attempt.commit(
            attempt.standing(), {"action": "remove-snapshots", "snapshot-ids": []}
        ),
        on_table=True,
    ),
    Row(
        f"POST {_TABLE}",
        "commit a property",
        ("alter", _WHOLE),
        _ALTERERS,
        lambda attempt: attempt.commit(attempt.standing(), setting(comment="x")),
        on_table=True,
    ),
    Row(
        f"POST {_TABLE}",
        "commit snapshots and a property",
        ("alter", "update", _WHOLE),
        f"{OWNER} {STEWARD}",
        lambda attempt: attempt.commit(
            attempt.standing(), {"action": "remove-snapshots", "snapshot-ids": []}, setting(comment="x")
        ),
        on_table=True,
    ),
    Row(
        f"POST {_TABLE}",
        "commit a location",
        ("alter", _WHOLE),
        _ALTERERS,
        _send,
        bare=False,
        via=_EVERY_WAY,
        states=tuple(places.STATES),
        on_table=True,
    ),
    Row(
        f"POST {_TABLE}",
        "encrypt",
        ("alter", "use", "engine"),
        "",
        lambda attempt: attempt.commit(attempt.table(), setting(**{"encryption.mechanism": "envelope"})),
        on_table=True,
    ),
    Row(
        f"POST {_TABLE}",
        "take another master key",
        ("alter", "use", "unprotect", "engine"),
        "",
        lambda attempt: attempt.commit(
            attempt.table(encrypted=True), setting(**{"encryption.master-key-id": SPARE_KEY})
        ),
        on_table=True,
    ),
    Row(
        f"POST {_TABLE}",
        "weaken the encryption",
        ("alter", "unprotect", "engine"),
        "",
        lambda attempt: attempt.commit(
            attempt.table(encrypted=True), setting(**{"encryption.data-key-length": "16"})
        ),
        on_table=True,
    ),
    Row(
        f"POST {_TABLE}",
        "drop the encryption",
        ("alter", "unprotect", "engine"),
        "",
        lambda attempt: attempt.commit(
            attempt.table(encrypted=True), setting(**{"encryption.mechanism": "plaintext"})
        ),
        on_table=True,
    ),
    Row(
        f"POST {_TABLE}",
        "complete a staged creation",
        ("new:create",),
        _CREATORS,
        _commit_staged,
        via=_EVERY_WAY,
        states=places.NEW_TABLES,
    ),
    Row(f"DELETE {_TABLE}", "drop", ("drop",), _DROPPERS, _drop, ok=204, on_table=True),
    Row(
        f"DELETE {_TABLE}",
        "purge",
        ("drop",),
        _DROPPERS,
        lambda attempt: _drop(attempt, "?purgeRequested=true"),
        ok=204,
        on_table=True,
    ),
    Row(
        f"POST {_TABLE}/unregister",
        "unregister",
        ("drop", _LOAD, _WHOLE),
        f"{OWNER} {STEWARD}",
        lambda attempt: attempt.http.post(f"{attempt.v1}/tables/{attempt.table()}/unregister"),
        on_table=True,
    ),
    Row(
        f"POST {_TABLE}/metrics",
        "report",
        (_LOAD, _WHOLE),
        _READERS,
        lambda attempt: attempt.http.post(
            f"{attempt.v1}/tables/{attempt.standing()}/metrics", json=_COMMIT_REPORT
        ),
        ok=204,
        on_table=True,
    ),
    Row(
        f"POST {_NAMESPACE}/register",
        "register",
        ("new:create",),
        _CREATORS,
        _register,
        bare=False,
        via=(places.LOCATION,),
        states=places.NEW_TABLES,
    ),
    Row(
        "POST /v1/{prefix}/tables/rename",
        "rename",
        ("alter", "select", "new:create"),
        "steward",
        _rename,
        ok=204,
        on_table=True,
    ),
    Row(
        "POST /v1/{prefix}/tables/rename",
        "move to another namespace",
        ("alter", "select", "far:create"),
        STEWARD,
        lambda attempt: _rename(attempt, ELSEWHERE),
        ok=204,
        on_table=True,
    ),
    Row(
        "POST /v1/{prefix}/transactions/commit",
        "commit a property",
        ("alter", _WHOLE),
        _ALTERERS,
        lambda attempt: _transact(attempt, attempt.standing(), setting(comment="x")),
        ok=204,
        on_table=True,
    ),
    Row(
        "POST /v1/{prefix}/transactions/commit",
        "commit a location",
        ("alter", _WHOLE),
        _ALTERERS,
        lambda attempt: _send(attempt, _transact),
        ok=204,
        bare=False,
        via=(places.LIST,),
        states=tuple(places.STATES),
        on_table=True,
    ),
)
