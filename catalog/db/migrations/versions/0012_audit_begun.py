"""Audit records of operations that begin, apart from grants and refusals."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0012"
down_revision: str | None = "0011"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the column; existing records are grants and refusals."""
    op.add_column("lw_audit", sa.Column("begun", sa.Boolean(), nullable=False, server_default=sa.false()))
