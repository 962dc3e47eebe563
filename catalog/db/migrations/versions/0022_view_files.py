"""Metadata files of views."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0022"
down_revision: str | None = "0020"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the column; views that exist get a file with their next change."""
    op.add_column("lw_view", sa.Column("metadata_location", sa.String(1000), nullable=True))
