"""Records which snapshots were compared with their parents at commit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0011"
down_revision: str | None = "0010"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Existing snapshots were not: what a commit carries over from one of them is checked once."""
    op.add_column("lw_sealed_file", sa.Column("verified", sa.Boolean(), nullable=True))
