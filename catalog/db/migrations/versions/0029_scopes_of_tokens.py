"""What tokens are limited to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0029"
down_revision: str | None = "0028"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the column. Tokens from before have no scope."""
    op.add_column("lw_token", sa.Column("scope", sa.Text(), nullable=True))
