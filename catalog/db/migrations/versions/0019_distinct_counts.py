"""How many distinct values the columns of a table have."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0019"
down_revision: str | None = "0018"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "lw_distinct_count",
        sa.Column("table_id", sa.String(36), sa.ForeignKey("lw_table.id"), nullable=False),
        sa.Column("field_id", sa.Integer(), nullable=False),
        sa.Column("snapshot_id", sa.BigInteger(), nullable=False),
        sa.Column("distinct_values", sa.BigInteger(), nullable=False),
        sa.Column("counted_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "field_id"),
    )
