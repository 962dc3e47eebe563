"""Issues storage credentials of single tables to standard clients (vended credentials).

A credential opens every object below its prefixes until it ends: also files that no snapshot names, whichever
writer put them there. So it opens more than `decision` permits, and is issued only where all of that is the
table's own:

- The caller's client can have the whole table, and plans its scans itself (`StorageAccess`).
- The metadata is sealed.
- No other table lies in one of the prefixes or above it, and none can be read from there.

Everything is decided for each request, by the policies in force then; what is kept is only the answer of STS.
Otherwise no credential is issued: the user is told to use signing, which decides each object.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from catalog.authorization.authorizer import Caller
from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.reading.loading import LoadedTable
from catalog.rules import governance
from catalog.settings.sections import StsSettings
from catalog.state import claims
from catalog.storage_access.credential_cache import CredentialCache
from catalog.storage_access.decision import StorageAccess, StorageDecisions, write_locations
from catalog.storage_access.session_policy import RULE, USE_SIGNING, Scope, session_policy
from catalog.storage_access.sts import Credential, TokenService
from catalog.tables.drafts import Draft
from policy.decision import Decision, Reason
from policy.errors import NotAuthorized, StorageUnavailable
from policy.location.location import Location
from policy.privileges.operations import required
from policy.restrictions.model import Restriction

ACTION: Final = "table.credentials"


@dataclass(frozen=True, slots=True)
class Issued:
    """A credential for a table.

    Attributes:
        credential: the credential.
        table_location: where the table lies, as its metadata says.
    """

    credential: Credential
    table_location: str


class CredentialVending:
    """Issues storage credentials.

    Args:
        context: the parts that services share.
        decisions: what clients can touch in the object store.
        sts: the settings that switch it on.
    """

    def __init__(self, context: ServiceContext, decisions: StorageDecisions, sts: StsSettings) -> None:
        self._context = context
        self._decisions = decisions
        self._service = TokenService.connect(context.settings.s3, sts)
        self._cache = CredentialCache(context.now_ms)
        known = sts.policy_variables
        self._variables = context.settings.s3.endpoint is None if known is None else known

    def of_loaded(self, caller: Caller, table: LoadedTable, restriction: Restriction) -> Issued:
        """Issue a credential for a table that the caller's client can load, and record that.

        Args:
            caller: who asks.
            table: the table.
            restriction: what the client enforces, as `StandardClients.restrictions` judged the caller.

        Raises:
            NotAuthorized: a credential would open more than the caller may have.
            StorageUnavailable: STS does not answer.
        """
        with self._recorded(caller, table.name):
            access = self._decisions.of(caller, table, restriction)
            if table.seal is None:
                raise _refused("unsealed", "The table's metadata did not come through the catalog.")
            return self._issue(caller, access, access.write_locations)

    def of_created(self, caller: Caller, table: LoadedTable) -> Issued | None:
        """Issue a credential for a table that the caller created; None if it is refused or STS is down.

        The table exists by then, so that the answer to its creation is no error.
        """
        try:
            restriction = self._context.standard_clients.restrictions(caller, ACTION, table)
            return self.of_loaded(caller, table, restriction)
        except (NotAuthorized, StorageUnavailable):
            return None

    def of_staged(self, caller: Caller, draft: Draft) -> Issued:
        """Issue a credential for a table whose creation is staged: its paths are authorized by then.

        Raises:
            as `of_loaded`; or the caller could not load the table.
        """
        name = draft.record.name
        with self._recorded(caller, str(name)):
            if draft.wanted.spec.encrypts:
                raise _refused("encrypted", "Only engines write the files of encrypted tables.")
        governed = governance.first_version(draft.wanted, draft.metadata, (), 0)
        table = LoadedTable(draft.record, governed, draft.metadata, "", None)
        restriction = self._context.standard_clients.restrictions(caller, ACTION, table)
        on = caller.on(name, draft.record.owner)
        self._context.authorizer.require(caller, ACTION, str(name), required("table.write", on))
        with self._recorded(caller, str(name)):
            access = self._decisions.of(caller, table, restriction)
            return self._issue(caller, access, write_locations(table))

    def _issue(self, caller: Caller, access: StorageAccess, writes: tuple[Location, ...]) -> Issued:
        context, table, own = self._context, access.table, access.table.record
        if not access.plans_itself:
            raise _refused("planned-files", "The catalog plans the scans of the table.")
        scope = Scope(access.read_locations, writes)
        policy = session_policy(scope, partition=self._service.partition, variables=self._variables)
        with read(context.engine) as connection:
            shared = claims.shared(connection, context.catalog, scope.reads, own.id, context.now_ms())
        if shared is not None:
            detail = f"Another table lies in {shared} or above it, or can be read from there."
            raise _refused("shared-prefix", detail)
        versions = (own.table_uuid, table.governed.version, context.policies.current().version)
        credential = self._cache.get(
            (caller.principal, caller.engine, *versions, policy),
            lambda: self._service.issue(policy, caller.principal.name),
        )
        context.authorizer.record(caller, ACTION, table.name, _granted(scope, credential))
        return Issued(credential, table.metadata.location)

    @contextmanager
    def _recorded(self, caller: Caller, table: str) -> Iterator[None]:
        """Record a refusal that is raised inside."""
        try:
            yield
        except NotAuthorized as refusal:
            refusal.table = table
            reason = Reason(refusal.rule or RULE, refusal.message)
            self._context.authorizer.record(caller, ACTION, table, Decision.deny(reason))
            raise


def _granted(scope: Scope, credential: Credential) -> Decision:
    ends = datetime.fromtimestamp(credential.expires_ms / 1000, UTC).isoformat(timespec="seconds")
    return Decision.allow(
        Reason("credential", f"Issued a storage credential that ends at {ends}."),
        *(Reason("credential-read", each.canonical) for each in scope.reads),
        *(Reason("credential-write", each.canonical) for each in scope.writes),
    )


def _refused(rule: str, detail: str) -> NotAuthorized:
    return NotAuthorized(f"No storage credential is issued. {detail}", rule=rule, hint=USE_SIGNING)
