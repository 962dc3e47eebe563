"""Write locations of staged tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0023"
down_revision: str | None = "0022"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the column; for creations that are staged already, no requests are signed."""
    op.add_column("lw_staged", sa.Column("write_locations", sa.Text(), nullable=True))
