"""Checks new row filters and masks against the tables that they are about, before they are put in force.

New are those that another change of policies, or of tags, puts on a table.

- Tables whose metadata cannot be read now are passed over, and so are those after the first
  `MAX_TABLES` by name: a query that a policy does not fit is refused in any case.
- Commands on the host, and the files of an embedded catalog, are checked by themselves alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from catalog.authorization.restrictions import columns_of
from catalog.base.identifiers import TableName
from catalog.reading.loading import LoadedTable
from policy.errors import LakewardenError, PolicyInvalid
from policy.misfits import misfits
from policy.ranger import PolicySet
from policy.ranger.model import Policy

MAX_TABLES: Final = 1_000
"""The number of tables that a change of policies is checked against."""

_log: Final = logging.getLogger("lakewarden.policies")


class TableChecks:
    """Checks changes of policies against tables.

    Args:
        names: returns the names of all tables, in order.
        load: loads a table.
    """

    def __init__(
        self, names: Callable[[], Iterable[TableName]], load: Callable[[TableName], LoadedTable]
    ) -> None:
        self._names = names
        self._load = load

    def require(self, before: PolicySet, after: PolicySet) -> None:
        """Refuse row filters and masks that are new, or are changed, and do not fit a table.

        Raises:
            PolicyInvalid: one does not.
        """
        if before.restrictions == after.restrictions:
            return
        found = ((name, _new(before, after, name)) for name in self._names())
        for name, new in islice((each for each in found if each[1]), MAX_TABLES):
            try:
                table = self._load(name)
            except LakewardenError as problem:
                _log.warning("New policies were not checked against %s: %s", name, problem.message)
                continue
            for each in misfits(after, (name.database, name.name), columns_of(table), new):
                raise PolicyInvalid(
                    f"Policy {each.policy!r}, {each.item}, does not fit the table {name}: {each.problem}",
                    rule=each.rule,
                    hint=each.hint,
                )


def _new(before: PolicySet, after: PolicySet, name: TableName) -> list[Policy]:
    """The policies that filter or mask a table, or do so by tags, and did not before."""
    known = before.restricting(name.database, name.name)
    return [each for each in after.restricting(name.database, name.name) if each not in known]
