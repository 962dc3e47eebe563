"""Groups and roles of users in one place, and no longer in each token."""

from __future__ import annotations

import json
from collections import defaultdict

import sqlalchemy as sa
from alembic import op

revision: str = "0027"
down_revision: str | None = "0026"
branch_labels: None = None
depends_on: None = None

_LISTS = ("groups", "roles")


def upgrade() -> None:
    """Add the table. A principal gets the groups and roles of all of its tokens that are not revoked."""
    principals = op.create_table(
        "lw_principal",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("groups", sa.Text, nullable=False),
        sa.Column("roles", sa.Text, nullable=False),
        sa.Column("issuer", sa.String(32), nullable=True),
        sa.Column("claimed_groups", sa.Text, nullable=True),
        sa.Column("claimed_roles", sa.Text, nullable=True),
        sa.Column("claimed_ms", sa.BigInteger, nullable=True),
        sa.Column("known_since_ms", sa.BigInteger, nullable=False),
        sa.Column("disabled_ms", sa.BigInteger, nullable=True),
    )
    if rows := _principals():
        # Row by row: one statement has room for some thousand of them.
        op.get_bind().execute(sa.insert(principals), rows)
    for column in _LISTS:
        op.drop_column("lw_token", column)


def _principals() -> list[dict[str, object]]:
    token = sa.table("lw_token", *map(sa.column, ("principal", *_LISTS, "created_ms", "revoked_ms")))
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: {name: set() for name in _LISTS})
    since: dict[str, int] = {}
    for row in op.get_bind().execute(sa.select(token).order_by(token.c.created_ms)).mappings():
        names = found[row["principal"]]
        since.setdefault(row["principal"], row["created_ms"])
        for column in _LISTS if row["revoked_ms"] is None else ():
            names[column] |= set(json.loads(row[column]))
    return [
        {"name": name, "known_since_ms": since[name], **{k: json.dumps(sorted(v)) for k, v in names.items()}}
        for name, names in found.items()
    ]
