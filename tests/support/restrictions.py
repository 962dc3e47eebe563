"""Restrictions of plans, as a catalog could decide them, whatever its policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from catalog.planning.plan import PlanHeader
from policy.restrictions.actions import MaskAction
from policy.restrictions.model import ColumnMask, Restriction
from policy.restrictions.predicate import TRUE, Predicate
from tests.support.spark import SparkLake
from tests.support.spark_tables import stock_table


@contextmanager
def restricted(row_filter: Predicate = TRUE, masks: Mapping[int, str] | None = None) -> Iterator[None]:
    """Every plan says these restrictions, for a while; files are planned without them."""
    shown = {key: ColumnMask(MaskAction(name)) for key, name in (masks or {}).items()}
    real = PlanHeader.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **{**kwargs, "restriction": Restriction(row_filter, shown)})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlanHeader, "__init__", init)
        yield


def field_ids(spark_lake: SparkLake, table: str) -> dict[str, int]:
    """The ids of a table's fields by their dotted names, by Spark's name for the table."""
    schema = stock_table(spark_lake, table).schema()
    return {name: schema.find_field(name).field_id for name in schema.column_names}
