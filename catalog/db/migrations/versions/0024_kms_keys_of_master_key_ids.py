"""The KMS key that each master key id stands for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0024"
down_revision: str | None = "0023"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the table and the column; a key of before is under the KMS key of its master key's id."""
    op.create_table(
        "lw_master_key",
        sa.Column("catalog", sa.String(255), nullable=False),
        sa.Column("id", sa.String(255), nullable=False),
        sa.Column("kms", sa.String(64), nullable=False),
        sa.Column("kms_key_id", sa.String(255), nullable=False),
        sa.Column("author", sa.String(255), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("catalog", "id"),
    )
    op.add_column("lw_pek", sa.Column("kms_key_id", sa.String(255), nullable=True))
    peks = sa.table("lw_pek", *map(sa.column, ("id", "table_id", "master_key_id", "kms", "kms_key_id")))
    op.execute(sa.update(peks).values(kms_key_id=peks.c.master_key_id))
    with op.batch_alter_table("lw_pek") as altered:
        altered.alter_column("kms_key_id", existing_type=sa.String(255), nullable=False)
    _assign()


def _assign() -> None:
    """Assign each master key id to the KMS that wrapped its latest key."""
    peks = sa.table(
        "lw_pek", *map(sa.column, ("id", "table_id", "master_key_id", "kms", "wrapped", "created_ms"))
    )
    tables, doors = (
        sa.table(name, *map(sa.column, ("id", "catalog"))) for name in ("lw_table", "lw_door_key")
    )
    catalog = sa.func.coalesce(tables.c.catalog, doors.c.catalog).label("catalog")
    query = (
        sa.select(catalog, peks.c.master_key_id, peks.c.kms, peks.c.created_ms)
        .outerjoin(tables, tables.c.id == peks.c.table_id)
        .outerjoin(doors, doors.c.id == peks.c.id)
        .where(peks.c.wrapped != b"", catalog.is_not(None))
        .order_by(peks.c.created_ms)
    )
    latest = {(row.catalog, row.master_key_id): row for row in op.get_bind().execute(query)}
    rows = [
        {
            "catalog": row.catalog,
            "id": row.master_key_id,
            "kms": row.kms,
            "kms_key_id": row.master_key_id,
            "author": "",
            "changed_ms": row.created_ms,
        }
        for row in latest.values()
    ]
    names = ("catalog", "id", "kms", "kms_key_id", "author", "changed_ms")
    if rows:
        op.bulk_insert(sa.table("lw_master_key", *map(sa.column, names)), rows)
