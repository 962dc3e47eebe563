"""Writes that replace their table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0015"
down_revision: str | None = "0014"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the metadata.json that a write replaces; existing writes replace no table."""
    op.add_column("lw_write", sa.Column("base_location", sa.String(1000), nullable=True))
