"""Decides which tables a standard client can load: an Iceberg client without Lakewarden.

A client that loads a table gets everything in it. It has all metadata, reads every column and row with its
own permissions on storage, and writes plaintext. So a table, in whatever answer, goes to a standard client
only if

- its principal can select everything in it: SELECT on every column under every name that it has or had;
- no mask and no row filter applies; or the answer has them, and an administrator trusts the client to enforce
  them; and
- new files are plaintext, or `encryption.standard-clients` lets standard clients load the encrypted table. An
  engine is trusted to encrypt.

Trusted to enforce row filters and masks are

- an engine, by its credential, for users who cannot run code in it;
- clients of users with `enforce` on the service.

Only the answers to a load and to a creation have row filters and masks. All other answers with a table need
an unrestricted user.

A staged creation of an encrypted table is refused in any case, since its one use is to write rows before the
commit. A new table has nothing in it, so that its creator needs no right to read it.

Callers of the engine interface are not judged here: they plan scans and begin writes (docs/threat-model.md).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NoReturn

from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.columns import every_name, former_fields, view_of
from catalog.authorization.restrictions import columns_of
from catalog.base.identifiers import TableName
from catalog.base.recent import Recent
from catalog.reading.loading import LoadedTable, TableLoader
from policy.decision import Decision, Reason
from policy.encryption.governed import STANDARD_CLIENTS
from policy.encryption.specification import EncryptionSpec
from policy.errors import NotAuthorized
from policy.privileges.operations import running_code
from policy.ranger import PolicySet
from policy.restrictions.model import UNRESTRICTED, Restriction
from policy.standard_clients import INSTEAD, UNTRUSTED, Withheld, enforced, enforces, view_of_everything
from policy.view import View

#: Judgements, the latest ones, that are remembered.
_JUDGEMENTS: Final = 10_000
_ENCRYPTED: Final = (
    f"{INSTEAD}; other engines can read its Parquet files as described in docs/stock-readers.md. "
    "To let standard clients browse the table and change its schema, a user with the unprotect "
    f"permission can set {STANDARD_CLIENTS}=load on the table or its namespace."
)
_STAGED: Final = f"{INSTEAD}; CREATE TABLE ... AS SELECT in the Spark plugin writes encrypted files."


class StandardClients:
    """Refuses tables to standard clients, or restricts what they show; permits every other caller.

    Args:
        authorizer: decides and records.
        loader: knows what namespace and catalog say of encrypted tables.
        catalog: the catalog's name, which is the service's in policies.
    """

    def __init__(self, authorizer: Authorizer, loader: TableLoader, catalog: str) -> None:
        self._authorizer = authorizer
        self._loader = loader
        self._catalog = catalog
        #: What callers were judged by who get the whole table without restrictions.
        self._whole: Recent[bool] = Recent(_JUDGEMENTS, lambda _: 1)

    def require(self, caller: Caller, action: str, table: LoadedTable) -> None:
        """Refuse a table that must not go to the caller's client without restrictions; record the refusal.

        Raises:
            NotAuthorized: the table is encrypted, or the principal does not see everything of it.
        """
        if caller.standard:
            view = view_of(self._authorizer.settled(), caller, table)
            restriction = self._restriction(view, caller, action, table)
            if restriction:
                self._refuse_partial(caller, action, table, Withheld(_told(restriction)))

    def restrictions(self, caller: Caller, action: str, table: LoadedTable) -> Restriction:
        """Return what the caller's client has to enforce, in the actions of the Iceberg specification.

        Raises:
            NotAuthorized: the table is encrypted; the principal cannot select all of it; the client is not
                trusted to enforce what applies; or a mask has no action of the specification in its place.
        """
        if not caller.standard:
            return UNRESTRICTED
        authorizer = self._authorizer.settled()
        key = _judgement(authorizer.policies(), caller, table)
        if key is not None and self._whole.known(key):
            return UNRESTRICTED
        view = view_of(authorizer, caller, table)
        restriction = self._restriction(view, caller, action, table)
        if not restriction:
            if key is not None:
                self._whole.get(key, lambda: True)
            return UNRESTRICTED
        if not self._enforces(view, caller):
            self._refuse_partial(caller, action, table, Withheld(_told(restriction), UNTRUSTED))
        found = enforced(restriction, columns_of(table))
        if isinstance(found, Withheld):
            self._refuse_partial(caller, action, table, found)
        self._authorizer.record(caller, action, table.name, Decision.allow(*restriction.reasons))
        return found

    def restrictions_of_new(self, caller: Caller, table: LoadedTable) -> Restriction:
        """Return what the caller's client has to enforce on a table that it made.

        A client that could not load the table gets no restrictions: there is nothing in it.
        """
        if not caller.standard:
            return UNRESTRICTED
        view, columns = view_of(self._authorizer.settled(), caller, table), columns_of(table)
        found = view_of_everything(view, every_name(table), former_fields(table), columns)
        if isinstance(found, Restriction) and self._enforces(view, caller):
            found = enforced(found, columns)
            return found if isinstance(found, Restriction) else UNRESTRICTED
        return UNRESTRICTED

    def require_new(self, caller: Caller, action: str, name: TableName, spec: EncryptionSpec) -> None:
        """Refuse to give a standard client the location of a table with this encryption.

        Raises:
            NotAuthorized: new files are encrypted, and the table's settings do not let standard clients in.
        """
        if _encrypts_nothing(caller) and not self._loader.admits_standard_clients(name, spec):
            message = f"The table {name} is encrypted, and a standard client would write plaintext into it."
            self._refuse(caller, action, name, Reason("standard-client", message), _ENCRYPTED)

    def require_staged(self, caller: Caller, action: str, name: TableName, spec: EncryptionSpec) -> None:
        """Refuse the staged creation of a table with this encryption by a standard client.

        Raises:
            NotAuthorized: new files are encrypted.
        """
        if _encrypts_nothing(caller) and spec.encrypts:
            message = (
                f"The table {name} is to be encrypted, but a standard client would write plaintext rows."
            )
            self._refuse(caller, action, name, Reason("standard-client", message), _STAGED)

    def _restriction(self, view: View, caller: Caller, action: str, table: LoadedTable) -> Restriction:
        """Return what applies to the whole table for the principal.

        Raises:
            NotAuthorized: see `restrictions`.
        """
        self.require_new(caller, action, table.record.name, table.governed.spec)
        found = view_of_everything(view, every_name(table), former_fields(table), columns_of(table))
        if isinstance(found, Withheld):
            self._refuse_partial(caller, action, table, found)
        return found

    def _enforces(self, view: View, caller: Caller) -> bool:
        """Return whether an administrator trusts the caller's client to enforce row filters and masks."""
        if caller.engine is None:
            return enforces(view, self._catalog)
        code = running_code(caller.principal, caller.engine.name)
        return not any(view.decide(each).allowed for each in code)

    def _refuse_partial(
        self, caller: Caller, action: str, table: LoadedTable, withheld: Withheld
    ) -> NoReturn:
        reason = withheld.reason
        detail = (
            f"{caller.principal.name} cannot read everything in {table.name}, but a standard client reads "
            f"the whole table: {reason.detail}"
        )
        refused = Reason(reason.rule, detail, reason.policy, reason.item)
        self._refuse(caller, action, table.record.name, refused, withheld.hint)

    def _refuse(self, caller: Caller, action: str, name: TableName, reason: Reason, hint: str) -> NoReturn:
        self._authorizer.record(caller, action, str(name), Decision.deny(reason))
        raise NotAuthorized(reason.detail, table=str(name), rule=reason.rule, hint=hint)


def _judgement(policies: PolicySet, caller: Caller, table: LoadedTable) -> Hashable:
    """Return everything that decides what a caller's client gets of a table; None where more does.

    With schedules in policies, the time decides, too; of an encrypted table, properties of its namespace do.
    """
    record, seal = table.record, table.seal
    if seal is None or policies.is_scheduled or table.governed.spec.encrypts:
        return None
    named = (record.id, record.name, record.owner)
    return (
        policies.version,
        caller.principal,
        caller.engine,
        *named,
        seal.id,
        seal.digest,
        table.governed.version,
    )


def _encrypts_nothing(caller: Caller) -> bool:
    """Return whether a caller's client would write plaintext into an encrypted table."""
    return caller.standard and caller.engine is None


def _told(restriction: Restriction) -> Reason:
    """Return the first reason of a restriction, without the text of a row filter: it can have values."""
    first = restriction.reasons[0]
    if first.rule != "row-filter":
        return first
    return Reason(first.rule, f"Policy {first.policy!r} filters its rows.", first.policy, first.item)
