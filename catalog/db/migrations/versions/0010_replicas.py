"""Settings of all processes, and the digests of each process's settings.

A database that governs tables already keeps what unsealed metadata was by default, `allow`. A new one
forbids it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0010"
down_revision: str | None = "0009"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the tables."""
    settings = op.create_table(
        "lw_setting",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("value", sa.String(255), nullable=False),
    )
    op.create_table(
        "lw_replica",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("catalog", sa.String(255), nullable=False),
        sa.Column("seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("digests", sa.Text(), nullable=False),
    )
    governs = op.get_bind().execute(sa.text("SELECT id FROM lw_table LIMIT 1")).first() is not None
    op.bulk_insert(settings, [{"name": "unsealed_metadata", "value": "allow" if governs else "forbid"}])
