"""What the parts of a catalog rest on: its database, policies, audit trail, storage and keys of tables.

`ServiceContext.open(settings, …)` opens them, the lower ones first; `catalog.service.services` puts the parts
on top.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from sqlalchemy import Engine

from catalog.audit.checkpoints import Checkpointer, Signer
from catalog.audit.trail import AuditTrail
from catalog.authorization.authorizer import Authorizer
from catalog.authorization.standard_clients import StandardClients
from catalog.authorization.tokens import TokenStore
from catalog.commits.publish import Publisher
from catalog.db import migrate
from catalog.db.clock import DatabaseClock
from catalog.db.engine import open_database
from catalog.envelope.peks import PekCache
from catalog.iceberg.manifests import DecodeLimits, ManifestCache
from catalog.keyring.keyring import Keyring
from catalog.kms.calls import CountedKms
from catalog.kms.interface import KmsClient
from catalog.kms.resilient import Patience, guarded
from catalog.policy_store.documents import PolicyDocuments
from catalog.policy_store.files import PolicyFiles
from catalog.policy_store.in_force import PolicyStore
from catalog.reading.loading import TableLoader
from catalog.reading.snapshots import SnapshotReader
from catalog.rules.encryption_policy import EncryptionPolicy
from catalog.service.replicas import Replicas, digests_of, unsealed_default
from catalog.settings.catalog import Settings
from catalog.snapshot_checks.added_files import AddedFiles
from catalog.snapshot_checks.inspection import Inspector
from catalog.state.invocations import Invocations
from catalog.state.pointers import SqlPointerStore
from catalog.storage.base import Storage, StorageRouter
from catalog.storage.local import LocalStorage
from catalog.storage.s3 import S3Options, S3Storage
from catalog.writes.sessions import WriteLog
from policy.location.location import Location


@dataclass(frozen=True)
class ServiceContext:
    """What is shared by the parts of one catalog.

    Attributes are documented at their classes. `name` is the catalog's, `now` the time with a zone,
    `now_ms` the same in milliseconds, `kms_calls` the client through which the KMS is called.
    """

    settings: Settings
    name: str
    engine: Engine
    now: Callable[[], datetime]
    now_ms: Callable[[], int]
    policy_documents: PolicyDocuments
    policies: PolicyStore
    encryption: EncryptionPolicy
    tokens: TokenStore
    clock: DatabaseClock
    replicas: Replicas
    audit: AuditTrail
    audit_signer: Signer | None
    authorizer: Authorizer
    pointers: SqlPointerStore
    storage: Storage
    reader: SnapshotReader
    loader: TableLoader
    kms_calls: CountedKms
    invocations: Invocations
    peks: PekCache
    keyring: Keyring
    added_files: AddedFiles
    inspector: Inspector
    publisher: Publisher
    standard_clients: StandardClients
    write_log: WriteLog

    @classmethod
    def open(
        cls,
        settings: Settings,
        kms: KmsClient,
        now: Callable[[], datetime],
        seconds: Callable[[], float],
    ) -> Self:
        """Open what `settings` describe; see `catalog.service.services.Services.open`."""
        name = settings.catalog.name
        engine = open_database(settings.database.url)
        migrate.check(engine)

        def now_ms() -> int:
            return int(now().timestamp() * 1000)

        documents = PolicyDocuments(engine, name)
        clock = DatabaseClock(engine, now, seconds)
        unsealed = settings.unsealed_metadata or unsealed_default(engine)
        policies = _policies(settings, documents, seconds)
        signer = None if settings.audit.key_file is None else Signer(settings.audit.key_file)
        audit = _audit(settings, engine, signer, now_ms)
        pointers, storage = SqlPointerStore(engine, name), _storage(settings)
        reader = SnapshotReader(engine, storage, _cache(settings), _limits(settings))
        calls, invocations = guarded(kms, Patience(**settings.kms.calls.model_dump())), Invocations(engine)
        peks = PekCache(
            {kms.identifier: calls}, catalog=name, ttl=settings.kms.pek_ttl_s, counting=invocations.of
        )
        keyring = Keyring(engine, name, calls, peks)
        authorizer = Authorizer(policies.current, audit, now)
        loader = _loader(settings, engine, pointers, storage, unsealed)
        added_files = AddedFiles(storage, settings.limits.added_file_requests)
        return cls(
            settings=settings,
            name=name,
            engine=engine,
            now=now,
            now_ms=now_ms,
            policy_documents=documents,
            policies=policies,
            encryption=EncryptionPolicy(policies.encryption),
            tokens=TokenStore(engine, now, clock.require),
            clock=clock,
            replicas=_replicas(settings, engine, policies, unsealed, now_ms, seconds),
            audit=audit,
            audit_signer=signer,
            authorizer=authorizer,
            pointers=pointers,
            storage=storage,
            reader=reader,
            loader=loader,
            kms_calls=calls,
            invocations=invocations,
            peks=peks,
            keyring=keyring,
            added_files=added_files,
            inspector=Inspector(reader, keyring, added_files),
            standard_clients=StandardClients(authorizer, loader),
            publisher=Publisher(engine, name, pointers, storage, now_ms, settings.limits.metadata_bytes),
            write_log=WriteLog(engine, now_ms, settings.write_ttl_s * 1000),
        )

    @property
    def master_key_id(self) -> str:
        """The master key of tables that name none."""
        return self.settings.kms.default_master_key_id


def _policies(settings: Settings, documents: PolicyDocuments, seconds: Callable[[], float]) -> PolicyStore:
    files = PolicyFiles(settings.policies, settings.encryption_rules)
    return PolicyStore(
        files,
        documents,
        poll_s=settings.policies_poll_s,
        outdated_s=settings.policies_outdated_s,
        clock=seconds,
    )


def _audit(
    settings: Settings, engine: Engine, signer: Signer | None, now_ms: Callable[[], int]
) -> AuditTrail:
    checkpointer = Checkpointer(engine, signer, now_ms, settings.audit.checkpoint_s)
    if signer is not None:
        checkpointer.begin("first")
    return AuditTrail(engine, checkpointer=checkpointer, refusal_bytes=settings.audit.refusal_bytes)


def _replicas(
    settings: Settings,
    engine: Engine,
    policies: PolicyStore,
    unsealed: str,
    now_ms: Callable[[], int],
    seconds: Callable[[], float],
) -> Replicas:
    def digests() -> dict[str, str]:
        return digests_of(settings, unsealed, policies.last.files)

    return Replicas(engine, settings.catalog.name, digests, now_ms, seconds)


def _loader(
    settings: Settings, engine: Engine, pointers: SqlPointerStore, storage: Storage, unsealed: str
) -> TableLoader:
    return TableLoader(
        engine,
        settings.catalog.name,
        pointers,
        storage,
        max_metadata_bytes=settings.limits.metadata_bytes,
        unsealed_default=unsealed,
        standard_clients=settings.standard_clients,
    )


def _storage(settings: Settings) -> Storage:
    s3, warehouse = settings.s3, Location.parse(settings.warehouse)
    options = S3Options(
        endpoint=s3.endpoint,
        region=s3.region,
        access_key_id=s3.access_key_id,
        secret_access_key=s3.secret_access_key,
        connect_timeout=s3.connect_timeout_s,
        request_timeout=s3.request_timeout_s,
    )
    return StorageRouter({"file": LocalStorage(warehouse), "s3": S3Storage(options)})


def _limits(settings: Settings) -> DecodeLimits:
    return DecodeLimits(
        max_file_bytes=settings.limits.manifest_bytes,
        max_decompressed_bytes=settings.limits.manifest_decompressed_bytes,
        max_entries=settings.limits.manifest_entries,
    )


def _cache(settings: Settings) -> ManifestCache:
    return ManifestCache(settings.cache.manifest_bytes, settings.cache.directory, limits=_limits(settings))
