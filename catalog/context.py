"""Defines the service context: the database, policies, audit trail, storage and keys that services share.

Each service gets it whole, and beside it only the services that it uses. `catalog.service.context` opens it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine

from catalog.audit.checkpoints import Signer
from catalog.audit.trail import AuditTrail
from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.logouts import Logouts
from catalog.authorization.principals import Principals
from catalog.authorization.standard_clients import StandardClients
from catalog.authorization.table_access import require_on
from catalog.authorization.tokens import TokenStore
from catalog.base.identifiers import TableName
from catalog.db.clock import DatabaseClock
from catalog.db.engine import read
from catalog.envelope.peks import PekCache
from catalog.identity.bearer import BearerTokens
from catalog.keyring.keyring import Keyring
from catalog.keyring.kms_keys import KmsKeys
from catalog.kms.calls import CountedKms
from catalog.policy_store.documents import PolicyDocuments
from catalog.policy_store.in_force import PolicyStore
from catalog.reading.loading import TableLoader
from catalog.reading.snapshots import SnapshotReader
from catalog.rules.encryption_policy import EncryptionPolicy
from catalog.settings.catalog import Settings
from catalog.snapshot_checks.added_files import AddedFiles
from catalog.snapshot_checks.inspection import Inspector
from catalog.state import claims
from catalog.state.invocations import Invocations
from catalog.state.sql_pointers import SqlPointerStore
from catalog.state.table_state import TableRecord
from catalog.storage.base import Storage
from policy.location.location import Location
from policy.privileges.operations import On


@dataclass(frozen=True)
class ServiceContext:
    """The parts that the services of one catalog share.

    Attributes are documented at their classes. `catalog` is the catalog's name, `now` the time with a zone,
    `now_ms` the same in milliseconds, `kms_calls` the client through which the main KMS is called.
    """

    settings: Settings
    catalog: str
    engine: Engine
    now: Callable[[], datetime]
    now_ms: Callable[[], int]
    policy_documents: PolicyDocuments
    policies: PolicyStore
    encryption: EncryptionPolicy
    principals: Principals
    tokens: TokenStore
    bearer_tokens: BearerTokens
    logouts: Logouts
    clock: DatabaseClock
    audit: AuditTrail
    audit_signer: Signer | None
    authorizer: Authorizer
    pointers: SqlPointerStore
    storage: Storage
    reader: SnapshotReader
    loader: TableLoader
    kms_calls: CountedKms
    kms_keys: KmsKeys
    invocations: Invocations
    peks: PekCache
    keyring: Keyring
    added_files: AddedFiles
    inspector: Inspector
    standard_clients: StandardClients

    @property
    def master_key_id(self) -> str:
        """The master key of tables that name none."""
        return self.settings.kms.default_master_key_id

    def on(self, caller: Caller, name: TableName) -> On:
        """Return a table with its owner, as what a caller's operation is about."""
        return caller.on(name, self.loader.owner(name))

    def require(self, caller: Caller, operation: str, name: TableName) -> None:
        """Require the privileges of an operation on a table.

        Raises:
            NotAuthorized: they are not granted.
        """
        require_on(self.authorizer, caller, operation, str(name), self.on(caller, name))

    def overlapping(self, record: TableRecord, locations: Iterable[Location]) -> list[TableRecord]:
        """Return the other tables whose locations overlap one of these."""
        with read(self.engine) as connection:
            return claims.overlapping_any(connection, self.catalog, locations, record.id, self.now_ms())
