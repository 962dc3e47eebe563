"""Names without regard to letter case, in the order of lists."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from policy.letter_case import fold

revision: str = "0026"
down_revision: str | None = "0025"
branch_labels: None = None
depends_on: None = None


def upgrade() -> None:
    """Add the column to tables and views, and the indexes."""
    for table, key in (("lw_binding", "table_id"), ("lw_view", "id")):
        _add_folded(table, key)


def _add_folded(table: str, key: str) -> None:
    collation = "C" if op.get_bind().dialect.name == "postgresql" else None
    kind = sa.String(255, collation=collation)
    op.add_column(table, sa.Column("folded", kind, nullable=True))
    rows = sa.table(table, *map(sa.column, (key, "name", "folded")))
    names = op.get_bind().execute(sa.select(rows.c[key].label("key_"), rows.c.name)).all()
    if names:
        changed = sa.update(rows).where(rows.c[key] == sa.bindparam("key_"))
        values = [{"key_": row.key_, "folded": fold(row.name)} for row in names]
        op.get_bind().execute(changed.values(folded=sa.bindparam("folded")), values)
    with op.batch_alter_table(table) as altered:
        altered.alter_column("folded", existing_type=kind, nullable=False)
    op.create_index(f"ix_{table}_folded", table, ["catalog", "namespace", "folded", "name"])
