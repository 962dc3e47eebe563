"""Counts how often keys have encrypted."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels: None = None
depends_on: None = None

#: The assumed count of existing keys, which were never counted: a sixteenth of the limit.
_TAKEN_TO_HAVE: Final = 2**28


def upgrade() -> None:
    """Count from now on; existing keys begin with a number that they have hardly reached."""
    made = op.create_table(
        "lw_key_invocations",
        sa.Column("key_id", sa.String(36), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("counted", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", "version"),
    )
    pek = sa.table("lw_pek", sa.column("id"), sa.column("version"))
    door = sa.table("lw_door_key", sa.column("id"))
    many = sa.literal(_TAKEN_TO_HAVE)
    for known in (sa.select(pek.c.id, pek.c.version, many), sa.select(door.c.id, sa.literal(1), many)):
        op.execute(made.insert().from_select(["key_id", "version", "counted"], known))
