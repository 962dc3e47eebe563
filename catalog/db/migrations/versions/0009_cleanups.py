"""Counts how often garbage collection removed files of a table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0009"
down_revision: str | None = "0008"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the column; it counts from now on."""
    op.add_column("lw_table", sa.Column("cleanups", sa.Integer(), nullable=False, server_default="0"))
