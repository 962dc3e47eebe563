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

Only the answer to a load has row filters and masks. All other answers with a table need an unrestricted user.

A staged creation of an encrypted table is refused in any case, since its one use is to write rows before the
commit. A new table has nothing in it, so that its creator needs no right to read it.

Callers of the engine interface are not judged here: they plan scans and begin writes (docs/threat-model.md).
"""

from __future__ import annotations

from typing import Final, NoReturn

from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.columns import every_name, view_of
from catalog.authorization.restrictions import columns_of
from catalog.base.identifiers import TableName
from catalog.reading.loading import LoadedTable, TableLoader
from policy.decision import Decision, Reason
from policy.encryption.governed import STANDARD_CLIENTS
from policy.encryption.specification import EncryptionSpec
from policy.errors import NotAuthorized, PolicyInvalid
from policy.privileges.operations import On, required
from policy.restrictions.model import UNRESTRICTED, Restriction
from policy.restrictions.standard import standard_restriction
from policy.view import Reading, View

_INSTEAD: Final = "Use the Spark plugin (docs/spark.md) or the Python client (docs/python.md)"
_ENCRYPTED: Final = (
    f"{_INSTEAD}; other engines can read its Parquet files as described in docs/stock-readers.md. "
    "To let standard clients browse the table and change its schema, a user with the unprotect "
    f"permission can set {STANDARD_CLIENTS}=load on the table or its namespace."
)
_STAGED: Final = f"{_INSTEAD}; CREATE TABLE ... AS SELECT in the Spark plugin writes encrypted files."
_PARTIAL: Final = f"{_INSTEAD}: they read only the columns and rows that policies grant."
_UNTRUSTED: Final = (
    f"{_PARTIAL} If the client enforces the read-restrictions of the Iceberg REST protocol, an administrator "
    "can grant its user `enforce` on the service (docs/row-filters-and-masks.md)."
)
_NO_ACTION: Final = (
    f"{_PARTIAL} For standard clients, name the action mask-to-fixed-value in the policy, or make the column "
    "optional."
)


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

    def require(self, caller: Caller, action: str, table: LoadedTable) -> None:
        """Refuse a table that must not go to the caller's client without restrictions; record the refusal.

        Raises:
            NotAuthorized: the table is encrypted, or the principal does not see everything of it.
        """
        restriction = self._restriction(self._authorizer.settled(), caller, action, table)
        if restriction:
            self._refuse_partial(caller, action, table, _told(restriction))

    def restrictions(self, caller: Caller, action: str, table: LoadedTable) -> Restriction:
        """Return what the caller's client has to enforce, in the actions of the Iceberg specification.

        Raises:
            NotAuthorized: the table is encrypted; the principal cannot select all of it; the client is not
                trusted to enforce what applies; or a mask has no action of the specification in its place.
        """
        authorizer = self._authorizer.settled()
        restriction = self._restriction(authorizer, caller, action, table)
        if not restriction:
            return UNRESTRICTED
        if not self._enforces(authorizer, caller):
            self._refuse_partial(caller, action, table, _told(restriction), _UNTRUSTED)
        schema = table.metadata.schema()
        fields = map(schema.find_field, schema.field_ids)
        found = standard_restriction(restriction, {each.field_id for each in fields if each.required})
        if isinstance(found, int):
            name = schema.find_column_name(found)
            mask = restriction.masks[found]
            detail = (
                f"The required column {name!r} of {table.name} is masked by {mask.action}, for which the "
                "Iceberg REST protocol has no action."
            )
            reason = Reason("mask", detail, mask.policy, mask.item)
            self._refuse(caller, action, table.record.name, reason, _NO_ACTION)
        self._authorizer.record(caller, action, table.name, Decision.allow(*restriction.reasons))
        return found

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

    def _restriction(
        self, authorizer: Authorizer, caller: Caller, action: str, table: LoadedTable
    ) -> Restriction:
        """Decide by one set of policies how the principal sees the whole table.

        Raises:
            NotAuthorized: see `restrictions`.
        """
        if not caller.standard:
            return UNRESTRICTED
        self.require_new(caller, action, table.record.name, table.governed.spec)
        view = view_of(authorizer, caller, table)
        reading = view.reads(every_name(table))
        withheld = _withheld(authorizer, caller, table, reading)
        if withheld is None and reading.altered is None:
            return UNRESTRICTED
        withheld = withheld or _masked_before(view, table)
        if withheld is not None:
            self._refuse_partial(caller, action, table, withheld)
        try:
            return view.restriction(columns_of(table))
        except PolicyInvalid as problem:
            reason = Reason(problem.rule or "policy", problem.message)
            self._refuse_partial(caller, action, table, reason, problem.hint or _PARTIAL)

    def _enforces(self, authorizer: Authorizer, caller: Caller) -> bool:
        """Return whether an administrator trusts the caller's client to enforce row filters and masks."""
        decide, user = authorizer.decide, caller.principal
        if caller.engine is not None:
            return not decide(required("engine.code", On.engine(user, caller.engine.name))).allowed
        return decide(required("client.enforce", On.service(user, self._catalog))).allowed

    def _refuse_partial(
        self, caller: Caller, action: str, table: LoadedTable, reason: Reason, hint: str = _PARTIAL
    ) -> NoReturn:
        detail = (
            f"{caller.principal.name} cannot read everything in {table.name}, but a standard client reads "
            f"the whole table: {reason.detail}"
        )
        refused = Reason(reason.rule, detail, reason.policy, reason.item)
        self._refuse(caller, action, table.record.name, refused, hint)

    def _refuse(self, caller: Caller, action: str, name: TableName, reason: Reason, hint: str) -> NoReturn:
        self._authorizer.record(caller, action, str(name), Decision.deny(reason))
        raise NotAuthorized(reason.detail, table=str(name), rule=reason.rule, hint=hint)


def _encrypts_nothing(caller: Caller) -> bool:
    """Return whether a caller's client would write plaintext into an encrypted table."""
    return caller.standard and caller.engine is None


def _told(restriction: Restriction) -> Reason:
    """Return the first reason of a restriction, without the text of a row filter: it can have values."""
    first = restriction.reasons[0]
    if first.rule != "row-filter":
        return first
    return Reason(first.rule, f"Policy {first.policy!r} filters its rows.", first.policy, first.item)


def _withheld(authorizer: Authorizer, caller: Caller, table: LoadedTable, reading: Reading) -> Reason | None:
    """Return why the caller cannot select everything in a table; None if they can."""
    if reading.refused is not None:
        return reading.refused[1].reasons[0]
    if reading.answers:
        return None
    decision = authorizer.decide([caller.on(table.record.name, table.record.owner).request("select")])
    return None if decision.allowed else decision.reasons[0]


def _masked_before(view: View, table: LoadedTable) -> Reason | None:
    """Return the mask on a column that only older schemas have: an answer has masks of current ones."""
    ids = frozenset().union(*(schema.field_ids for schema in table.metadata.schemas))
    former = ids - frozenset(table.metadata.schema().field_ids)
    masked = view.first_masked(every_name(table, former)) if former else None
    if masked is None:
        return None
    return Reason("mask", f"A policy masks {masked!r}, a name of a column that older snapshots have.")
