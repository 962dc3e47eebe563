"""What the catalog knows of each Ranger Admin that policies come from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0031"
down_revision: str | None = "0030"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "lw_policy_source",
        sa.Column("catalog", sa.String(255), primary_key=True),
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("claim", sa.String(36), nullable=True),
        sa.Column("next_ms", sa.BigInteger(), nullable=False),
        sa.Column("attempted_ms", sa.BigInteger(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("origin", sa.String(64), nullable=True),
        sa.Column("made_from", sa.String(64), nullable=True),
        sa.Column("versions", sa.Text(), nullable=False),
        sa.Column("policies", sa.BigInteger(), nullable=False),
        sa.Column("left_out", sa.BigInteger(), nullable=False),
        sa.Column("taken_ms", sa.BigInteger(), nullable=False),
        sa.Column("confirmed_ms", sa.BigInteger(), nullable=True),
    )
