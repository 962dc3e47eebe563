"""The audit log: records for many decisions, the state of each chain, and checkpoints."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: None = None
depends_on: None = None

#: The existing chains. Sizes as in `catalog.audit.store`.
_CHAINS = """
INSERT INTO lw_audit_chain
    (writer, sequence, hash, at_ms, checkpointed, refusal_bytes, other_bytes, closed)
SELECT head.writer, head.sequence, head.hash, sums.latest, 0, sums.refusals, sums.others, true
FROM lw_audit AS head
JOIN (
    SELECT writer, MAX(sequence) AS last, MAX(at_ms) AS latest,
        SUM(CASE WHEN allowed THEN 0 ELSE size END) AS refusals,
        SUM(CASE WHEN allowed THEN size ELSE 0 END) AS others
    FROM (
        SELECT writer, sequence, at_ms, allowed,
            400 + LENGTH(principal) + LENGTH(COALESCE(engine, '')) + LENGTH(action) + LENGTH(resource)
            + LENGTH(reasons) + LENGTH(request_id) AS size
        FROM lw_audit
    ) AS sized
    GROUP BY writer
) AS sums ON sums.writer = head.writer AND sums.last = head.sequence
"""


def upgrade() -> None:
    """Add the column and the tables, and record the existing chains."""
    op.add_column("lw_audit", sa.Column("decisions", sa.BigInteger(), nullable=False, server_default="1"))
    op.create_table(
        "lw_audit_chain",
        sa.Column("writer", sa.String(36), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("checkpointed", sa.BigInteger(), nullable=False),
        sa.Column("refusal_bytes", sa.BigInteger(), nullable=False),
        sa.Column("other_bytes", sa.BigInteger(), nullable=False),
        sa.Column("closed", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("writer"),
    )
    op.create_table(
        "lw_audit_checkpoint",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("writer", sa.String(36), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("previous_hash", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("public_key", sa.String(64), nullable=True),
        sa.Column("signature", sa.String(128), nullable=True),
        sa.PrimaryKeyConstraint("number"),
    )
    op.execute(_CHAINS)
