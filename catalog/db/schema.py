"""The governed state as SQL tables.

Everything that must not lie hangs on a table's internal id (`lw_table.id`). A name is bound to an id in
`lw_binding`, one to one; the UUID in a metadata file is only ever compared with `lw_table.table_uuid`.

What changes together with a metadata pointer (a governed version, an epoch) is written in state `prepared`
beside the seal of the new metadata.json, and takes force when that seal becomes `current`.

The pointers themselves (`iceberg_tables`, `iceberg_namespace_properties`) have the layout of pyiceberg's
`SqlCatalog`, so that an existing catalog database can be adopted.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)

metadata: Final = MetaData()

#: A 64-bit id that SQLite, too, counts up by itself.
BIG_ID: Final = BigInteger().with_variant(Integer, "sqlite")

iceberg_tables = Table(
    "iceberg_tables",
    metadata,
    Column("catalog_name", String(255), primary_key=True),
    Column("table_namespace", String(255), primary_key=True),
    Column("table_name", String(255), primary_key=True),
    Column("metadata_location", String(1000), nullable=True),
    Column("previous_metadata_location", String(1000), nullable=True),
    Column("iceberg_type", String(5), nullable=True),
)

iceberg_namespace_properties = Table(
    "iceberg_namespace_properties",
    metadata,
    Column("catalog_name", String(255), primary_key=True),
    Column("namespace", String(255), primary_key=True),
    Column("property_key", String(255), primary_key=True),
    Column("property_value", String(1000), nullable=False),
)

#: Properties of namespaces that protect tables (`policy.privileges.namespaces.PROTECTING`). They are not with
#: the others, since users who can write the pointer store must not switch them off.
lw_namespace_property = Table(
    "lw_namespace_property",
    metadata,
    Column("catalog_name", String(255), primary_key=True),
    Column("namespace", String(255), primary_key=True),
    Column("property_key", String(255), primary_key=True),
    Column("property_value", String(1000), nullable=False),
)

#: A governed table, alive or as the tombstone of a dropped one. `state`: prepared, active, dropped, purged.
lw_table = Table(
    "lw_table",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("catalog", String(255), nullable=False),
    Column("table_uuid", String(36), nullable=False, unique=True),
    Column("namespace", String(255), nullable=False),
    Column("name", String(255), nullable=False),
    Column("owner", String(255), nullable=False),
    Column("location", String(1000), nullable=False),
    Column("default_location", Boolean, nullable=False),
    Column("state", String(16), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("dropped_ms", BigInteger, nullable=True),
    Column("purging", Boolean, nullable=True),
    Column("pending_namespace", String(255), nullable=True),
    Column("pending_name", String(255), nullable=True),
    Column("cleanups", Integer, nullable=False, server_default="0"),
    Index("ix_lw_table_state", "catalog", "state"),
)

#: The name of an active table; the only way from a name to governed state.
lw_binding = Table(
    "lw_binding",
    metadata,
    Column("catalog", String(255), primary_key=True),
    Column("namespace", String(255), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("table_id", String(36), ForeignKey("lw_table.id"), nullable=False, unique=True),
)

#: One version of a table's governed properties. `state`: prepared, current, superseded, abandoned.
lw_governed = Table(
    "lw_governed",
    metadata,
    Column("table_id", String(36), ForeignKey("lw_table.id"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("state", String(16), nullable=False),
    Column("allowed_paths", Text, nullable=False),
    Column("properties", Text, nullable=False),
    Column("regimes", Text, nullable=False),
    Column("author", String(255), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)

#: A table's encryption key, wrapped by its master key. `state`: active, decrypt-only, disabled, destroyed.
#: `key_check` tells a wrong key from the right one, and tells nothing of either; null for keys of old.
#: `destroy_after_ms`: a disabled key that is going to be destroyed, and when. Of a destroyed one, `wrapped`
#: is empty.
lw_pek = Table(
    "lw_pek",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("table_id", String(36), ForeignKey("lw_table.id"), nullable=False, index=True),
    Column("master_key_id", String(255), nullable=False),
    Column("kms", String(64), nullable=False),
    Column("wrapped", LargeBinary, nullable=False),
    Column("state", String(16), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("key_check", LargeBinary, nullable=True),
    Column("destroy_after_ms", BigInteger, nullable=True),
    UniqueConstraint("table_id", "master_key_id", "version"),
)

#: How often a version of a key has encrypted at most (`catalog.state.invocations`): of a table's key, or
#: of one of the KMS endpoint's, whose versions are 1. A key that has no row has never encrypted.
lw_key_invocations = Table(
    "lw_key_invocations",
    metadata,
    Column("key_id", String(36), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("counted", BigInteger, nullable=False),
)

#: The digest of one metadata.json. `state`: prepared, current, superseded, abandoned.
lw_seal = Table(
    "lw_seal",
    metadata,
    Column("id", BIG_ID, primary_key=True, autoincrement=True),
    Column("table_id", String(36), ForeignKey("lw_table.id"), nullable=False),
    Column("metadata_location", String(1000), nullable=False, unique=True),
    Column("base_location", String(1000), nullable=True),
    Column("sha256", String(64), nullable=False),
    Column("length", BigInteger, nullable=False),
    Column("governed_version", Integer, nullable=False),
    Column("last_sequence_number", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("author", String(255), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Index("ix_lw_seal_table_state", "table_id", "state"),
)

#: The digest of a manifest list or manifest, and what its parent says of it, as brought by one commit. Valid
#: once that commit's seal has been current. `verified`: whether the snapshot of a list was compared with its
#: parent; null for those of before.
lw_sealed_file = Table(
    "lw_sealed_file",
    metadata,
    Column("table_id", String(36), ForeignKey("lw_table.id"), primary_key=True),
    Column("path", String(1000), primary_key=True),
    Column("seal_id", BIG_ID, ForeignKey("lw_seal.id"), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("length", BigInteger, nullable=False),
    Column("snapshot_id", BigInteger, nullable=False),
    Column("sequence_number", BigInteger, nullable=False),
    Column("partition_spec_id", Integer, nullable=False),
    Column("content", Integer, nullable=False),
    Column("verified", Boolean, nullable=True),
    Index("ix_lw_sealed_file_seal", "seal_id"),
)

#: A table that was staged and not yet committed: its identity was given out by the catalog.
lw_staged = Table(
    "lw_staged",
    metadata,
    Column("table_uuid", String(36), primary_key=True),
    Column("catalog", String(255), nullable=False),
    Column("namespace", String(255), nullable=False),
    Column("name", String(255), nullable=False),
    Column("location", String(1000), nullable=False),
    Column("default_location", Boolean, nullable=False),
    Column("principal", String(255), nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
)

#: A write that an engine began. `state`: open, committing, committed, closed, clearing, aborted, swept.
#: `snapshot_id` is of the last attempt to commit it. `staged_metadata` is that of the table which the commit
#: creates; null where the table was there.
lw_write = Table(
    "lw_write",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("table_id", String(36), ForeignKey("lw_table.id"), nullable=False),
    Column("principal", String(255), nullable=False),
    Column("prefix", String(1000), nullable=False),
    Column("governed_version", Integer, nullable=False),
    Column("pek_id", String(36), nullable=True),
    Column("pek_version", Integer, nullable=True),
    Column("wrapped_transport_key", LargeBinary, nullable=True),
    Column("state", String(16), nullable=False),
    Column("snapshot_id", BigInteger, nullable=True),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Column("staged_metadata", Text, nullable=True),
    Index("ix_lw_write_state", "state", "expires_ms"),
    Index("ix_lw_write_table", "table_id"),
)

#: A request with an idempotency key: its outcome, or the attempt that is under way
#: (`catalog.state.idempotency`). `status` is null until there is an outcome; `detail` is what the answer is
#: rebuilt from.
lw_idempotency = Table(
    "lw_idempotency",
    metadata,
    Column("principal", String(255), primary_key=True),
    Column("key", String(64), primary_key=True),
    Column("attempt", String(36), nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("status", Integer, nullable=True),
    Column("detail", String(1000), nullable=True),
    Column("refusal", String(64), nullable=True),
    Column("rule", String(64), nullable=True),
    Column("lease_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Index("ix_lw_idempotency_expires", "expires_ms"),
)

#: Tokens. Only the SHA-256 of the secret is kept. `kind`: user, engine, engine-reusable, kms. `used_ms`: when
#: an engine last registered a key with it.
lw_token = Table(
    "lw_token",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("principal", String(255), nullable=False),
    Column("groups", Text, nullable=False),
    Column("roles", Text, nullable=False),
    Column("secret_sha256", String(64), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=True),
    Column("revoked_ms", BigInteger, nullable=True),
    Column("used_ms", BigInteger, nullable=True),
)

#: Public keys (Ed25519, 32 bytes) that engines registered with a token, and sign their requests with.
lw_engine_key = Table(
    "lw_engine_key",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("token_id", String(36), ForeignKey("lw_token.id"), nullable=False),
    Column("public_key", LargeBinary, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    UniqueConstraint("token_id", "public_key"),
)

#: The number of the last change of the policies that a catalog keeps itself, and the digest of what they say
#: since; no row before the first change.
lw_policy_set = Table(
    "lw_policy_set",
    metadata,
    Column("catalog", String(255), primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("digest", String(64), nullable=False),
)

#: What a change made of one policy document; without content, it was removed. `kind`: ranger, encryption.
#: Rows are never changed. The last one of a document is what it says now.
lw_policy_document = Table(
    "lw_policy_document",
    metadata,
    Column("catalog", String(255), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("revision", BigInteger, primary_key=True),
    Column("content", LargeBinary, nullable=True),
    Column("sha256", String(64), nullable=True),
    Column("author", String(255), nullable=False),
    Column("request_id", String(64), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Index("ix_lw_policy_document_revision", "catalog", "revision"),
)

#: The audit trail: one hash chain a writer (a process), in the order in which that writer decided.
#: `decisions`: for how many the record stands.
lw_audit = Table(
    "lw_audit",
    metadata,
    Column("writer", String(36), primary_key=True),
    Column("sequence", BigInteger, primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("principal", String(255), nullable=False),
    Column("engine", String(255), nullable=True),
    Column("action", String(64), nullable=False),
    Column("resource", Text, nullable=False),
    Column("allowed", Boolean, nullable=False),
    Column("begun", Boolean, nullable=False, server_default=false()),
    Column("reasons", Text, nullable=False),
    Column("request_id", String(64), nullable=False),
    Column("previous_hash", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Column("decisions", BigInteger, nullable=False, server_default="1"),
    Index("ix_lw_audit_at", "at_ms"),
)

#: Where a writer's chain ends, the latest time in it, up to which record a checkpoint names it, what its
#: records need of space, and whether its writer has ended.
lw_audit_chain = Table(
    "lw_audit_chain",
    metadata,
    Column("writer", String(36), primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("checkpointed", BigInteger, nullable=False),
    Column("refusal_bytes", BigInteger, nullable=False),
    Column("other_bytes", BigInteger, nullable=False),
    Column("closed", Boolean, nullable=False),
)

#: Heads of chains, written down from time to time in a chain of its own; see `catalog.audit.checkpoints`.
lw_audit_checkpoint = Table(
    "lw_audit_checkpoint",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("writer", String(36), nullable=False),
    Column("content", Text, nullable=False),
    Column("previous_hash", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Column("public_key", String(64), nullable=True),
    Column("signature", String(128), nullable=True),
)

#: A key of the KMS endpoint for stock Hadoop clients (`catalog.kms_server`). `wrapped` is what seals its
#: versions, as the KMS wrapped it. `denial`: error, mask. `state`: active, disabled.
lw_door_key = Table(
    "lw_door_key",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("catalog", String(255), nullable=False),
    Column("name", String(255), nullable=False),
    Column("bits", Integer, nullable=False),
    Column("description", Text, nullable=True),
    Column("attributes", Text, nullable=False),
    Column("denial", String(16), nullable=False),
    Column("master_key_id", String(255), nullable=False),
    Column("kms", String(64), nullable=False),
    Column("wrapped", LargeBinary, nullable=False),
    Column("key_check", LargeBinary, nullable=True),
    Column("state", String(16), nullable=False),
    Column("author", String(255), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    UniqueConstraint("catalog", "name"),
)

#: One version of such a key, counted from 0, sealed.
lw_door_key_version = Table(
    "lw_door_key_version",
    metadata,
    Column("key_id", String(36), ForeignKey("lw_door_key.id"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    Column("author", String(255), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
)

#: What holds for all processes of the catalog, by name.
lw_setting = Table(
    "lw_setting",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", String(255), nullable=False),
)

#: A process that serves, or did: digests of its settings and policies, by name, as JSON.
lw_replica = Table(
    "lw_replica",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("catalog", String(255), nullable=False),
    Column("seen_ms", BigInteger, nullable=False),
    Column("digests", Text, nullable=False),
)
