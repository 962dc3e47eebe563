"""The parts of a running catalog, put together in one place.

`Warden.open(settings)` is what the HTTP service, the command line and an embedded catalog start from; every
part below gets what it needs handed in.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from sqlalchemy import Engine

from catalog.audit.checkpoints import Checkpointer, Signer
from catalog.audit.trail import AuditTrail
from catalog.authorize import Authorizer
from catalog.commits.committer import Committer
from catalog.commits.inspection import Inspector
from catalog.commits.landing import Lander
from catalog.config import S3Settings, Settings
from catalog.db import migrate
from catalog.db.engine import open_database
from catalog.keys.kms import KmsClient
from catalog.keys.kms_calls import CountedKms
from catalog.keys.peks import PekCache
from catalog.keys.resilient import Patience, guarded
from catalog.kms_door.door import KmsDoor
from catalog.kms_door.identity import Doorman
from catalog.kms_door.stock import StockDoor
from catalog.kms_door.store import DoorStore
from catalog.loading import TableLoader
from catalog.manifests import DecodeLimits, ManifestCache
from catalog.planning.plan import Planner
from catalog.pointers import SqlPointerStore
from catalog.policies.changes import PolicyChanges
from catalog.policies.documents import PolicyDocuments
from catalog.policies.encryption_policy import EncryptionPolicy
from catalog.policies.encryption_report import EncryptionReporter
from catalog.policies.files import PolicyFiles
from catalog.policies.in_force import PolicyStore
from catalog.regimes.old_regimes import OldRegimes
from catalog.regimes.rewrites import Rewriter
from catalog.snapshots import SnapshotReader
from catalog.storage.base import Storage, StorageRouter
from catalog.storage.local import LocalStorage
from catalog.storage.s3 import S3Options, S3Storage
from catalog.table_keys.ends import KeyEnds
from catalog.table_keys.invocations import Invocations
from catalog.table_keys.keyring import Keyring
from catalog.table_keys.life import KeyLife
from catalog.table_keys.masters import MasterKeyRewrap
from catalog.table_keys.rewrap import KeyRewrap
from catalog.table_keys.rotation import KeyRotation
from catalog.table_keys.states import KeyStates
from catalog.tables.access import TableAccess
from catalog.tables.alter import Alterer
from catalog.tables.creation import Creator
from catalog.tables.drafts import Drafter
from catalog.tables.lifecycle import Lifecycle
from catalog.tables.namespaces import Namespaces
from catalog.tables.takeover import Takeover
from catalog.tokens import TokenStore
from catalog.writes.orphans import Orphans
from catalog.writes.sessions import WriteLog
from catalog.writes.staged_writes import StagedWrites
from catalog.writes.steps import Writes
from catalog.writes.table_writes import TableWrites
from policy.location import Location


@dataclass(frozen=True)
class Warden:
    """A catalog that is open.

    Attributes are its parts; each is documented at its class. `kms` is the client as it was given,
    `kms_calls` the one through which it is called.
    """

    settings: Settings
    engine: Engine
    policies: PolicyStore
    policy_documents: PolicyDocuments
    policy_changes: PolicyChanges
    audit: AuditTrail
    audit_signer: Signer | None
    tokens: TokenStore
    authorizer: Authorizer
    kms: KmsClient
    kms_calls: CountedKms
    keyring: Keyring
    key_life: KeyLife
    key_rotation: KeyRotation
    key_rewrap: KeyRewrap
    master_keys: MasterKeyRewrap
    door: KmsDoor
    door_keys: DoorStore
    stock_door: StockDoor
    doorman: Doorman
    storage: Storage
    loader: TableLoader
    reader: SnapshotReader
    access: TableAccess
    namespaces: Namespaces
    creator: Creator
    committer: Committer
    alterer: Alterer
    lifecycle: Lifecycle
    takeover: Takeover
    planner: Planner
    rewriter: Rewriter
    old_regimes: OldRegimes
    encryption_report: EncryptionReporter
    writes: Writes

    @classmethod
    def open(
        cls,
        settings: Settings,
        kms: KmsClient,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        seconds: Callable[[], float] = time.monotonic,
    ) -> Self:
        """Open the catalog that `settings` describe.

        Args:
            settings: the configuration.
            kms: the key management service.
            now: the time, with a zone.
            seconds: a clock that only goes forward, by which policies are looked at again.

        Raises:
            StateUnavailable: the database cannot be reached or is of another schema version, or the key of
                the audit trail is missing.
            PolicyInvalid: the policies cannot be evaluated.
        """
        name = settings.catalog.name
        engine = open_database(settings.database.url)
        migrate.check(engine)
        documents = PolicyDocuments(engine, name)
        policies = PolicyStore(
            PolicyFiles(settings.policies, settings.encryption_rules),
            documents,
            poll_s=settings.policies_poll_s,
            clock=seconds,
        )
        tokens = TokenStore(engine, now)
        encryption = EncryptionPolicy(policies.encryption)

        def now_ms() -> int:
            return int(now().timestamp() * 1000)

        signer = None if settings.audit.key_file is None else Signer(settings.audit.key_file)
        checkpointer = Checkpointer(engine, signer, now_ms, settings.audit.checkpoint_s)
        if signer is not None:
            checkpointer.begin("first")
        audit = AuditTrail(
            engine,
            checkpointer=checkpointer,
            refusal_bytes=settings.audit.refusal_bytes,
        )
        authorizer = Authorizer(policies.current, audit, now)
        pointers = SqlPointerStore(engine, name)
        storage = open_storage(settings.s3)
        reader = SnapshotReader(engine, storage, _cache(settings), _limits(settings))
        loader = TableLoader(
            engine,
            name,
            pointers,
            storage,
            max_metadata_bytes=settings.limits.metadata_bytes,
            unsealed_default=settings.unsealed_metadata,
        )
        calls = guarded(kms, Patience(**settings.kms.calls.model_dump()))
        invocations = Invocations(engine)
        peks = PekCache(
            {kms.identifier: calls}, catalog=name, ttl=settings.kms.pek_ttl_s, counting=invocations.of
        )
        keyring = Keyring(engine, name, calls, peks)
        door_master = settings.kms_door.master_key_id or settings.kms.default_master_key_id
        door_keys = DoorStore(engine, name, calls, peks, door_master, now_ms)
        inspector = Inspector(reader, keyring)
        lander = Lander(engine, name, pointers, storage, now_ms, settings.limits.metadata_bytes)
        master_key_id = settings.kms.default_master_key_id
        committer = Committer(
            engine,
            name,
            loader,
            inspector,
            lander,
            keyring,
            authorizer,
            encryption,
            master_key_id=master_key_id,
            now_ms=now_ms,
        )
        drafter = Drafter(
            engine,
            name,
            pointers,
            authorizer,
            encryption,
            warehouse=Location.parse(settings.warehouse),
            master_key_id=master_key_id,
            now_ms=now_ms,
        )
        creator = Creator(
            engine,
            name,
            drafter,
            inspector,
            lander,
            keyring,
            authorizer,
            master_key_id=master_key_id,
            now_ms=now_ms,
            staged_ttl_ms=settings.staged_ttl_s * 1000,
        )
        log = WriteLog(engine, now_ms, settings.write_ttl_s * 1000)
        tables = TableWrites(engine, log, loader, reader, committer, keyring, storage, authorizer)
        staged = StagedWrites(
            engine,
            name,
            log,
            drafter,
            loader,
            reader,
            inspector,
            lander,
            keyring,
            storage,
            authorizer,
        )
        key_ends = KeyEnds(engine, name, loader, reader, peks, log, authorizer, now_ms)
        key_states = KeyStates(
            engine, peks, key_ends, invocations, now_ms, settings.key_destroy_wait_s * 1000
        )
        lifecycle = Lifecycle(
            engine,
            name,
            pointers,
            storage,
            loader,
            inspector,
            authorizer,
            encryption,
            now_ms=now_ms,
        )
        takeover = Takeover(
            engine,
            name,
            pointers,
            storage,
            loader,
            inspector,
            authorizer,
            encryption,
            now_ms=now_ms,
            max_metadata_bytes=settings.limits.metadata_bytes,
        )
        return cls(
            settings=settings,
            engine=engine,
            policies=policies,
            policy_documents=documents,
            policy_changes=PolicyChanges(
                documents, lambda: policies.in_force().files, policies, tokens, name, now
            ),
            audit=audit,
            audit_signer=signer,
            tokens=tokens,
            authorizer=authorizer,
            kms=kms,
            kms_calls=calls,
            keyring=keyring,
            key_life=KeyLife(engine, name, loader, reader, keyring, key_states, key_ends, authorizer, now_ms),
            key_rotation=KeyRotation(engine, loader, keyring, lander, authorizer),
            key_rewrap=KeyRewrap(loader, reader, storage, keyring, lander, authorizer, now_ms),
            master_keys=MasterKeyRewrap(engine, name, calls),
            door=KmsDoor(door_keys, authorizer),
            door_keys=door_keys,
            stock_door=StockDoor(engine, loader, keyring, authorizer),
            doorman=Doorman(tokens, settings.kms_door.pseudo, now_ms),
            storage=storage,
            loader=loader,
            reader=reader,
            access=TableAccess(loader, inspector, authorizer),
            namespaces=Namespaces(engine, name, pointers, authorizer),
            creator=creator,
            committer=committer,
            alterer=Alterer(loader, committer, authorizer),
            lifecycle=lifecycle,
            takeover=takeover,
            encryption_report=EncryptionReporter(engine, name, pointers, loader, authorizer),
            planner=Planner(
                loader, reader, keyring, authorizer, valid_ms=round(settings.plan_valid_s * 1000)
            ),
            rewriter=Rewriter(loader, reader, authorizer),
            old_regimes=OldRegimes(engine, loader, reader, keyring, lander, authorizer),
            writes=Writes(
                log, tables, staged, Orphans(engine, loader, reader, inspector, storage), storage, authorizer
            ),
        )

    def close(self) -> None:
        """Finish what is being recorded and let go of files, threads and connections."""
        self.reader.close()
        self.audit.close()
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_storage(s3: S3Settings) -> Storage:
    """Storage for every scheme that locations can have."""
    options = S3Options(
        endpoint=s3.endpoint,
        region=s3.region,
        access_key_id=s3.access_key_id,
        secret_access_key=s3.secret_access_key,
        connect_timeout=s3.connect_timeout_s,
        request_timeout=s3.request_timeout_s,
    )
    return StorageRouter({"file": LocalStorage(), "s3": S3Storage(options)})


def _limits(settings: Settings) -> DecodeLimits:
    return DecodeLimits(
        max_file_bytes=settings.limits.manifest_bytes,
        max_decompressed_bytes=settings.limits.manifest_decompressed_bytes,
        max_entries=settings.limits.manifest_entries,
    )


def _cache(settings: Settings) -> ManifestCache:
    return ManifestCache(settings.cache.manifest_bytes, settings.cache.directory, limits=_limits(settings))
