"""The authorization matrix: Iceberg's snapshot procedures.

The table has no snapshot to move to, so who has UPDATE is told that the change cannot be made. What moves a
branch back also takes ALTER, which the commit decides: `tests/catalog/test_snapshot_procedures.py`.
"""

from __future__ import annotations

from typing import Any, Final

from tests.authorization.roles import OWN
from tests.authorization.rows import Row, Try

_SNAPSHOTS: Final = "/engine/v1/tables/{namespace}/{table}/snapshots"
_WRITERS: Final = "writer owner releaser sparked steward"
_LOADERS: Final = "reader writer alterer owner keeper mason releaser sparked steward"
_CHANGES: Final[dict[str, dict[str, Any]]] = {
    "rollback": {"snapshot-id": 1},
    "set-current": {"ref": "absent"},
    "cherry-pick": {"wap-id": "absent"},
    "fast-forward": {"branch": "main", "to": "absent"},
}


def _ask(attempt: Try, operation: str, body: dict[str, Any]) -> Any:
    url = f"/engine/v1/tables/{OWN}/{attempt.standing()}/snapshots/{operation}"
    return attempt.http.post(url, json=body)


ROWS: Final = (
    *(
        Row(
            f"POST {_SNAPSHOTS}/{operation}",
            "no snapshot",
            ("update",),
            _WRITERS,
            lambda attempt, operation=operation, body=body: _ask(attempt, operation, body),
            ok=400,
            on_table=True,
        )
        for operation, body in _CHANGES.items()
    ),
    Row(
        f"POST {_SNAPSHOTS}/ancestors",
        "look",
        ("select|update|alter",),
        _LOADERS,
        lambda attempt: _ask(attempt, "ancestors", {}),
        on_table=True,
    ),
)
