"""The parts of a running catalog, put together in one place.

`Services.open(settings)` is what the HTTP service, the command line and an embedded catalog start from; every
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

from catalog.audit.checkpoints import Signer
from catalog.audit.trail import AuditTrail
from catalog.authorization.authorizer import Authorizer
from catalog.authorization.engine_keys import EngineKeys
from catalog.authorization.table_access import TableAccess
from catalog.authorization.tokens import TokenStore
from catalog.commits.committer import Committer
from catalog.commits.rollbacks import Rollbacks
from catalog.db.clock import DatabaseClock
from catalog.key_management.expiry import KeyEnds
from catalog.key_management.lifecycle import KeyLife
from catalog.key_management.master_keys import MasterKeyRewrap
from catalog.key_management.rewrap import KeyRewrap
from catalog.key_management.rotation import KeyRotation
from catalog.key_management.states import KeyStates
from catalog.keyring.keyring import Keyring
from catalog.kms.calls import CountedKms
from catalog.kms.interface import KmsClient
from catalog.kms_server.endpoint import KmsEndpoint
from catalog.kms_server.identity import CallerIdentification
from catalog.kms_server.parquet_readers import ParquetKeyEndpoint
from catalog.kms_server.store import EndpointKeyStore
from catalog.maintenance.encryption_report import EncryptionReporter
from catalog.maintenance.garbage import GarbageCollector
from catalog.maintenance.old_epochs import OldEpochs
from catalog.maintenance.rewrites import Rewriter
from catalog.planning.plan import Planner
from catalog.policy_store.changes import PolicyChanges
from catalog.policy_store.documents import PolicyDocuments
from catalog.policy_store.in_force import PolicyStore
from catalog.reading.loading import TableLoader
from catalog.reading.snapshots import SnapshotReader
from catalog.service.context import ServiceContext
from catalog.service.repeats import Repeats
from catalog.service.replicas import Replicas
from catalog.settings.catalog import Settings
from catalog.snapshot_checks.added_files import AddedFiles
from catalog.state.idempotency import IdempotencyKeys
from catalog.storage.base import Storage
from catalog.tables.alter import Alterer
from catalog.tables.creation import Creator
from catalog.tables.drafts import Drafter
from catalog.tables.lifecycle import Lifecycle
from catalog.tables.namespaces import Namespaces
from catalog.tables.registration import Registration
from catalog.writes.orphans import Orphans
from catalog.writes.staged_writes import StagedWrites
from catalog.writes.steps import Writes
from catalog.writes.table_writes import TableWrites
from policy.location.location import Location


@dataclass(frozen=True)
class Services:
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
    clock: DatabaseClock
    replicas: Replicas
    engine_keys: EngineKeys
    authorizer: Authorizer
    kms: KmsClient
    kms_calls: CountedKms
    keyring: Keyring
    key_life: KeyLife
    key_rotation: KeyRotation
    key_rewrap: KeyRewrap
    master_keys: MasterKeyRewrap
    door: KmsEndpoint
    endpoint_keys: EndpointKeyStore
    parquet_keys: ParquetKeyEndpoint
    identification: CallerIdentification
    storage: Storage
    loader: TableLoader
    reader: SnapshotReader
    added_files: AddedFiles
    access: TableAccess
    namespaces: Namespaces
    creator: Creator
    committer: Committer
    alterer: Alterer
    lifecycle: Lifecycle
    registration: Registration
    planner: Planner
    rewriter: Rewriter
    old_epochs: OldEpochs
    encryption_report: EncryptionReporter
    writes: Writes
    garbage: GarbageCollector
    idempotency: IdempotencyKeys
    repeats: Repeats

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
        on = ServiceContext.open(settings, kms, now, seconds)
        committer, drafter = _committer(on), _drafter(on)
        endpoint_keys = _endpoint_keys(on)
        return cls(
            settings=settings,
            engine=on.engine,
            policies=on.policies,
            policy_documents=on.policy_documents,
            policy_changes=_policy_changes(on),
            audit=on.audit,
            audit_signer=on.audit_signer,
            tokens=on.tokens,
            clock=on.clock,
            replicas=on.replicas,
            engine_keys=EngineKeys(on.engine, on.tokens, on.now),
            authorizer=on.authorizer,
            kms=kms,
            kms_calls=on.kms_calls,
            keyring=on.keyring,
            key_life=_key_life(on),
            key_rotation=KeyRotation(on.engine, on.loader, on.keyring, on.publisher, on.authorizer),
            key_rewrap=KeyRewrap(
                on.loader,
                on.reader,
                on.storage,
                on.keyring,
                on.inspector,
                on.publisher,
                on.authorizer,
                on.now_ms,
            ),
            master_keys=MasterKeyRewrap(on.engine, on.name, on.kms_calls),
            door=KmsEndpoint(endpoint_keys, on.authorizer),
            endpoint_keys=endpoint_keys,
            parquet_keys=ParquetKeyEndpoint(on.engine, on.loader, on.keyring, on.authorizer),
            identification=CallerIdentification(on.tokens, settings.kms_endpoint.pseudo, on.now_ms),
            storage=on.storage,
            loader=on.loader,
            reader=on.reader,
            added_files=on.added_files,
            access=TableAccess(on.loader, on.inspector, on.authorizer, on.standard_clients),
            namespaces=Namespaces(on.engine, on.name, on.pointers, on.authorizer),
            creator=_creator(on, drafter),
            committer=committer,
            alterer=Alterer(on.loader, committer, on.authorizer),
            lifecycle=_lifecycle(on),
            registration=_registration(on),
            encryption_report=EncryptionReporter(on.engine, on.name, on.pointers, on.loader, on.authorizer),
            planner=_planner(on),
            rewriter=Rewriter(on.loader, on.reader, on.authorizer),
            old_epochs=OldEpochs(on.engine, on.loader, on.reader, on.keyring, on.publisher, on.authorizer),
            writes=_writes(on, committer, drafter),
            garbage=GarbageCollector(
                on.engine, on.name, on.loader, on.inspector, on.storage, on.authorizer, now_ms=on.now_ms
            ),
            idempotency=IdempotencyKeys(on.engine, on.now_ms, settings.http.idempotency_lifetime_s * 1000),
            repeats=Repeats(on.engine, on.loader, on.authorizer, on.standard_clients),
        )

    def close(self) -> None:
        """Finish what is being recorded and let go of files, threads and connections."""
        self.reader.close()
        self.added_files.close()
        self.audit.close()
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _policy_changes(on: ServiceContext) -> PolicyChanges:
    return PolicyChanges(
        on.policy_documents, lambda: on.policies.in_force().files, on.policies, on.tokens, on.name, on.now
    )


def _endpoint_keys(on: ServiceContext) -> EndpointKeyStore:
    master_key_id = on.settings.kms_endpoint.master_key_id or on.master_key_id
    return EndpointKeyStore(on.engine, on.name, on.kms_calls, on.peks, master_key_id, on.now_ms)


def _key_life(on: ServiceContext) -> KeyLife:
    ends = KeyEnds(on.engine, on.name, on.loader, on.reader, on.peks, on.write_log, on.authorizer, on.now_ms)
    wait_ms = on.settings.key_destroy_wait_s * 1000
    states = KeyStates(on.engine, on.peks, ends, on.invocations, on.now_ms, wait_ms)
    return KeyLife(
        on.engine, on.name, on.loader, on.reader, on.keyring, states, ends, on.authorizer, on.now_ms
    )


def _committer(on: ServiceContext) -> Committer:
    return Committer(
        on.engine,
        on.name,
        on.loader,
        on.inspector,
        Rollbacks(on.reader, on.keyring),
        on.publisher,
        on.keyring,
        on.authorizer,
        on.encryption,
        on.standard_clients,
        master_key_id=on.master_key_id,
        now_ms=on.now_ms,
    )


def _drafter(on: ServiceContext) -> Drafter:
    return Drafter(
        on.engine,
        on.name,
        on.pointers,
        on.authorizer,
        on.encryption,
        warehouse=Location.parse(on.settings.warehouse),
        master_key_id=on.master_key_id,
        now_ms=on.now_ms,
    )


def _creator(on: ServiceContext, drafter: Drafter) -> Creator:
    return Creator(
        on.engine,
        on.name,
        drafter,
        on.inspector,
        on.publisher,
        on.keyring,
        on.authorizer,
        on.standard_clients,
        master_key_id=on.master_key_id,
        now_ms=on.now_ms,
        staged_ttl_ms=on.settings.staged_ttl_s * 1000,
    )


def _lifecycle(on: ServiceContext) -> Lifecycle:
    return Lifecycle(
        on.engine,
        on.name,
        on.pointers,
        on.storage,
        on.loader,
        on.inspector,
        on.authorizer,
        on.encryption,
        now_ms=on.now_ms,
    )


def _registration(on: ServiceContext) -> Registration:
    return Registration(
        on.engine,
        on.name,
        on.pointers,
        on.storage,
        on.loader,
        on.inspector,
        on.authorizer,
        on.encryption,
        on.standard_clients,
        now_ms=on.now_ms,
        max_metadata_bytes=on.settings.limits.metadata_bytes,
    )


def _planner(on: ServiceContext) -> Planner:
    valid_ms = round(on.settings.plan_valid_s * 1000)
    return Planner(on.loader, on.reader, on.inspector, on.keyring, on.authorizer, valid_ms=valid_ms)


def _writes(on: ServiceContext, committer: Committer, drafter: Drafter) -> Writes:
    tables = TableWrites(
        on.engine,
        on.write_log,
        on.loader,
        on.reader,
        committer,
        on.keyring,
        on.storage,
        on.authorizer,
    )
    staged = StagedWrites(
        on.engine,
        on.name,
        on.write_log,
        drafter,
        on.loader,
        on.reader,
        on.inspector,
        on.publisher,
        on.keyring,
        on.storage,
        on.authorizer,
    )
    orphans = Orphans(on.engine, on.loader, on.reader, on.inspector, on.storage)
    return Writes(on.write_log, tables, staged, orphans, on.storage, on.authorizer)
