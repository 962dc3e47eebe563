"""Records certificates of erasure in the audit log.

A certificate says of a table whether the rows of some identifiers were erased from it, which snapshots are
gone and which were searched, and how many rows it was. It has digests of the identifiers, never the
identifiers themselves.

- What the catalog can check, it checks: the table exists under that name and UUID, the snapshots that were
  searched are retained and the others are not, and no manifest list of a snapshot that is gone is left in
  storage. Manifest lists are deleted last, after manifests and files (`catalog.maintenance.expiry`).
- That no row matches is what the caller says. The record names the caller. A caller for whom a policy filters
  rows or masks a column does not see what matches, and is refused.
- A table that was not erased is recorded with the reason that the caller gives.

Source: docs/audit.md, "Certificates of erasure".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from catalog.audit import outcomes
from catalog.authorization.authorizer import Caller
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.reading.loading import LoadedTable
from catalog.state import seals
from catalog.writes.filters import require_every_row
from policy.decision import Decision, Reason
from policy.errors import RequestInvalid
from policy.location.location import Location

_ERASED: Final = "table.certify"
_LEFT: Final = "table.certify-left"
#: Characters of a reason in the audit log, with a margin.
_DETAIL: Final = 900


@dataclass(frozen=True, slots=True)
class Identifiers:
    """Digests of identifiers, by scrypt (RFC 7914) with one salt.

    Attributes:
        cost, block_size, parallelism: the parameters N, r and p.
        salt: in hexadecimal.
        digests: of each identifier, in hexadecimal; sorted.
    """

    cost: int
    block_size: int
    parallelism: int
    salt: str
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Erased:
    """A table from which the rows were erased.

    Attributes:
        name: the table.
        table_uuid: its UUID.
        columns: dotted names of the columns that were searched.
        rows: how many rows were deleted, on all branches.
        gone: snapshots that had such rows, and are gone.
        searched: retained snapshots in which no such row was found.
    """

    name: TableName
    table_uuid: UUID
    columns: tuple[str, ...]
    rows: int
    gone: tuple[int, ...]
    searched: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NotErased:
    """A table from which the rows were not erased, or not all of them.

    Attributes:
        name: the table.
        reason: why, in the words of the caller.
    """

    name: TableName
    reason: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate of erasure, of one table.

    Attributes:
        id: names the erasure; all tables of it have the same id.
        identifiers: whose rows were erased.
        statement: what became of the table.
    """

    id: UUID
    identifiers: Identifiers
    statement: Erased | NotErased


class Certificates:
    """Checks and records certificates.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def record(self, caller: Caller, certificate: Certificate) -> None:
        """Check a certificate, and record it, or refuse it.

        Raises:
            NotAuthorized: ALTER, DROP and UPDATE on an erased table are needed, without row filter or mask;
                and any permission on a table that was not erased.
            RequestInvalid: the certificate does not agree with the table's state.
            NoSuchTable, MetadataUnsealed, MetadataTampered: an erased table cannot be checked.
        """
        statement = certificate.statement
        action = _ERASED if isinstance(statement, Erased) else _LEFT
        self._context.require(caller, action, statement.name)
        if isinstance(statement, Erased):
            with self._context.authorizer.recorded(caller, action, str(statement.name)):
                self._check(caller, statement)
        facts = [Reason("certificate", str(certificate.id)), *_facts(statement)]
        for fact in facts[:2]:
            outcomes.note(fact.rule, fact.detail)
        everything = Decision.allow(*facts, *_digests(certificate.identifiers))
        self._context.authorizer.record(caller, action, str(statement.name), everything)

    def _check(self, caller: Caller, erased: Erased) -> None:
        table = self._context.loader.load_sealed(erased.name)
        require_every_row(self._context, table, caller, _ERASED, overwrites=True)
        if table.record.table_uuid != erased.table_uuid:
            raise _disagrees(erased, "The table is another one: it was dropped and created again.")
        present = {each.snapshot_id for each in table.metadata.snapshots}
        missing, kept = set(erased.searched) - present, set(erased.gone) & present
        if missing:
            raise _disagrees(erased, f"Snapshot {min(missing)} was searched, and is not retained.")
        if kept:
            raise _disagrees(erased, f"Snapshot {min(kept)} is named as gone, but it is retained.")
        self._require_deleted(table, erased)

    def _require_deleted(self, table: LoadedTable, erased: Erased) -> None:
        with read(self._context.engine) as connection:
            lists = seals.manifest_lists(connection, table.record.id)
        known = {each.snapshot_id: each.path for each in lists}
        for snapshot in erased.gone:
            if snapshot not in known:
                raise _disagrees(erased, f"The table never had a snapshot {snapshot}.")
            if self._context.storage.exists(Location.parse(known[snapshot])):
                raise _disagrees(erased, f"Files of snapshot {snapshot} are left in storage.")


def _facts(statement: Erased | NotErased) -> list[Reason]:
    if isinstance(statement, NotErased):
        return [Reason("not-erased", statement.reason)]
    return [
        Reason("erased-rows", str(statement.rows)),
        *_listed("columns", statement.columns),
        *_listed("snapshots-gone", map(str, statement.gone)),
        *_listed("snapshots-searched", map(str, statement.searched)),
    ]


def _digests(identifiers: Identifiers) -> Iterator[Reason]:
    yield Reason(
        "identifiers",
        f"{len(identifiers.digests)}, scrypt N={identifiers.cost} r={identifiers.block_size} "
        f"p={identifiers.parallelism} salt={identifiers.salt}",
    )
    yield from _listed("identifier-digests", identifiers.digests)


def _listed(rule: str, values: Iterable[str]) -> Iterator[Reason]:
    """Yield reasons that name values, as many as there is room for in each."""
    line = ""
    for value in values:
        if line and len(line) + len(value) + 1 > _DETAIL:
            yield Reason(rule, line)
            line = ""
        line = f"{line} {value}".strip()
    if line:
        yield Reason(rule, line)


def _disagrees(erased: Erased, problem: str) -> RequestInvalid:
    return RequestInvalid(
        f"The certificate does not agree with the table. {problem}",
        table=str(erased.name),
        rule="certificate",
        hint="Erase the rows again, and certify what is found then.",
    )
