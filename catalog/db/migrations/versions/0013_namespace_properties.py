"""Namespace properties that protect tables, apart from the pointer store.

A database that governs tables keeps what its namespaces say. Of one that is adopted, it counts for nothing.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0013"
down_revision: str | None = "0012"
branch_labels: None = None
depends_on: None = None

_NAMES = ("lakewarden.unsealed", "encryption.standard-clients")


def upgrade() -> None:
    """Add the table, and move the properties there."""
    table = op.create_table(
        "lw_namespace_property",
        sa.Column("catalog_name", sa.String(255), primary_key=True),
        sa.Column("namespace", sa.String(255), primary_key=True),
        sa.Column("property_key", sa.String(255), primary_key=True),
        sa.Column("property_value", sa.String(1000), nullable=False),
    )
    connection = op.get_bind()
    before = sa.table("iceberg_namespace_properties", *(sa.column(each.name) for each in table.columns))
    if connection.execute(sa.text("SELECT id FROM lw_table LIMIT 1")).first() is not None:
        rows = connection.execute(sa.select(before).where(before.c.property_key.in_(_NAMES)))
        op.bulk_insert(table, [dict(row._mapping) for row in rows])
