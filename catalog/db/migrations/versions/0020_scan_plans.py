"""Plans of standard clients that are answered in parts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0020"
down_revision: str | None = "0019"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "lw_scan_plan",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("table_id", sa.String(36), sa.ForeignKey("lw_table.id"), nullable=False),
        sa.Column("principal", sa.String(255), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("tasks", sa.Text(), nullable=False),
        sa.Column("restrictions", sa.String(64), nullable=True),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_lw_scan_plan_expires", "lw_scan_plan", ["expires_ms"])
    op.create_index("ix_lw_scan_plan_principal", "lw_scan_plan", ["principal"])
