"""The last epoch that each streaming query committed to a table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0016"
down_revision: str | None = "0015"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "lw_stream",
        sa.Column("table_id", sa.String(36), sa.ForeignKey("lw_table.id"), nullable=False),
        sa.Column("principal", sa.String(255), nullable=False),
        sa.Column("query_id", sa.String(36), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("write_id", sa.String(36), nullable=False),
        sa.Column("committed_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "principal", "query_id"),
    )
