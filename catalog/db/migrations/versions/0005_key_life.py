"""The life of a table's keys: what tells a wrong key, and when a key is going to be destroyed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the columns; keys that are there get their check value when they are wrapped anew."""
    op.add_column("lw_pek", sa.Column("key_check", sa.LargeBinary(), nullable=True))
    op.add_column("lw_pek", sa.Column("destroy_after_ms", sa.BigInteger(), nullable=True))
