"""The pipeline `maintain`: which tasks of which tables are due."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from itertools import zip_longest
from typing import Any

from catalog.base.errors import NoSuchTable
from catalog.base.identifiers import TableName
from policy.errors import LakewardenError
from spark_ext.pipelines.failures import concerns_all, reason
from spark_ext.pipelines.items import Item, Outcome, Rule
from spark_ext.pipelines.journal import RUNS
from spark_ext.pipelines.lake import Lake, totals
from spark_ext.pipelines.maintain.document import Entry, Kind, parse_policy
from spark_ext.pipelines.maintain.schedule import due
from spark_ext.pipelines.maintain.tasks import RULES, Maintenance
from spark_ext.pipelines.pipeline import Steps
from spark_ext.pipelines.threads import in_threads

_Last = Mapping[str, Mapping[Kind, datetime]]


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Maintain:
    """Does the tasks of a policy that are due.

    Args:
        file: the name of the policy, for messages.
        document: the policy.
        tables: patterns of the tables that are looked at.
        threads: how many tables are worked on at the same time.
        now: the time, with a zone.

    Raises:
        RequestInvalid: the policy or a pattern is not valid.
    """

    file: str
    document: bytes
    tables: str | Sequence[str] = "*"
    threads: int = 4
    now: Callable[[], datetime] = _now
    name: str = "maintain"
    rules: Sequence[Rule] = RULES
    changes: bool = True
    at_a_time: int = field(init=False)

    def __post_init__(self) -> None:
        # Tasks of one table are done one after the other, so a group has tasks of as many tables as threads.
        self.at_a_time = self.threads * len(Kind)
        self._policy = parse_policy(self.file, self.document)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Return what makes two runs the same: the tables, and every byte of the policy."""
        tables = self.tables if isinstance(self.tables, str) else list(self.tables)
        return {"tables": tables, "policy": sha256(self.document).hexdigest()}

    def plan(self, lake: Lake) -> Iterator[Item]:
        """Plan one item for each task of a table that is due, in the order in which they are done.

        The key of an item names the last time that the task was done. So a task that becomes due again is
        another item, also in a run that is continued.

        Raises:
            LakewardenError, PySparkException: the tables cannot be listed.
        """
        now, last = self.now(), _last(lake)
        for table in lake.tables(self.tables):
            entry = self._policy.entry(str(table))
            if entry is not None:
                yield from _items(lake, table, entry, last, now)

    def run(self, lake: Lake, group: Sequence[Item], steps: Steps) -> Iterator[Outcome]:
        """Do tasks: of several tables side by side, of one table one after the other."""
        by_table: dict[str, list[Item]] = defaultdict(list)
        for item in group:
            by_table[item.table].append(item)
        work = partial(_maintain, lake, self.now())
        for some in zip_longest(*by_table.values()):
            yield from in_threads(lake.spark, [item for item in some if item], work, self.threads)


def _maintain(lake: Lake, now: datetime, item: Item) -> Outcome:
    return Maintenance(lake, item, now).run()


def _last(lake: Lake) -> _Last:
    """Return when each task was done last, by the table's UUID, as recorded."""
    found: dict[str, dict[Kind, datetime]] = defaultdict(dict)
    if lake.spark.catalog.tableExists(lake.name(RUNS)):
        rows = lake.sql(
            "SELECT substring_index(item, ' ', 2) AS what, unix_micros(max(at)) AS at "
            f"FROM {lake.name(RUNS)} WHERE pipeline = 'maintain' AND event = 'group' AND status = 'done' "
            "GROUP BY what"
        )
        for row in rows:
            kind, uuid = row["what"].split(" ")
            found[uuid][Kind(kind)] = datetime.fromtimestamp(row["at"] / 1e6, UTC)
    return found


def _items(lake: Lake, table: TableName, entry: Entry, last: _Last, now: datetime) -> Iterator[Item]:
    named = {"namespace": list(table.namespace), "name": table.name}
    try:
        metadata = lake.metadata(table)
    except NoSuchTable:
        return  # a view, which is listed as tables are, or dropped since
    except LakewardenError as error:
        if concerns_all(error):
            raise
        yield Item(f"load {table}", str(table), payload=named, why=reason(error))
        return
    head, uuid = metadata.current_snapshot(), str(metadata.table_uuid)
    files, size = totals(head)
    for each in due(entry, last.get(uuid, {}), metadata.properties, now, empty=head is None):
        task = {"task": str(each.task.kind), "settings": dict(each.task.settings)}
        key = f"{each.task.kind} {uuid} {each.since}"
        yield Item(key, str(table), files, size, named | task, each.why)
