"""Opens the service context in order of dependency; `catalog.service.services` builds the services on it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from sqlalchemy import Engine

from catalog.audit.checkpoints import Checkpointer, Signer
from catalog.audit.trail import AuditTrail
from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.logouts import Logouts
from catalog.authorization.principals import Principals
from catalog.authorization.standard_clients import StandardClients
from catalog.authorization.tokens import TokenStore
from catalog.closing import closed
from catalog.context import ServiceContext
from catalog.db import migrate
from catalog.db.clock import DatabaseClock
from catalog.db.engine import open_database
from catalog.envelope.peks import PekCache
from catalog.iceberg.manifests import CacheFiles, DecodeLimits, ManifestCache
from catalog.identity.bearer import open_bearer_tokens
from catalog.keyring.keyring import Keyring
from catalog.keyring.kms_keys import KmsKeys
from catalog.kms.clients import KmsClients
from catalog.kms.interface import KmsClient
from catalog.kms.registry import load_kms
from catalog.kms.resilient import guarded
from catalog.policy_store.changes import PolicyChanges, Prepared, about, reasons_of
from catalog.policy_store.documents import PolicyDocuments
from catalog.policy_store.files import PolicyFiles
from catalog.policy_store.in_force import PolicyStore
from catalog.policy_store.source_ages import SourceAges
from catalog.policy_store.source_states import SourceStates
from catalog.reading.loading import TableLoader
from catalog.reading.snapshots import SnapshotReader
from catalog.rules.encryption_policy import EncryptionPolicy
from catalog.service.replicas import unsealed_default
from catalog.settings.catalog import Settings
from catalog.settings.kms import kms_options
from catalog.snapshot_checks.added_files import AddedFiles
from catalog.snapshot_checks.inspection import Inspector
from catalog.state.invocations import Invocations
from catalog.state.shared_keys import manifest_cache_key
from catalog.state.sql_pointers import SqlPointerStore
from catalog.storage.base import Storage, StorageRouter
from catalog.storage.local import LocalStorage
from catalog.storage.s3 import S3Options, S3Storage
from policy.decision import Decision
from policy.location.location import Location
from policy.principal import Principal
from policy.ranger import PolicySet

#: The principal that applies the policy files of an embedded catalog.
_CATALOG: Final = Caller(Principal("lakewarden"), None, "policy-files")


def open_context(
    settings: Settings,
    kms: KmsClient,
    now: Callable[[], datetime],
    seconds: Callable[[], float],
) -> ServiceContext:
    """Open the service context that `settings` describe; see `catalog.service.services.Services.open`."""
    name = settings.catalog.name
    engine = open_database(settings.database.url)
    migrate.check(engine)

    def now_ms() -> int:
        return int(now().timestamp() * 1000)

    documents = PolicyDocuments(engine, name)
    clock = DatabaseClock(engine, now, seconds)
    unsealed = settings.unsealed_metadata or unsealed_default(engine)
    signer = None if settings.audit.key_file is None else Signer(settings.audit.key_file)
    audit = _audit(settings, engine, signer, now_ms)
    principals = Principals(engine, now, settings.identity)
    tokens = TokenStore(engine, now, clock.require, settings.identity)
    _apply_files(settings, documents, Authorizer(PolicySet.empty, audit, now), principals, now)
    policies = PolicyStore(
        documents,
        poll_s=settings.policies_poll_s,
        clock=seconds,
        sources=_sources(settings, engine, now, seconds),
    )
    pointers, storage = SqlPointerStore(engine, name), open_storage(settings)
    reader = SnapshotReader(engine, storage, _cache(settings, engine), _limits(settings))
    clients, invocations = _clients(settings, kms), Invocations(engine)
    peks = PekCache(
        clients.by_name,
        catalog=name,
        ttl=settings.kms.pek_ttl_s,
        wait_timeout_s=_longest_call_s(settings),
        counting=invocations.of,
    )
    kms_keys = KmsKeys(engine, name, clients)
    keyring = Keyring(engine, kms_keys, peks)
    authorizer = Authorizer(policies.current, audit, now)
    loader = _loader(settings, engine, pointers, storage, unsealed)
    added_files = AddedFiles(storage, settings.limits.added_file_requests)
    return ServiceContext(
        settings=settings,
        catalog=name,
        engine=engine,
        now=now,
        now_ms=now_ms,
        policy_documents=documents,
        policies=policies,
        encryption=EncryptionPolicy(policies.encryption),
        principals=principals,
        tokens=tokens,
        bearer_tokens=open_bearer_tokens(settings.identity, tokens, principals, now, seconds, clock.require),
        logouts=Logouts(engine, now),
        clock=clock,
        audit=audit,
        audit_signer=signer,
        authorizer=authorizer,
        pointers=pointers,
        storage=storage,
        reader=reader,
        loader=loader,
        kms_calls=clients.main,
        kms_keys=kms_keys,
        invocations=invocations,
        peks=peks,
        keyring=keyring,
        added_files=added_files,
        inspector=Inspector(reader, keyring, added_files),
        standard_clients=StandardClients(authorizer, loader, name),
    )


def _sources(
    settings: Settings, engine: Engine, now: Callable[[], datetime], seconds: Callable[[], float]
) -> SourceAges:
    """Return the ages of the policy sources in the settings."""
    states = SourceStates(engine, settings.catalog.name, now)
    return SourceAges(states.of, {name: each.max_age_s for name, each in settings.ranger.items()}, seconds)


def _clients(settings: Settings, kms: KmsClient) -> KmsClients:
    """Return the clients of the main KMS and of the others in the settings."""
    others = (
        guarded(load_kms(each.kind, kms_options(each)), each.calls, name)
        for name, each in sorted(settings.other_kms.items())
    )
    return KmsClients(guarded(kms, settings.kms.calls, settings.kms.name), others)


def _longest_call_s(settings: Settings) -> float:
    """Return the longest time that a call to one of the KMSs takes."""
    return max(kms.calls.deadline_s for kms in (settings.kms, *settings.other_kms.values()))


def _apply_files(
    settings: Settings,
    documents: PolicyDocuments,
    recorder: Authorizer,
    principals: Principals,
    now: Callable[[], datetime],
) -> None:
    """Apply the policy files of an embedded catalog to its database.

    Raises:
        PolicyInvalid: a file is not valid; nothing was changed.
        RequestInvalid: no user could administer the catalog afterwards.
    """
    if not (settings.policies or settings.encryption_rules):
        return
    edits = PolicyFiles(settings.policies, settings.encryption_rules).edits(documents.current())
    if not edits:
        return

    def record(prepared: Prepared) -> None:
        for reasons in reasons_of(prepared):
            recorder.record(_CATALOG, "policy.change", about(edits), Decision.allow(*reasons))

    with closed(recorder, _CATALOG, "policies", changes=True):
        changes = PolicyChanges(
            documents, None, principals, settings.catalog.name, now, sources=settings.ranger
        )
        changes.make(edits, _CATALOG, record, by_policy=False)


def _audit(
    settings: Settings, engine: Engine, signer: Signer | None, now_ms: Callable[[], int]
) -> AuditTrail:
    checkpointer = Checkpointer(engine, signer, now_ms, settings.audit.checkpoint_s)
    if signer is not None:
        checkpointer.begin("first")
    return AuditTrail(engine, checkpointer=checkpointer, refusal_bytes=settings.audit.refusal_bytes)


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


def open_storage(settings: Settings) -> Storage:
    """Open the storage of all schemes that the settings describe."""
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


def _cache(settings: Settings, engine: Engine) -> ManifestCache:
    cache = settings.cache
    files = None
    if cache.directory is not None and cache.directory_bytes:
        files = CacheFiles(cache.directory, lambda: manifest_cache_key(engine), cache.directory_bytes)
    return ManifestCache(cache.manifest_bytes, files, limits=_limits(settings))
