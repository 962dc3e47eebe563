"""The authorization matrix: rewriting files, and the end of old encryption epochs."""

from __future__ import annotations

from typing import Final

import httpx

from tests.authorization.roles import OWN
from tests.authorization.rows import Row, Try

_TABLE: Final = "/tables/{namespace}/{table}"
_WRITERS: Final = "writer owner releaser sparked steward"
_ALTERERS: Final = "alterer owner keeper mason steward"
_LOOKERS: Final = "writer alterer owner keeper mason releaser sparked steward"


def _rewrites(attempt: Try, what: str = "rewrites", *, encrypted: bool = False) -> httpx.Response:
    url = f"/engine/v1/tables/{OWN}/{attempt.standing(encrypted=encrypted)}/{what}"
    return attempt.http.post(url, json={})


def _statistics(attempt: Try) -> httpx.Response:
    url = f"/engine/v1/tables/{OWN}/{attempt.standing()}/statistics"
    return attempt.http.post(url, json={"snapshot-id": 1, "distinct-counts": {"id": 1}})


def _maintain(attempt: Try, what: str) -> httpx.Response:
    return attempt.http.post(f"/engine/v1/tables/{OWN}/{attempt.table()}/{what}", json={})


def _epochs(attempt: Try) -> httpx.Response:
    return attempt.http.get(f"/admin/v1/tables/{OWN}/{attempt.standing(encrypted=True)}/regimes")


def _forbid(attempt: Try, door: str) -> httpx.Response:
    url = f"/{door}/v1/tables/{OWN}/{attempt.table(encrypted=True)}/regimes/forbid-old"
    return attempt.http.post(url, json={})


ROWS: Final = (
    Row(f"POST /engine/v1{_TABLE}/rewrites", "ask", ("update", "select"), _WRITERS, _rewrites, on_table=True),
    Row(
        f"POST /engine/v1{_TABLE}/rewrites",
        "ask of an encrypted table",
        ("update", "select", "release|engine"),
        "releaser sparked steward",
        lambda attempt: _rewrites(attempt, encrypted=True),
        on_table=True,
        known_to="update",
    ),
    Row(
        f"POST /engine/v1{_TABLE}/rewrites/position-deletes",
        "ask",
        ("update", "select"),
        _WRITERS,
        lambda attempt: _rewrites(attempt, "rewrites/position-deletes"),
        on_table=True,
    ),
    Row(
        f"POST /engine/v1{_TABLE}/rewrites/position-deletes",
        "ask of an encrypted table",
        ("update", "select", "release|engine"),
        "releaser sparked steward",
        lambda attempt: _rewrites(attempt, "rewrites/position-deletes", encrypted=True),
        on_table=True,
        known_to="update",
    ),
    Row(
        f"POST /engine/v1{_TABLE}/statistics",
        "no snapshot",
        ("update", "select"),
        _WRITERS,
        _statistics,
        ok=400,
        on_table=True,
    ),
    *(
        Row(
            f"POST /engine/v1{_TABLE}/{what}",
            "maintain",
            ("update",),
            _WRITERS,
            lambda attempt, what=what: _maintain(attempt, what),
            on_table=True,
        )
        for what in ("rewrites/dangling-deletes", "manifests/rewrite")
    ),
    Row(
        f"POST /engine/v1{_TABLE}/snapshots/expire",
        "expire",
        ("alter", "drop", "update"),
        "owner steward",
        lambda attempt: _maintain(attempt, "snapshots/expire"),
        on_table=True,
    ),
    Row(
        f"POST /engine/v1{_TABLE}/orphan-files/remove",
        "remove",
        ("alter", "drop"),
        "owner steward",
        lambda attempt: _maintain(attempt, "orphan-files/remove"),
        on_table=True,
    ),
    Row(f"GET /admin/v1{_TABLE}/regimes", "look", ("alter|update",), _LOOKERS, _epochs, on_table=True),
    *(
        Row(
            f"POST /{door}/v1{_TABLE}/regimes/forbid-old",
            "forbid",
            ("alter",),
            _ALTERERS,
            lambda attempt, door=door: _forbid(attempt, door),
            on_table=True,
        )
        for door in ("engine", "admin")
    ),
)
