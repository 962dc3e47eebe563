"""Outcomes of requests with an idempotency key."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0007"
down_revision: str | None = "0006"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "lw_idempotency",
        sa.Column("principal", sa.String(255), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("attempt", sa.String(36), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("detail", sa.String(1000), nullable=True),
        sa.Column("refusal", sa.String(64), nullable=True),
        sa.Column("rule", sa.String(64), nullable=True),
        sa.Column("lease_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("principal", "key"),
    )
    op.create_index("ix_lw_idempotency_expires", "lw_idempotency", ["expires_ms"])
