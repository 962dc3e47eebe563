"""An index of the tables' locations, in the order of their bytes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0025"
down_revision: str | None = "0024"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Order locations by bytes on PostgreSQL, as SQLite does anyway, and add the index."""
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("lw_table", "location", type_=sa.String(1000, collation="C"))
    op.create_index("ix_lw_table_location", "lw_table", ["catalog", "location"])
