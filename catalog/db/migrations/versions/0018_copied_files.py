"""The files outside of a table that its rows were copied from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0018"
down_revision: str | None = "0017"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "lw_copied_file",
        sa.Column("table_id", sa.String(36), sa.ForeignKey("lw_table.id"), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("write_id", sa.String(36), nullable=False),
        sa.Column("committed_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "digest"),
    )
