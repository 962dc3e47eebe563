"""Keys that master keys wrap, of tables and of the KMS endpoint, in one table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0014"
down_revision: str | None = "0013"
branch_labels: None = None
depends_on: None = None

_MOVED = ("master_key_id", "kms", "wrapped", "key_check", "state", "created_ms")


def upgrade() -> None:
    """Move the wrapped form and the state of the KMS endpoint's keys to those of PEKs."""
    with op.batch_alter_table("lw_pek") as peks:
        peks.alter_column("table_id", existing_type=sa.String(36), nullable=True)
    before = sa.table("lw_door_key", *map(sa.column, ("id", *_MOVED)))
    after = sa.table("lw_pek", *map(sa.column, ("id", "version", *_MOVED)))
    rows = sa.select(before.c.id, sa.literal(1), *(before.c[each] for each in _MOVED))
    op.execute(sa.insert(after).from_select(["id", "version", *_MOVED], rows))
    for column in _MOVED:
        op.drop_column("lw_door_key", column)
