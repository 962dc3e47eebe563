"""Decides which tables a standard client can load: an Iceberg client without Lakewarden.

A client that loads a table gets everything in it. It has all metadata, reads every column and row with its
own permissions on storage, and writes plaintext. So a table, in whatever answer, goes to a standard client
only if

- its principal sees everything of it: SELECT on every column under every name that it has or had, no mask and
  no row filter; and
- new files are plaintext, or `encryption.standard-clients` lets standard clients load the encrypted table.

A staged creation of an encrypted table is refused in any case, since its one use is to write rows before the
commit. A new table has nothing in it, so that its creator needs no right to read it.

Callers that act through an engine, or call the engine interface, are not judged here: engines plan scans
and begin writes (docs/threat-model.md).
"""

from __future__ import annotations

from typing import Final, NoReturn

from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.columns import every_name, view_of
from catalog.base.identifiers import TableName
from catalog.reading.loading import LoadedTable, TableLoader
from policy.decision import Decision, Reason
from policy.encryption.governed import STANDARD_CLIENTS
from policy.encryption.specification import EncryptionSpec
from policy.errors import NotAuthorized

_INSTEAD: Final = "Use the Spark plugin (docs/spark.md) or the Python client (docs/python.md)"
_ENCRYPTED: Final = (
    f"{_INSTEAD}; other engines can read its Parquet files as described in docs/stock-readers.md. "
    "To let standard clients browse the table and change its schema, a user with the unprotect "
    f"permission can set {STANDARD_CLIENTS}=load on the table or its namespace."
)
_STAGED: Final = f"{_INSTEAD}; CREATE TABLE ... AS SELECT in the Spark plugin writes encrypted files."
_PARTIAL: Final = f"{_INSTEAD}: they read only the columns and rows that policies grant."


class StandardClients:
    """Refuses tables to standard clients; permits every other caller.

    Args:
        authorizer: decides and records.
        loader: knows what namespace and catalog say of encrypted tables.
    """

    def __init__(self, authorizer: Authorizer, loader: TableLoader) -> None:
        self._authorizer = authorizer
        self._loader = loader

    def require(self, caller: Caller, action: str, table: LoadedTable) -> None:
        """Refuse a table that the caller's client must not load, and record the refusal.

        Raises:
            NotAuthorized: the table is encrypted, or the principal does not see everything of it.
        """
        if not caller.standard:
            return
        name = table.record.name
        self.require_new(caller, action, name, table.governed.spec)
        reason = self._withheld(caller, table)
        if reason is not None:
            message = (
                f"{caller.principal.name} cannot read everything in {name}, but a standard client "
                f"reads the whole table: {reason.detail}"
            )
            self._refuse(caller, action, name, Reason(reason.rule, message), _PARTIAL)

    def require_new(self, caller: Caller, action: str, name: TableName, spec: EncryptionSpec) -> None:
        """Refuse to give a standard client the location of a table with this encryption.

        Raises:
            NotAuthorized: new files are encrypted, and the table's settings do not let standard clients in.
        """
        if caller.standard and not self._loader.admits_standard_clients(name, spec):
            message = f"The table {name} is encrypted, and a standard client would write plaintext into it."
            self._refuse(caller, action, name, Reason("standard-client", message), _ENCRYPTED)

    def require_staged(self, caller: Caller, action: str, name: TableName, spec: EncryptionSpec) -> None:
        """Refuse the staged creation of a table with this encryption by a standard client.

        Raises:
            NotAuthorized: new files are encrypted.
        """
        if caller.standard and spec.encrypts:
            message = (
                f"The table {name} is to be encrypted, but a standard client would write plaintext rows."
            )
            self._refuse(caller, action, name, Reason("standard-client", message), _STAGED)

    def _withheld(self, caller: Caller, table: LoadedTable) -> Reason | None:
        """What the principal does not see of the table, by one set of policies; None if nothing."""
        authorizer = self._authorizer.settled()
        reading = view_of(authorizer, caller, table).reads(every_name(table))
        if reading.refused is not None:
            return reading.refused[1].reasons[0]
        if not reading.answers:
            decision = authorizer.decide([caller.on(table.record.name, table.record.owner).request("select")])
            if not decision.allowed:
                return decision.reasons[0]
        return reading.altered

    def _refuse(self, caller: Caller, action: str, name: TableName, reason: Reason, hint: str) -> NoReturn:
        self._authorizer.record(caller, action, str(name), Decision.deny(reason))
        raise NotAuthorized(reason.detail, table=str(name), rule=reason.rule, hint=hint)
