"""An index of tokens by their principals."""

from __future__ import annotations

from alembic import op

revision: str = "0028"
down_revision: str | None = "0027"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the index. Without it, each question about a user reads every token."""
    op.create_index("ix_lw_token_principal", "lw_token", ["principal"])
