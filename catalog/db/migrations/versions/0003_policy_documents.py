"""Policies in the database: every revision of every document, and the number of the last change."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "lw_policy_set",
        sa.Column("catalog", sa.String(255), primary_key=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
    )
    op.create_table(
        "lw_policy_document",
        sa.Column("catalog", sa.String(255), primary_key=True),
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("revision", sa.BigInteger(), primary_key=True),
        sa.Column("content", sa.LargeBinary(), nullable=True),
        sa.Column("sha256", sa.String(64), nullable=True),
        sa.Column("author", sa.String(255), nullable=False),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_lw_policy_document_revision", "lw_policy_document", ["catalog", "revision"])
