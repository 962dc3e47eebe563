"""Writes that create their table: the write stores the metadata of the new table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the column, and an index to find the writes of a table."""
    op.add_column("lw_write", sa.Column("staged_metadata", sa.Text(), nullable=True))
    op.create_index("ix_lw_write_table", "lw_write", ["table_id"])
