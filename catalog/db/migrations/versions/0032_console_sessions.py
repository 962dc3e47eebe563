"""Sessions of the console."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0032"
down_revision: str | None = "0031"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "lw_console_session",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("principal", sa.String(255), nullable=False),
        sa.Column("sealed_token", sa.LargeBinary(), nullable=False),
        sa.Column("begun_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_lw_console_session_principal", "lw_console_session", ["principal", "begun_ms"])
    op.create_index("ix_lw_console_session_expires", "lw_console_session", ["expires_ms"])
