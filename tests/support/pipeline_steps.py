"""Steps of items that stay in memory, and lakes that end with an error after a number of calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Row

from spark_ext.pipelines.items import Item
from spark_ext.pipelines.lake import Lake


class Killed(BaseException):
    """The end of the driver."""


@dataclass
class MemorySteps:
    """Steps that outlive a driver that a test kills.

    Attributes:
        notes: what was recorded, by item and step.
    """

    notes: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)

    def of(self, item: Item) -> Mapping[str, Mapping[str, Any]]:
        """See `Steps.of`."""
        return self.notes.get(item.key, {})

    def record(self, item: Item, step: str, data: Mapping[str, Any]) -> None:
        """See `Steps.record`."""
        self.notes.setdefault(item.key, {})[step] = data


class DyingLake(Lake):
    """A lake whose driver dies at a statement, request, or record; before it, or right after it.

    Args:
        lake: the lake.
        calls: how many calls are made before the driver dies.
        after: whether the last of them is carried out.
    """

    def __init__(self, lake: Lake, calls: int, *, after: bool) -> None:
        super().__init__(lake.spark, lake.catalog)
        self.left = calls
        self._after = after

    def sql(self, statement: str, args: Mapping[str, Any] | None = None) -> list[Row]:
        """See `Lake.sql`."""
        self.before()
        rows = super().sql(statement, args)
        self.behind()
        return rows

    def admin(self, method: str, *args: Any, **options: Any) -> dict[str, Any]:
        """See `Lake.admin`."""
        self.before()
        answer = super().admin(method, *args, **options)
        self.behind()
        return answer

    def before(self) -> None:
        """Count a call, and die if it is the last one and is not to be carried out."""
        self.left -= 1
        if self.left == 0 and not self._after:
            raise Killed

    def behind(self) -> None:
        """Die if the last call was carried out."""
        if self.left == 0:
            raise Killed


@dataclass
class DyingSteps(MemorySteps):
    """The same for records."""

    lake: DyingLake | None = None

    def record(self, item: Item, step: str, data: Mapping[str, Any]) -> None:
        """See `Steps.record`."""
        assert self.lake is not None
        self.lake.before()
        super().record(item, step, data)
        self.lake.behind()
