"""The authorization matrix: the life of tables' keys, for administrators and through engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID, uuid4

import httpx

from catalog.base.identifiers import table_name
from tests.authorization.roles import OWN, STEWARD
from tests.authorization.rows import Row, Try
from tests.authorization.world import SPARE_KEY, VAULT

_LOADERS: Final = "reader writer alterer owner keeper mason releaser sparked steward"
_KEYS: Final = "/tables/{namespace}/{table}/keys"
_DROPPED: Final = "/dropped-tables/{table_uuid}/keys"
#: Who holds both the table and its master key.
_HOLDERS: Final = "owner steward"
#: Who may drop a table would learn by it whether it is there.
_KNOWN: Final = "select|update|alter|drop"


def key_of(attempt: Try, table: str) -> UUID:
    """The id of a table's key; any for a table that does not exist."""
    if attempt.absent:
        return uuid4()
    services = attempt.world.lake.services
    name = table_name([OWN], table)
    return services.keyring.records(services.loader.load(name).record)[0].id


def rotated(attempt: Try) -> str:
    """An encrypted table; if it is going to be changed, its key has an earlier version that nothing needs."""
    table = attempt.table(encrypted=True)
    if attempt.allowed:
        lake = attempt.world.lake
        lake.services.key_rotation.rotate(lake.caller(STEWARD), table_name([OWN], table))
    return table


def _post(
    what: str, door: str = "admin", body: Callable[[Try, str], dict[str, Any]] = lambda attempt, table: {}
) -> Callable[[Try], httpx.Response]:
    def call(attempt: Try) -> httpx.Response:
        table = rotated(attempt)
        url = f"/{door}/v1/tables/{OWN}/{table}/keys{what}"
        return attempt.http.post(url, json=body(attempt, table))

    return call


def _all(attempt: Try, table: str) -> dict[str, Any]:
    return {"confirm": f"{OWN}.{table}"}


def _one(attempt: Try, table: str) -> dict[str, Any]:
    return {"confirm": f"{OWN}.{table}", "id": str(key_of(attempt, table)), "version": 1}


def _look(attempt: Try) -> httpx.Response:
    return attempt.http.get(f"/admin/v1/tables/{OWN}/{attempt.standing(encrypted=True)}/keys")


def _show(attempt: Try) -> httpx.Response:
    table = attempt.standing(encrypted=True)
    return attempt.http.get(f"/admin/v1/tables/{OWN}/{table}/keys/{key_of(attempt, VAULT)}")


def _master_key(attempt: Try, action: str, **more: str) -> httpx.Response:
    name = attempt.world.new("k")
    attempt.world.lake.kms.create_master_key(name)
    return attempt.http.post(f"/admin/v1/master-keys/{action}", json={"id": name, **more})


def _dropped(attempt: Try, method: str, what: str = "", **body: Any) -> httpx.Response:
    """Asks about the keys of a table that was dropped."""
    uuid, key = attempt.world.dropped()
    url = f"/admin/v1/dropped-tables/{uuid}/keys{what.format(pek_id=key)}"
    named = {each: str(uuid) if value == "UUID" else value for each, value in body.items()}
    return attempt.http.request(method, url, json=named if method == "POST" else None)


def _dropped_row(method: str, what: str, **body: Any) -> Row:
    return Row(
        f"{method} /admin/v1{_DROPPED}{what}",
        "dropped",
        ("admin",),
        "admin steward",
        lambda attempt: _dropped(attempt, method, what, **body),
    )


def _row(what: str, case: str, needs: tuple[str, ...], allowed: str, *more: Any) -> Row:
    return Row(
        f"POST /admin/v1{_KEYS}{what}",
        case,
        needs,
        allowed,
        _post(what, *more),
        on_table=True,
        known_to=_KNOWN,
    )


KEY_ROWS: Final = (
    Row(f"GET /admin/v1{_KEYS}", "look", ("select|update|alter",), _LOADERS, _look, on_table=True),
    Row(f"GET /admin/v1{_KEYS}/{{pek_id}}", "look", ("select|update|alter",), _LOADERS, _show, on_table=True),
    _row(
        "",
        "make",
        ("alter", "use"),
        "mason steward",
        "admin",
        lambda attempt, table: {"master-key-id": SPARE_KEY},
    ),
    _row("/rotate", "rotate", ("alter", "rotate"), _HOLDERS),
    _row("/rewrap", "rewrap", ("alter", "rotate"), _HOLDERS),
    _row("/disable", "disable", ("alter", "destroy"), _HOLDERS),
    _row("/enable", "enable", ("alter", "destroy"), _HOLDERS),
    _row("/destroy", "one version", ("alter", "destroy"), _HOLDERS, "admin", _one),
    _row("/destroy", "all", ("drop", "destroy"), _HOLDERS, "admin", _all),
    _dropped_row("GET", ""),
    _dropped_row("GET", "/{pek_id}"),
    _dropped_row("POST", "/disable"),
    _dropped_row("POST", "/enable"),
    _dropped_row("POST", "/destroy", confirm="UUID"),
    *(
        Row(
            f"POST /engine/v1{_KEYS}/{what}",
            what,
            ("alter", "rotate"),
            _HOLDERS,
            _post(f"/{what}", "engine"),
            on_table=True,
        )
        for what in ("rotate", "rewrap")
    ),
    *(
        Row(
            f"POST /admin/v1/master-keys/{what}",
            what,
            ("admin",),
            "admin steward",
            lambda attempt, what=what: _master_key(attempt, what),
        )
        for what in ("rotate", "rewrap")
    ),
    *(
        Row(
            f"GET /admin/v1/master-keys/{what}",
            "look",
            ("admin",),
            "admin steward",
            lambda attempt, what=what, query=query: attempt.http.get(
                f"/admin/v1/master-keys/{what}", params=query
            ),
        )
        for what, query in (("kms-keys", {}), ("keys", {}), ("needs", {"kms": "local"}))
    ),
    *(
        Row(
            f"POST /admin/v1/master-keys/{what}",
            what,
            ("admin", "rotate"),
            "steward",
            lambda attempt, what=what, more=more: _master_key(attempt, what, **more),
        )
        for what, more in (("assign", {"kms": "local"}), ("move", {}))
    ),
)
