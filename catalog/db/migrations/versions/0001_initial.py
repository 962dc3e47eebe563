"""The first schema: governed state, seals, keys, writes, tokens, audit log, and the pointers if they are
missing.

The tables that hold the pointers may be there already, made by pyiceberg's `SqlCatalog`: they are adopted,
with their rows. Its older layout lacks the column `iceberg_type`, which is added.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from policy.errors import StateUnavailable

revision: str = "0001"
down_revision: str | None = None
branch_labels: None = None
depends_on: None = None

#: A 64-bit id that SQLite, too, increments automatically.
BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_POINTER_COLUMNS = frozenset(
    {"catalog_name", "table_namespace", "table_name", "metadata_location", "previous_metadata_location"}
)
_PROPERTY_COLUMNS = frozenset({"catalog_name", "namespace", "property_key", "property_value"})


def upgrade() -> None:
    """Create the missing tables."""
    _adopt_pointers()
    _adopt_namespaces()
    _create_tables_and_names()
    _create_keys()
    _create_seals()
    _create_writes()
    _create_tokens()
    _create_audit()


def _existing_columns(table: str, required: frozenset[str]) -> frozenset[str]:
    """Return the columns of an existing table; none if it does not exist."""
    found = sa.inspect(op.get_bind())
    if not found.has_table(table):
        return frozenset()
    columns = frozenset(column["name"] for column in found.get_columns(table))
    if not required <= columns:
        raise StateUnavailable(
            f"The database contains a table {table} that is not the one of an Iceberg catalog.",
            rule="database-revision",
            hint="Set `database.url` to an empty database, or to one that pyiceberg's SqlCatalog created.",
        )
    return columns


def _adopt_pointers() -> None:
    columns = _existing_columns("iceberg_tables", _POINTER_COLUMNS)
    if not columns:
        _create_pointers()
    elif "iceberg_type" not in columns:
        op.add_column("iceberg_tables", sa.Column("iceberg_type", sa.String(5), nullable=True))


def _adopt_namespaces() -> None:
    if not _existing_columns("iceberg_namespace_properties", _PROPERTY_COLUMNS):
        _create_namespaces()


def _create_pointers() -> None:
    op.create_table(
        "iceberg_tables",
        sa.Column("catalog_name", sa.String(255), nullable=False),
        sa.Column("table_namespace", sa.String(255), nullable=False),
        sa.Column("table_name", sa.String(255), nullable=False),
        sa.Column("metadata_location", sa.String(1000), nullable=True),
        sa.Column("previous_metadata_location", sa.String(1000), nullable=True),
        sa.Column("iceberg_type", sa.String(5), nullable=True),
        sa.PrimaryKeyConstraint("catalog_name", "table_namespace", "table_name"),
    )


def _create_namespaces() -> None:
    op.create_table(
        "iceberg_namespace_properties",
        sa.Column("catalog_name", sa.String(255), nullable=False),
        sa.Column("namespace", sa.String(255), nullable=False),
        sa.Column("property_key", sa.String(255), nullable=False),
        sa.Column("property_value", sa.String(1000), nullable=False),
        sa.PrimaryKeyConstraint("catalog_name", "namespace", "property_key"),
    )


def _create_tables_and_names() -> None:
    """Tables, their names, their governed properties."""
    op.create_table(
        "lw_table",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("catalog", sa.String(255), nullable=False),
        sa.Column("table_uuid", sa.String(36), nullable=False),
        sa.Column("namespace", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("owner", sa.String(255), nullable=False),
        sa.Column("location", sa.String(1000), nullable=False),
        sa.Column("default_location", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("dropped_ms", sa.BigInteger(), nullable=True),
        sa.Column("pending_namespace", sa.String(255), nullable=True),
        sa.Column("pending_name", sa.String(255), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("table_uuid"),
    )
    op.create_index("ix_lw_table_state", "lw_table", ["catalog", "state"], unique=False)
    op.create_table(
        "lw_binding",
        sa.Column("catalog", sa.String(255), nullable=False),
        sa.Column("namespace", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("table_id", sa.String(36), nullable=False),
        sa.ForeignKeyConstraint(["table_id"], ["lw_table.id"]),
        sa.PrimaryKeyConstraint("catalog", "namespace", "name"),
        sa.UniqueConstraint("table_id"),
    )

    op.create_table(
        "lw_governed",
        sa.Column("table_id", sa.String(36), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("allowed_paths", sa.Text(), nullable=False),
        sa.Column("properties", sa.Text(), nullable=False),
        sa.Column("regimes", sa.Text(), nullable=False),
        sa.Column("author", sa.String(255), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["table_id"], ["lw_table.id"]),
        sa.PrimaryKeyConstraint("table_id", "version"),
    )

    op.create_table(
        "lw_staged",
        sa.Column("table_uuid", sa.String(36), nullable=False),
        sa.Column("catalog", sa.String(255), nullable=False),
        sa.Column("namespace", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("location", sa.String(1000), nullable=False),
        sa.Column("default_location", sa.Boolean(), nullable=False),
        sa.Column("principal", sa.String(255), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("table_uuid"),
    )


def _create_keys() -> None:
    """Encryption keys of tables."""
    op.create_table(
        "lw_pek",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("table_id", sa.String(36), nullable=False),
        sa.Column("master_key_id", sa.String(255), nullable=False),
        sa.Column("kms", sa.String(64), nullable=False),
        sa.Column("wrapped", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["table_id"], ["lw_table.id"]),
        sa.PrimaryKeyConstraint("id", "version"),
        sa.UniqueConstraint("table_id", "master_key_id", "version"),
    )
    op.create_index(op.f("ix_lw_pek_table_id"), "lw_pek", ["table_id"], unique=False)


def _create_seals() -> None:
    """Digests of metadata files."""
    op.create_table(
        "lw_seal",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("table_id", sa.String(36), nullable=False),
        sa.Column("metadata_location", sa.String(1000), nullable=False),
        sa.Column("base_location", sa.String(1000), nullable=True),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("length", sa.BigInteger(), nullable=False),
        sa.Column("governed_version", sa.Integer(), nullable=False),
        sa.Column("last_sequence_number", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("author", sa.String(255), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["table_id"], ["lw_table.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("metadata_location"),
    )
    op.create_index("ix_lw_seal_table_state", "lw_seal", ["table_id", "state"], unique=False)
    op.create_table(
        "lw_sealed_file",
        sa.Column("table_id", sa.String(36), nullable=False),
        sa.Column("path", sa.String(1000), nullable=False),
        sa.Column("seal_id", BIG_ID, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("length", sa.BigInteger(), nullable=False),
        sa.Column("snapshot_id", sa.BigInteger(), nullable=False),
        sa.Column("sequence_number", sa.BigInteger(), nullable=False),
        sa.Column("partition_spec_id", sa.Integer(), nullable=False),
        sa.Column("content", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["seal_id"], ["lw_seal.id"]),
        sa.ForeignKeyConstraint(["table_id"], ["lw_table.id"]),
        sa.PrimaryKeyConstraint("table_id", "path", "seal_id"),
    )
    op.create_index("ix_lw_sealed_file_seal", "lw_sealed_file", ["seal_id"], unique=False)


def _create_writes() -> None:
    """Writes that engines began."""
    op.create_table(
        "lw_write",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("table_id", sa.String(36), nullable=False),
        sa.Column("principal", sa.String(255), nullable=False),
        sa.Column("prefix", sa.String(1000), nullable=False),
        sa.Column("governed_version", sa.Integer(), nullable=False),
        sa.Column("pek_id", sa.String(36), nullable=True),
        sa.Column("pek_version", sa.Integer(), nullable=True),
        sa.Column("wrapped_transport_key", sa.LargeBinary(), nullable=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("snapshot_id", sa.BigInteger(), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["table_id"], ["lw_table.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_lw_write_state", "lw_write", ["state", "expires_ms"], unique=False)


def _create_tokens() -> None:
    """Bearer tokens."""
    op.create_table(
        "lw_token",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("principal", sa.String(255), nullable=False),
        sa.Column("groups", sa.Text(), nullable=False),
        sa.Column("roles", sa.Text(), nullable=False),
        sa.Column("secret_sha256", sa.String(64), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=True),
        sa.Column("revoked_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )


def _create_audit() -> None:
    """The audit log."""
    op.create_table(
        "lw_audit",
        sa.Column("writer", sa.String(36), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("principal", sa.String(255), nullable=False),
        sa.Column("engine", sa.String(255), nullable=True),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("allowed", sa.Boolean(), nullable=False),
        sa.Column("reasons", sa.Text(), nullable=False),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("previous_hash", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("writer", "sequence"),
    )
    op.create_index("ix_lw_audit_at", "lw_audit", ["at_ms"], unique=False)
