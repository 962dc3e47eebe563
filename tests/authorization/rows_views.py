"""The authorization matrix: views, under `/engine/v1` and `/v1`."""

from __future__ import annotations

from typing import Any, Final

from tests.authorization import places
from tests.authorization.roles import ELSEWHERE, OWN, STEWARD, THROUGH_ENGINE
from tests.authorization.rows import Row, Try, setting
from tests.authorization.world import ABSENT, DOOR, PLAIN, SIGHT
from tests.support.http_calls import SCHEMA

_VIEWS: Final = "/engine/v1/namespaces/{namespace}/views"
_VIEW: Final = "/engine/v1/views/{namespace}/{view}"
_V1: Final = "/v1/{prefix}/namespaces/{namespace}"
_V1_VIEW: Final = f"{_V1}/views/{{view}}"
_ANY_ON_DATABASE: Final = "reader writer alterer creator dropper keeper mason releaser sparked steward"
_ANY: Final = "reader writer alterer owner creator dropper keeper mason releaser sparked steward"
_LOADERS: Final = "reader writer alterer owner keeper mason releaser sparked steward"
_ALTERERS: Final = "alterer owner keeper mason steward"
_CREATORS: Final = "creator keeper mason releaser sparked steward"
_DROPPERS: Final = "owner dropper steward"


def _body(**more: Any) -> dict[str, Any]:
    sql = {"type": "sql", "sql": "SELECT 2", "dialect": "spark"}
    version = {"representations": [sql], "default-namespace": [OWN]}
    return {"schema": SCHEMA, "view-version": version, **more}


def _view(attempt: Try, *, changed: bool = False) -> str:
    if attempt.absent:
        return ABSENT
    return attempt.world.new_view() if changed and attempt.allowed else SIGHT


def _url(attempt: Try, *, changed: bool = False) -> str:
    return f"/engine/v1/views/{OWN}/{_view(attempt, changed=changed)}"


def _rename(attempt: Try, namespace: str = OWN, path: str = "/engine/v1") -> Any:
    source = {"namespace": [OWN], "name": _view(attempt, changed=True)}
    target = {"namespace": [namespace], "name": attempt.world.new()}
    return attempt.http.post(f"{path}/views/rename", json={"source": source, "destination": target})


def _v1_url(attempt: Try, *, changed: bool = False) -> str:
    return f"{attempt.v1}/views/{_view(attempt, changed=changed)}"


def _v1_create(attempt: Try) -> Any:
    version = _body()["view-version"] | {"version-id": 1, "schema-id": 0, "timestamp-ms": 0}
    body = {"properties": {}, **attempt.created(), "view-version": version}
    return attempt.http.post(f"{attempt.v1}/views", json=body)


def _v1_send(attempt: Try) -> Any:
    """Move a view, or where its metadata goes."""
    view = _view(attempt, changed=True)
    where = attempt.place()
    move = {"action": "set-location", "location": where}
    if attempt.via != places.LOCATION:
        move = {"action": "set-properties", "updates": {attempt.via: where}}
    return attempt.http.post(f"{attempt.v1}/views/{view}", json={"updates": [move]})


def _v1_register(attempt: Try) -> Any:
    file = attempt.world.view_file(attempt.place())
    body = {"name": attempt.world.new(), "metadata-location": file}
    return attempt.http.post(f"{attempt.v1}/register-view", json=body)


def _through(attempt: Try, operation: str, **asked: Any) -> Any:
    view = ABSENT if attempt.absent else DOOR
    table = {"namespace": [OWN], "name": PLAIN}
    body = {"table": table, "view-uuid": attempt.world.door(), "version": 1, **asked}
    return attempt.http.post(f"/engine/v1/views/{OWN}/{view}/tables/{operation}", json=body)


ROWS: Final = (
    Row(
        f"POST {_VIEW}/tables/load",
        "load a table of a definer view",
        ("select", "engine"),
        THROUGH_ENGINE,
        lambda attempt: _through(attempt, "load"),
        on_table=True,
        known_to="any",
    ),
    Row(
        f"POST {_VIEW}/tables/plan",
        "plan a table of a definer view",
        ("select", "engine"),
        THROUGH_ENGINE,
        lambda attempt: _through(attempt, "plan", columns=["id"]),
        on_table=True,
        known_to="any",
    ),
    Row(
        f"GET {_VIEWS}",
        "list",
        ("db:any",),
        _ANY_ON_DATABASE,
        lambda attempt: attempt.http.get(f"/engine/v1/namespaces/{OWN}/views"),
    ),
    Row(
        f"POST {_VIEWS}",
        "create",
        ("new:create",),
        _CREATORS,
        lambda attempt: attempt.http.post(
            f"/engine/v1/namespaces/{OWN}/views", json=_body(name=attempt.world.new())
        ),
        ok=204,
    ),
    Row(
        f"GET {_VIEW}",
        "look",
        ("select|alter",),
        _LOADERS,
        lambda attempt: attempt.http.get(_url(attempt)),
        on_table=True,
        known_to="any",
    ),
    Row(
        f"HEAD {_VIEW}",
        "look",
        ("any",),
        _ANY,
        lambda attempt: attempt.http.head(_url(attempt)),
        ok=204,
        on_table=True,
    ),
    Row(
        f"POST {_VIEW}",
        "replace",
        ("alter",),
        _ALTERERS,
        lambda attempt: attempt.http.post(_url(attempt, changed=True), json=_body()),
        ok=204,
        on_table=True,
    ),
    Row(
        f"DELETE {_VIEW}",
        "drop",
        ("drop",),
        _DROPPERS,
        lambda attempt: attempt.http.delete(_url(attempt, changed=True)),
        ok=204,
        on_table=True,
    ),
    Row(
        "POST /engine/v1/views/rename",
        "rename",
        ("alter", "select", "new:create"),
        STEWARD,
        _rename,
        ok=204,
        on_table=True,
    ),
    Row(
        "POST /engine/v1/views/rename",
        "move to another namespace",
        ("alter", "select", "far:create"),
        STEWARD,
        lambda attempt: _rename(attempt, ELSEWHERE),
        ok=204,
        on_table=True,
    ),
    Row(
        f"GET {_V1}/views",
        "list",
        ("db:any",),
        _ANY_ON_DATABASE,
        lambda attempt: attempt.http.get(f"{attempt.v1}/views"),
    ),
    Row(
        f"POST {_V1}/views",
        "create",
        ("new:create",),
        _CREATORS,
        _v1_create,
        via=(places.LOCATION, "write.metadata.path"),
        states=places.NEW_TABLES,
    ),
    Row(
        f"GET {_V1_VIEW}",
        "look",
        ("select|alter",),
        _LOADERS,
        lambda attempt: attempt.http.get(_v1_url(attempt)),
        on_table=True,
        known_to="any",
    ),
    Row(
        f"HEAD {_V1_VIEW}",
        "look",
        ("any",),
        _ANY,
        lambda attempt: attempt.http.head(_v1_url(attempt)),
        ok=204,
        on_table=True,
    ),
    Row(
        f"POST {_V1_VIEW}",
        "replace",
        ("alter",),
        _ALTERERS,
        lambda attempt: attempt.http.post(_v1_url(attempt, changed=True), json={"updates": [setting(a="b")]}),
        on_table=True,
    ),
    Row(
        f"POST {_V1_VIEW}",
        "move",
        ("alter",),
        _ALTERERS,
        _v1_send,
        bare=False,
        via=(places.LOCATION, "write.metadata.path"),
        states=places.NEW_TABLES,
        on_table=True,
    ),
    Row(
        f"DELETE {_V1_VIEW}",
        "drop",
        ("drop",),
        _DROPPERS,
        lambda attempt: attempt.http.delete(_v1_url(attempt, changed=True)),
        ok=204,
        on_table=True,
    ),
    Row(
        f"POST {_V1}/register-view",
        "register",
        ("new:create",),
        _CREATORS,
        _v1_register,
        bare=False,
        via=(places.LOCATION,),
        states=places.NEW_TABLES,
    ),
    Row(
        "POST /v1/{prefix}/views/rename",
        "rename",
        ("alter", "select", "new:create"),
        STEWARD,
        lambda attempt: _rename(attempt, path=attempt.world.service.prefix),
        ok=204,
        on_table=True,
    ),
)
