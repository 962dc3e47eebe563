"""Lists the tables of a catalog with their state, in bulk, for audits of the whole lake.

- Everything comes from the database. No file of a table is read, except to check the encryption rules in
  force, where there are any.
- Tables that only the pointer store knows are listed, and governed tables without a pointer.
- It needs `audit` on the service, as the audit log does: names, locations and names of keys of all tables are
  shown, and no value. Each page is recorded once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from sqlalchemy import Connection

from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.envelope.peks import PekRecord
from catalog.maintenance.encryption_report import EncryptionReporter
from catalog.maintenance.garbage import MIN_AGE
from catalog.state import invocations, lake_rows
from catalog.state.seals import Digest, SealedFile
from catalog.state.table_state import Governed, TableRecord
from policy.errors import RequestInvalid
from policy.location.location import Location
from policy.location.overlaps import Claim, Claims

#: Seals of files in one page.
SEALS: Final = 10_000


class Standing(StrEnum):
    """How the catalog knows a table.

    - GOVERNED: it governs the table, which has a pointer.
    - POINTERLESS: it governs the table, whose pointer was removed from the pointer store.
    - UNGOVERNED: the pointer store alone knows it.
    """

    GOVERNED = "governed"
    POINTERLESS = "pointerless"
    UNGOVERNED = "ungoverned"


@dataclass(frozen=True, slots=True)
class KeyStanding:
    """A version of a table's PEK.

    Attributes:
        record: the version.
        in_force: whether new files are under it.
        invocations: how often it has encrypted, at most.
    """

    record: PekRecord
    in_force: bool
    invocations: int


@dataclass(frozen=True, slots=True)
class TableInLake:
    """A table with the state that the database has of it.

    Attributes:
        name: the table.
        standing: how the catalog knows it; what follows is empty if it does not govern it.
        pointer: the metadata.json that the pointer names; None without a pointer.
        record: its identity.
        governed: what governs it.
        sealed_pointer: the metadata.json that is sealed as the current one.
        seal: the digest of that.
        keys: its PEKs in every version and state.
        writes: directories of writes that are open, or that wait for a clean-up.
        others: claims of other tables on its location, or on one that it can be read from.
        shared: whether files below its location can belong to other tables.
        violations: what breaks the encryption rules in force, a sentence each.
        problem: why that is not known.
    """

    name: TableName
    standing: Standing
    pointer: str | None
    record: TableRecord | None = None
    governed: Governed | None = None
    sealed_pointer: str | None = None
    seal: Digest | None = None
    keys: tuple[KeyStanding, ...] = ()
    writes: tuple[str, ...] = ()
    others: tuple[Claim, ...] = ()
    shared: bool = False
    violations: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class StatesPage:
    """A page of states.

    Attributes:
        tables: all tables; none on a page of further seals.
        seals: seals of their manifest lists and manifests, each with the UUID of its table.
        after: where the next page of seals begins; None at the end.
        garbage_before_ms: unreferenced files that were modified before then are garbage.
    """

    tables: tuple[TableInLake, ...]
    seals: tuple[tuple[str, SealedFile], ...]
    after: str | None
    garbage_before_ms: int


class LakeReader:
    """Reads the state of many tables. Its callers authorize.

    Args:
        context: the parts that services share.
        report: checks tables by the encryption rules.
    """

    def __init__(self, context: ServiceContext, report: EncryptionReporter) -> None:
        self._context = context
        self._report = report

    def names(self) -> list[tuple[TableName, Standing]]:
        """Return all tables, sorted by dotted name."""
        with read(self._context.engine) as connection:
            pointers = lake_rows.pointers(connection, self._context.catalog)
            bound = lake_rows.bound(connection, self._context.catalog)
        names = sorted(pointers.keys() | bound.keys(), key=str)
        return [(name, _standing(name, pointers, bound)) for name in names]

    def states(self, names: Sequence[TableName], after: str | None = None) -> StatesPage:
        """Return the state of tables. A table that does not exist is left out.

        Args:
            names: the tables.
            after: `StatesPage.after` of the page before.

        Raises:
            RequestInvalid: `after` is not of a page of these tables.
            StateUnavailable: the database does not answer.
        """
        self._settle(names)
        with read(self._context.engine) as connection:
            pointers = lake_rows.pointers(connection, self._context.catalog, names)
            bound = lake_rows.bound(connection, self._context.catalog, names)
            found = [name for name in names if name in pointers or name in bound]
            tables = self._tables(connection, found, pointers, bound) if after is None else []
            seals = self._seals(connection, list(bound.values()), after)
        now_ms = self._context.now_ms()
        garbage_before_ms = now_ms - int(MIN_AGE.total_seconds() * 1000)
        return StatesPage(tuple(self._checked(tables)), *seals, garbage_before_ms)

    def _settle(self, names: Sequence[TableName]) -> None:
        """Finish commits that were interrupted after their pointer had moved, as a load does."""
        with read(self._context.engine) as connection:
            pointers = lake_rows.pointers(connection, self._context.catalog, names)
            left = lake_rows.prepared(connection, list(pointers.values()))
        for name, pointer in pointers.items():
            if pointer in left:
                self._context.loader.settle(name)

    def _tables(
        self,
        connection: Connection,
        names: Iterable[TableName],
        pointers: dict[TableName, str],
        bound: dict[TableName, TableRecord],
    ) -> list[TableInLake]:
        records = list(bound.values())
        ids = [record.id for record in records]
        governed = lake_rows.current_governed(connection, ids)
        seals = lake_rows.current_seals(connection, ids)
        peks = lake_rows.peks(connection, records)
        used = invocations.counted(connection, [pek.id for each in peks.values() for pek in each])
        writes = lake_rows.unclosed_writes(connection, ids)
        located = lake_rows.locations(connection, self._context.catalog)
        readable = lake_rows.readable(connection, self._context.catalog)
        tables = []
        for name in names:
            standing, record = _standing(name, pointers, bound), bound.get(name)
            if record is None or record.id not in governed:
                tables.append(TableInLake(name, standing, pointers.get(name)))
                continue
            mine, seal = governed[record.id], seals.get(record.id)
            places = dict.fromkeys((record.location, *mine.allowed.entries))
            tables.append(
                TableInLake(
                    name,
                    standing,
                    pointers.get(name),
                    record,
                    mine,
                    None if seal is None else seal.metadata_location,
                    None if seal is None else seal.digest,
                    tuple(
                        KeyStanding(
                            pek, pek.ref in mine.epochs.current.peks, used.get((pek.id, pek.version), 0)
                        )
                        for pek in peks.get(record.id, ())
                    ),
                    tuple(writes.get(record.id, ())),
                    tuple(_of_others(located, places, record.id)),
                    not record.default_location
                    or any(_of_others(located, [record.location], record.id))
                    or any(_of_others(readable, [record.location], record.id)),
                )
            )
        return tables

    def _checked(self, tables: Sequence[TableInLake]) -> list[TableInLake]:
        """Check the tables that are governed by the encryption rules in force."""
        rules = self._context.policies.encryption()
        governed = [each.name for each in tables if each.standing is Standing.GOVERNED]
        if not rules.rules or not governed:
            return list(tables)
        found = {each.table: each for each in self._report.report(rules, governed)}
        return [
            each
            if (standing := found.get(str(each.name))) is None
            else replace(
                each,
                violations=tuple(f"{broken.rule}: {broken.detail}" for broken in standing.violations),
                problem=standing.problem,
            )
            for each in tables
        ]

    def _seals(
        self, connection: Connection, records: Sequence[TableRecord], after: str | None
    ) -> tuple[tuple[tuple[str, SealedFile], ...], str | None]:
        uuids = {record.id: str(record.table_uuid) for record in records}
        start = None
        if after is not None:
            table_uuid, _, path = after.partition(" ")
            ids = {table_uuid: table_id for table_id, table_uuid in uuids.items()}
            if table_uuid not in ids:
                raise RequestInvalid(
                    "The position is not one of a page of these tables.",
                    rule="page",
                    hint="Send the tables of the page before, and its `next`.",
                )
            start = ids[table_uuid], path
        rows = lake_rows.sealed_files(connection, list(uuids), start, SEALS + 1)
        page = tuple((uuids[table_id], file) for table_id, file in rows[:SEALS])
        more = len(rows) > SEALS
        return page, f"{page[-1][0]} {page[-1][1].path}" if more else None


def _standing(
    name: TableName, pointers: dict[TableName, str], bound: dict[TableName, TableRecord]
) -> Standing:
    if name not in bound:
        return Standing.UNGOVERNED
    return Standing.GOVERNED if name in pointers else Standing.POINTERLESS


def _of_others(claims: Claims, places: Iterable[Location], table_id: str) -> Iterable[Claim]:
    found = (claim for place in places for claim in claims.meeting(place))
    return dict.fromkeys(claim for claim in found if claim.table_id != table_id)
