"""Reports tables that break the encryption rules in force, or rules that are not in force yet.

- The report covers all governed tables, and the tables that only the pointer store lists. A table that cannot
  be loaded is listed with the reason, because its encryption is unknown.
- A table is checked with everything that can be read of it, including snapshots with earlier columns.
- Rules apply to the encryption of new files. The report says when earlier files are in plaintext.
- The report needs `admin` on the service: it names tables and columns without checking other permissions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from catalog.authorization.authorizer import Caller
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.reading.loading import LoadedTable
from catalog.rules.encryption_policy import facts_of_table
from catalog.state import table_state
from policy.encryption.file_formats import written_format
from policy.encryption_rules import EncryptionRules, Remedy, Violation, remedy_of
from policy.errors import LakewardenError, StateUnavailable
from policy.privileges.operations import On, required

_ACTION: Final = "admin.encryption-report"
#: Tables that are loaded at a time.
_AT_A_TIME: Final = 8
_BATCH: Final = 32


class Standing(StrEnum):
    """The result of checking a table by the rules."""

    FITS = "fits"
    BREAKS = "breaks"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TableStanding:
    """One table, and the result of checking it by the rules.

    Attributes:
        table: dotted name.
        standing: whether it fits them; unknown where it cannot be loaded.
        violations: what breaks them.
        remedy: the properties that would make it fit them, if the rules leave no choice.
        earlier_files_in_plaintext: whether the table is encrypted, and was not always.
        problem: why it cannot be loaded.
    """

    table: str
    standing: Standing
    violations: tuple[Violation, ...] = ()
    remedy: Remedy = field(default_factory=Remedy)
    earlier_files_in_plaintext: bool = False
    problem: str | None = None


class EncryptionReporter:
    """Checks all tables by rules.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def tables(self, caller: Caller) -> list[TableName]:
        """List all tables, sorted by dotted name.

        Raises:
            NotAuthorized: `admin` on the service is needed.
        """
        requests = required(_ACTION, On.service(caller.principal, self._context.catalog))
        self._context.authorizer.require(caller, _ACTION, self._context.catalog, requests)
        known = {
            name
            for each in self._context.pointers.namespaces()
            for name in self._context.pointers.tables(each)
        }
        with read(self._context.engine) as connection:
            known |= {record.name for record in table_state.bound_tables(connection, self._context.catalog)}
        return sorted(known, key=str)

    def report(self, rules: EncryptionRules, names: Sequence[TableName]) -> Iterator[TableStanding]:
        """Check tables by rules, one after the other.

        Args:
            rules: in force, or not yet.
            names: some of what `tables` answered.

        Raises:
            StateUnavailable: the catalog's database does not answer.
        """
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            # In batches, so that a caller who stops reading does not have all the others loaded.
            for start in range(0, len(names), _BATCH):
                batch = names[start : start + _BATCH]
                yield from pool.map(lambda name: self._standing(rules, name), batch)

    def _standing(self, rules: EncryptionRules, name: TableName) -> TableStanding:
        try:
            table = self._context.loader.load(name)
        except StateUnavailable:
            raise
        except LakewardenError as problem:
            return TableStanding(str(name), Standing.UNKNOWN, problem=str(problem))
        facts = facts_of_table(table)
        broken = rules.violations(facts)
        standing = Standing.BREAKS if broken else Standing.FITS
        written = written_format(table.metadata.properties)
        remedy = remedy_of(rules, facts, self._context.master_key_id, written)
        return TableStanding(str(name), standing, broken, remedy, _was_in_plaintext(table))


def _was_in_plaintext(table: LoadedTable) -> bool:
    governed = table.governed
    earlier = governed.epochs.entries[:-1]
    return governed.spec.encrypts and any(not epoch.spec.encrypts for epoch in earlier)
