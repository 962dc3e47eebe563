"""Public keys of engines, and tokens that register them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0008"
down_revision: str | None = "0007"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the column and the table; existing tokens of engines keep working at each start."""
    op.add_column("lw_token", sa.Column("used_ms", sa.BigInteger(), nullable=True))
    op.execute("UPDATE lw_token SET kind = 'engine-reusable' WHERE kind = 'engine'")
    op.create_table(
        "lw_engine_key",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("token_id", sa.String(36), nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.ForeignKeyConstraint(["token_id"], ["lw_token.id"]),
        sa.UniqueConstraint("token_id", "public_key"),
    )
