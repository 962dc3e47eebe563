"""Key life cycle: check value, time of destruction, purges; the keys of the KMS endpoint."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the columns; existing keys get their check value when they are rewrapped."""
    op.add_column("lw_pek", sa.Column("key_check", sa.LargeBinary(), nullable=True))
    op.add_column("lw_pek", sa.Column("destroy_after_ms", sa.BigInteger(), nullable=True))
    op.add_column("lw_table", sa.Column("purging", sa.Boolean(), nullable=True))
    op.create_table(
        "lw_door_key",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("catalog", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("bits", sa.Integer(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("attributes", sa.Text(), nullable=False),
        sa.Column("denial", sa.String(16), nullable=False),
        sa.Column("master_key_id", sa.String(255), nullable=False),
        sa.Column("kms", sa.String(64), nullable=False),
        sa.Column("wrapped", sa.LargeBinary(), nullable=False),
        sa.Column("key_check", sa.LargeBinary(), nullable=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("author", sa.String(255), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("catalog", "name"),
    )
    op.create_table(
        "lw_door_key_version",
        sa.Column("key_id", sa.String(36), sa.ForeignKey("lw_door_key.id"), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("author", sa.String(255), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", "version"),
    )
