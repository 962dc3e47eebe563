"""Builds the services of a catalog on the service context.

The HTTP service, the command line and an embedded catalog start with `Services.open(settings, kms)`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self

from catalog.authorization.console_sessions import ConsoleSessions
from catalog.authorization.engine_keys import EngineKeys
from catalog.authorization.table_access import TableAccess
from catalog.commits.committer import Committer
from catalog.context import ServiceContext
from catalog.identity.code_logins import CodeLogins
from catalog.key_management.expiry import KeyEnds
from catalog.key_management.key_list import KeyList
from catalog.key_management.kms_moves import MasterKeyMoves
from catalog.key_management.kms_needs import KmsNeeds
from catalog.key_management.lifecycle import KeyLife
from catalog.key_management.master_keys import MasterKeyRewrap
from catalog.key_management.rewrap import KeyRewrap
from catalog.key_management.rotation import KeyRotation
from catalog.key_management.states import KeyStates
from catalog.kms.interface import KmsClient
from catalog.kms_server.endpoint import KmsEndpoint
from catalog.kms_server.identity import CallerIdentification
from catalog.kms_server.parquet_readers import ParquetKeyEndpoint
from catalog.kms_server.store import EndpointKeyStore
from catalog.maintenance.certificates import Certificates
from catalog.maintenance.column_report import ColumnReporter
from catalog.maintenance.delete_rewrites import DeleteRewriter
from catalog.maintenance.encryption_report import EncryptionReporter
from catalog.maintenance.expiry import SnapshotExpiry
from catalog.maintenance.garbage import GarbageCollector
from catalog.maintenance.lake import LakeReader
from catalog.maintenance.manifests import ManifestMaintenance
from catalog.maintenance.old_epochs import OldEpochs
from catalog.maintenance.rewrites import Rewriter
from catalog.maintenance.snapshot_procedures import SnapshotProcedures
from catalog.maintenance.table_statistics import TableStatistics
from catalog.metadata_tables.position_deletes import PositionDeletes
from catalog.metadata_tables.tables import MetadataTables
from catalog.planning.explain import Explainer
from catalog.planning.plan import Planner
from catalog.planning.standard import StandardPlanner
from catalog.policy_store.changes import PolicyChanges
from catalog.policy_store.table_checks import TableChecks
from catalog.service.archive_state import ArchiveState
from catalog.service.context import open_context
from catalog.service.readiness import Readiness
from catalog.service.repeats import Repeats
from catalog.service.replicas import Replicas, digests_of
from catalog.settings.catalog import Settings
from catalog.state.idempotency import IdempotencyKeys
from catalog.state.page_tokens import PageTokens
from catalog.storage_access.decision import StorageDecisions
from catalog.storage_access.signatures import BotoSigner
from catalog.storage_access.signing import RequestSigning
from catalog.storage_access.vending import CredentialVending
from catalog.tables.alter import Alterer
from catalog.tables.creation import Creator
from catalog.tables.definer_views import DefinerViews
from catalog.tables.drafts import Drafter
from catalog.tables.lifecycle import Lifecycle
from catalog.tables.namespaces import Namespaces
from catalog.tables.registration import Registration
from catalog.tables.unregistration import Unregistration
from catalog.tables.views import Views
from catalog.writes.filters import WholeFiles
from catalog.writes.orphans import Orphans
from catalog.writes.replacing_writes import ReplacingWrites
from catalog.writes.sessions import WriteLog
from catalog.writes.staged_writes import StagedWrites
from catalog.writes.steps import Writes
from catalog.writes.table_writes import TableWrites


@dataclass(frozen=True)
class Services(ServiceContext):
    """An open catalog: the service context, and the services.

    Attributes are documented at their classes. `kms` is the given client; `kms_calls` wraps it, and all calls
    use it.
    """

    policy_changes: PolicyChanges
    replicas: Replicas
    readiness: Readiness
    engine_keys: EngineKeys
    console_sessions: ConsoleSessions
    console_logins: CodeLogins | None
    kms: KmsClient
    key_life: KeyLife
    key_rotation: KeyRotation
    key_rewrap: KeyRewrap
    master_keys: MasterKeyRewrap
    master_key_moves: MasterKeyMoves
    kms_needs: KmsNeeds
    key_list: KeyList
    kms_endpoint: KmsEndpoint
    endpoint_keys: EndpointKeyStore
    parquet_keys: ParquetKeyEndpoint
    identification: CallerIdentification
    access: TableAccess
    namespaces: Namespaces
    views: Views
    definer_views: DefinerViews
    creator: Creator
    committer: Committer
    alterer: Alterer
    snapshot_procedures: SnapshotProcedures
    lifecycle: Lifecycle
    unregistration: Unregistration
    registration: Registration
    planner: Planner
    explainer: Explainer
    standard_planner: StandardPlanner
    signing: RequestSigning | None
    metadata_tables: MetadataTables
    position_deletes: PositionDeletes
    rewriter: Rewriter
    delete_rewriter: DeleteRewriter
    manifests: ManifestMaintenance
    statistics: TableStatistics
    old_epochs: OldEpochs
    encryption_report: EncryptionReporter
    columns: ColumnReporter
    lake: LakeReader
    certificates: Certificates
    writes: Writes
    whole_files: WholeFiles
    garbage: GarbageCollector
    expiry: SnapshotExpiry
    credentials: CredentialVending | None
    idempotency: IdempotencyKeys
    page_tokens: PageTokens
    repeats: Repeats
    archive_state: ArchiveState

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
            seconds: a monotonic clock, which determines when policies are loaded again.

        Raises:
            StateUnavailable: the database cannot be reached or is of another schema version, or the key of
                the audit log is missing.
            PolicyInvalid: the policies cannot be evaluated.
        """
        context = open_context(settings, kms, now, seconds)
        log = WriteLog(context.engine, context.now_ms, settings.write_ttl_s * 1000)
        committer, drafter, endpoint_keys = Committer(context), Drafter(context), EndpointKeyStore(context)
        ends, garbage = KeyEnds(context, log), GarbageCollector(context)
        report = EncryptionReporter(context)
        access = TableAccess(context.loader, context.inspector, context.authorizer, context.standard_clients)
        planner, lifecycle = Planner(context), Lifecycle(context)
        standard_planner = StandardPlanner(context, access)
        decisions = StorageDecisions(context, access, standard_planner)
        replicas = _replicas(context, seconds)
        return cls(
            **vars(context),
            policy_changes=_policy_changes(context),
            replicas=replicas,
            readiness=Readiness(context, replicas, seconds),
            engine_keys=EngineKeys(context.engine, context.tokens, context.now),
            console_sessions=ConsoleSessions(
                context.engine, context.now, timedelta(seconds=settings.console.session_s)
            ),
            console_logins=_console_logins(context),
            kms=kms,
            key_life=KeyLife(context, KeyStates(context, ends), ends),
            key_rotation=KeyRotation(context),
            key_rewrap=KeyRewrap(context),
            master_keys=MasterKeyRewrap(context.kms_keys),
            master_key_moves=MasterKeyMoves(context),
            kms_needs=KmsNeeds(context),
            key_list=KeyList(context),
            kms_endpoint=KmsEndpoint(endpoint_keys, context.authorizer),
            endpoint_keys=endpoint_keys,
            parquet_keys=ParquetKeyEndpoint(context),
            identification=CallerIdentification(
                context.tokens, context.principals, settings.kms_endpoint.pseudo, context.now_ms
            ),
            access=access,
            namespaces=Namespaces(context),
            views=Views(context),
            definer_views=DefinerViews(context, access, planner),
            creator=Creator(context, drafter),
            committer=committer,
            alterer=Alterer(context, committer),
            snapshot_procedures=SnapshotProcedures(context, committer),
            lifecycle=lifecycle,
            unregistration=Unregistration(context, lifecycle, access),
            registration=Registration(context),
            encryption_report=report,
            columns=ColumnReporter(context, access),
            lake=LakeReader(context, report),
            certificates=Certificates(context),
            planner=planner,
            explainer=Explainer(context, planner),
            standard_planner=standard_planner,
            signing=_signing(context, decisions),
            metadata_tables=MetadataTables(context),
            position_deletes=PositionDeletes(context),
            rewriter=Rewriter(context),
            delete_rewriter=DeleteRewriter(context),
            manifests=ManifestMaintenance(context, committer),
            statistics=TableStatistics(context),
            old_epochs=OldEpochs(context),
            writes=Writes(
                context,
                log,
                TableWrites(context, log, committer),
                StagedWrites(context, log, drafter),
                ReplacingWrites(context, log),
                Orphans(context),
            ),
            whole_files=WholeFiles(context),
            garbage=garbage,
            expiry=SnapshotExpiry(context, committer, garbage),
            credentials=_credentials(context, decisions),
            idempotency=IdempotencyKeys(
                context.engine, context.now_ms, settings.http.idempotency_lifetime_s * 1000
            ),
            page_tokens=PageTokens(context.engine),
            repeats=Repeats(context),
            archive_state=ArchiveState(),
        )

    def close(self) -> None:
        """Finish recording, and close files, threads and connections."""
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


def _credentials(context: ServiceContext, decisions: StorageDecisions) -> CredentialVending | None:
    sts = context.settings.s3.sts
    return None if sts is None else CredentialVending(context, decisions, sts)


def _console_logins(context: ServiceContext) -> CodeLogins | None:
    url, identity = context.settings.console.url, context.settings.identity
    if url is None or not identity.console_issuers:
        return None
    return CodeLogins(identity.issuers, url, context.bearer_tokens.check_login)


def _signing(context: ServiceContext, decisions: StorageDecisions) -> RequestSigning | None:
    s3 = context.settings.s3
    return RequestSigning(context, decisions, BotoSigner(s3)) if s3.signing else None


def _policy_changes(context: ServiceContext) -> PolicyChanges:
    return PolicyChanges(
        context.policy_documents,
        context.policies,
        context.principals,
        context.catalog,
        context.now,
        TableChecks(
            lambda: (
                name for each in context.pointers.namespaces() for name in context.pointers.tables(each)
            ),
            context.loader.load,
        ),
        context.settings.ranger,
    )


def _replicas(context: ServiceContext, seconds: Callable[[], float]) -> Replicas:
    def digests() -> dict[str, str]:
        return digests_of(context.settings, context.loader.unsealed_default)

    return Replicas(context.engine, context.catalog, digests, context.now_ms, seconds)
