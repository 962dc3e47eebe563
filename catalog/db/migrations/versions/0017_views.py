"""Views of the catalog."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0017"
down_revision: str | None = "0016"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "lw_view",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("catalog", sa.String(255), nullable=False),
        sa.Column("namespace", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("owner", sa.String(255), nullable=False),
        sa.Column("definer", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.UniqueConstraint("catalog", "namespace", "name"),
    )
