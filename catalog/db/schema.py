"""The SQL tables of the governed state.

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

#: A 64-bit id that SQLite, too, increments automatically.
BIG_ID: Final = BigInteger().with_variant(Integer, "sqlite")

#: Text in the order of its bytes, as SQLite has it anyway: what begins with a text is a range of an index.
BYTE_ORDERED: Final = String(1000).with_variant(String(1000, collation="C"), "postgresql")
BYTE_ORDERED_NAME: Final = String(255).with_variant(String(255, collation="C"), "postgresql")

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

#: A governed table, active or the tombstone of a dropped one. `state`: prepared, active, dropped, purged.
lw_table = Table(
    "lw_table",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("catalog", String(255), nullable=False),
    Column("table_uuid", String(36), nullable=False, unique=True),
    Column("namespace", String(255), nullable=False),
    Column("name", String(255), nullable=False),
    Column("owner", String(255), nullable=False),
    Column("location", BYTE_ORDERED, nullable=False),
    Column("default_location", Boolean, nullable=False),
    Column("state", String(16), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("dropped_ms", BigInteger, nullable=True),
    Column("purging", Boolean, nullable=True),
    Column("pending_namespace", String(255), nullable=True),
    Column("pending_name", String(255), nullable=True),
    Column("cleanups", Integer, nullable=False, server_default="0"),
    Index("ix_lw_table_state", "catalog", "state"),
    Index("ix_lw_table_location", "catalog", "location"),
)

#: The name of an active table; the only link from a name to governed state. `folded`: the name as policies
#: compare it, without regard to letter case, by which lists are ordered.
lw_binding = Table(
    "lw_binding",
    metadata,
    Column("catalog", String(255), primary_key=True),
    Column("namespace", String(255), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("table_id", String(36), ForeignKey("lw_table.id"), nullable=False, unique=True),
    Column("folded", BYTE_ORDERED_NAME, nullable=False),
    Index("ix_lw_binding_folded", "catalog", "namespace", "folded", "name"),
)

#: A view, whole. Its name is also in `iceberg_tables`, since tables and views share one name space.
#: `definer`: who wrote its text, as JSON. `version` counts its changes. `metadata`: Iceberg's view metadata.
#: At `metadata_location` is a copy of it for other catalogs, which is not read; null in a view that was not
#: changed since a former release.
lw_view = Table(
    "lw_view",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("catalog", String(255), nullable=False),
    Column("namespace", String(255), nullable=False),
    Column("name", String(255), nullable=False),
    Column("owner", String(255), nullable=False),
    Column("definer", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("metadata_location", String(1000), nullable=True),
    Column("folded", BYTE_ORDERED_NAME, nullable=False),
    UniqueConstraint("catalog", "namespace", "name"),
    Index("ix_lw_view_folded", "catalog", "namespace", "folded", "name"),
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

#: The key of a KMS that a master key id stands for (`catalog.state.master_keys`). `author`: who assigned it;
#: empty for the KMS key of the first key.
lw_master_key = Table(
    "lw_master_key",
    metadata,
    Column("catalog", String(255), primary_key=True),
    Column("id", String(255), primary_key=True),
    Column("kms", String(64), nullable=False),
    Column("kms_key_id", String(255), nullable=False),
    Column("author", String(255), nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
)

#: A key that a master key wraps: a version of a table's PEK; or, without a table, the key that seals the
#: versions of a key of the KMS endpoint. `kms_key_id`: the key in `kms` that wraps it. `state`: active,
#: decrypt-only, disabled, destroyed. `key_check` tells a wrong key from the right one, and reveals nothing of
#: either; null for old keys. `destroy_after_ms`: when a disabled key is destroyed. Of a destroyed key,
#: `wrapped` is empty.
lw_pek = Table(
    "lw_pek",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("table_id", String(36), ForeignKey("lw_table.id"), nullable=True, index=True),
    Column("master_key_id", String(255), nullable=False),
    Column("kms", String(64), nullable=False),
    Column("wrapped", LargeBinary, nullable=False),
    Column("state", String(16), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("key_check", LargeBinary, nullable=True),
    Column("destroy_after_ms", BigInteger, nullable=True),
    Column("kms_key_id", String(255), nullable=False),
    UniqueConstraint("table_id", "master_key_id", "version"),
)

#: The upper limit of how often a key version has encrypted (`catalog.state.invocations`): of a table's PEK,
#: or of a key of the KMS endpoint, whose versions are 1. A key without a row has never encrypted.
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

#: The digest of a manifest list or manifest, with its record in the parent, from one commit. Valid once that
#: commit's seal has been current. `verified`: whether the snapshot of a list was compared with its parent;
#: null for older ones.
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

#: A staged table that is not committed yet: the catalog assigned its identity.
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
    Column("write_locations", Text, nullable=True),
    Column("expires_ms", BigInteger, nullable=False),
)

#: A write that an engine began. `state`: open, committing, committed, closed, clearing, aborted, swept.
#: `snapshot_id` is what the write published. `staged_metadata` is that of the table which the commit
#: creates or replaces, else null. `base_location` is the metadata.json of a table that it replaces.
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
    Column("base_location", String(1000), nullable=True),
    Index("ix_lw_write_state", "state", "expires_ms"),
    Index("ix_lw_write_table", "table_id"),
)

#: The last epoch that a streaming query of a user committed to a table, and the write that did
#: (`catalog.state.stream_epochs`).
lw_stream = Table(
    "lw_stream",
    metadata,
    Column("table_id", String(36), ForeignKey("lw_table.id"), primary_key=True),
    Column("principal", String(255), primary_key=True),
    Column("query_id", String(36), primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("write_id", String(36), nullable=False),
    Column("committed_ms", BigInteger, nullable=False),
)

#: The files outside of a table that its rows were copied from, by the SHA-256 of their names, and the write
#: that did (`catalog.state.copied_files`).
lw_copied_file = Table(
    "lw_copied_file",
    metadata,
    Column("table_id", String(36), ForeignKey("lw_table.id"), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("write_id", String(36), nullable=False),
    Column("committed_ms", BigInteger, nullable=False),
)

#: How many distinct values a column of a table had when they were counted last
#: (`catalog.state.distinct_counts`).
lw_distinct_count = Table(
    "lw_distinct_count",
    metadata,
    Column("table_id", String(36), ForeignKey("lw_table.id"), primary_key=True),
    Column("field_id", Integer, primary_key=True),
    Column("snapshot_id", BigInteger, nullable=False),
    Column("distinct_values", BigInteger, nullable=False),
    Column("counted_ms", BigInteger, nullable=False),
)

#: A plan of a standard client that is answered in parts (`catalog.state.scan_plans`). `tasks` has the
#: positions of manifests for each part; `restrictions` is the digest of what the client enforces.
lw_scan_plan = Table(
    "lw_scan_plan",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("table_id", String(36), ForeignKey("lw_table.id"), nullable=False),
    Column("principal", String(255), nullable=False),
    Column("request", Text, nullable=False),
    Column("tasks", Text, nullable=False),
    Column("restrictions", String(64), nullable=True),
    Column("expires_ms", BigInteger, nullable=False),
    Index("ix_lw_scan_plan_expires", "expires_ms"),
    Index("ix_lw_scan_plan_principal", "principal"),
)

#: A request with an idempotency key: its outcome, or the attempt in progress (`catalog.state.idempotency`).
#: `status` is null until there is an outcome; `detail` is what the answer is rebuilt from.
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

#: Users and engines (`catalog.authorization.principals`). `claimed_ms`: when the token with these claims was
#: issued.
lw_principal = Table(
    "lw_principal",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("groups", Text, nullable=False),
    Column("roles", Text, nullable=False),
    Column("issuer", String(32), nullable=True),
    Column("claimed_groups", Text, nullable=True),
    Column("claimed_roles", Text, nullable=True),
    Column("claimed_ms", BigInteger, nullable=True),
    Column("known_since_ms", BigInteger, nullable=False),
    Column("disabled_ms", BigInteger, nullable=True),
)

#: Tokens. Only the SHA-256 of the secret is stored. `kind`: user, engine, engine-reusable, kms. `used_ms`:
#: when an engine last registered a key with it, and when another token was last used, within ten minutes.
#: `scope`: what it is limited to (`policy.token_scope`).
lw_token = Table(
    "lw_token",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("principal", String(255), nullable=False),
    Column("secret_sha256", String(64), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=True),
    Column("revoked_ms", BigInteger, nullable=True),
    Column("used_ms", BigInteger, nullable=True),
    Column("scope", Text, nullable=True),
    Index("ix_lw_token_principal", "principal"),
)

#: Logins that ended at their identity provider (`catalog.authorization.logouts`). `key`: SHA-256 of issuer,
#: kind and name. `at_ms`: when it ended.
lw_logout = Table(
    "lw_logout",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Index("ix_lw_logout_expires", "expires_ms"),
)


#: A session of the console: the SHA-256 of what its cookie is, and the token of its user, sealed under a key
#: that the cookie alone gives.
lw_console_session = Table(
    "lw_console_session",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("principal", String(255), nullable=False),
    Column("sealed_token", LargeBinary, nullable=False),
    Column("begun_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Index("ix_lw_console_session_principal", "principal", "begun_ms"),
    Index("ix_lw_console_session_expires", "expires_ms"),
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

#: The number of the last policy change in the catalog's database, and the digest of all documents since; no
#: row before the first change.
lw_policy_set = Table(
    "lw_policy_set",
    metadata,
    Column("catalog", String(255), primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("digest", String(64), nullable=False),
)

#: A change of one policy document; null content means that it was removed. `kind`: ranger, encryption. Rows
#: are never changed. The last row of a document is its current version.
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

#: What the catalog knows of a Ranger Admin that policies come from (`catalog.policy_store.source_states`).
#: `claim` names the attempt that has the turn until `next_ms`, `attempted_ms` the latest attempt. The rest
#: is about the last download that was put in force: `origin` and `made_from` are digests, `versions` are
#: Ranger's, as JSON. `confirmed_ms`: when Ranger last said that they are the newest.
lw_policy_source = Table(
    "lw_policy_source",
    metadata,
    Column("catalog", String(255), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("claim", String(36), nullable=True),
    Column("next_ms", BigInteger, nullable=False),
    Column("attempted_ms", BigInteger, nullable=False),
    Column("problem", Text, nullable=True),
    Column("origin", String(64), nullable=True),
    Column("made_from", String(64), nullable=True),
    Column("versions", Text, nullable=False),
    Column("policies", BigInteger, nullable=False),
    Column("left_out", BigInteger, nullable=False),
    Column("taken_ms", BigInteger, nullable=False),
    Column("confirmed_ms", BigInteger, nullable=True),
)

#: The audit log: one hash chain per writer (a process), in the order of that writer's decisions. `decisions`:
#: how many decisions the record stands for.
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

#: The end of a writer's chain, its latest time, the last record that a checkpoint names, the space that its
#: records need, and whether its writer has ended.
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

#: Heads of chains, recorded regularly in a separate chain; see `catalog.audit.checkpoints`.
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

#: A key of the KMS endpoint for Hadoop clients (`catalog.kms_server`). The key in `lw_pek` with the same id
#: seals its versions. `denial`: error, mask.
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
    Column("author", String(255), nullable=False),
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

#: Settings that apply to all processes of the catalog, by name.
lw_setting = Table(
    "lw_setting",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", String(255), nullable=False),
)

#: A process that serves or has served: digests of its settings and policies, by name, as JSON.
lw_replica = Table(
    "lw_replica",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("catalog", String(255), nullable=False),
    Column("seen_ms", BigInteger, nullable=False),
    Column("digests", Text, nullable=False),
)
