"""Computes what is left of a filter in a partition: the conditions that its values do not answer.

- A condition is true in a partition if no row can meet its opposite. It is false if no row can meet it. Both
  are decided by the inclusive projections that also prune files.
- NULL meets neither a comparison nor its opposite. So a condition is true only if the partition says that the
  column has values.
- Conditions on floating-point columns stay: clients order NaN in different ways.
- A filter of many conditions stays whole, so that the work does not grow with conditions times partitions.

Source: Iceberg table specification, "Scan Planning"; Iceberg REST specification, `residual-filter`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundPredicate,
    IsNull,
    NotNull,
    Or,
    UnboundPredicate,
)
from pyiceberg.expressions.visitors import expression_evaluator, rewrite_not
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType

from catalog.iceberg.filter_values import filtered_columns
from catalog.iceberg.transform_terms import Projection
from catalog.iceberg.transforms import exact_spec

#: The most conditions of a filter that partitions answer.
MAX_CONDITIONS: Final = 200


@dataclass(frozen=True, slots=True)
class _Condition:
    """A condition in the partitions of one spec.

    Attributes:
        meets: whether a row of a partition can meet it.
        fails: whether a row of a partition can meet its opposite.
        places: the fields of a partition that are null if the column is.
        of_null: whether it is a condition on NULL, which is always met or not.
    """

    meets: Callable[[Record], bool]
    fails: Callable[[Record], bool]
    places: tuple[int, ...]
    of_null: bool

    def answer(self, partition: Record) -> bool | None:
        """Return whether the rows of a partition meet it; None if the partition does not say."""
        if not self.meets(partition):
            return False
        has_values = self.of_null or any(partition[place] is not None for place in self.places)
        return True if has_values and not self.fails(partition) else None


class Residuals:
    """What is left of one filter.

    Args:
        schema: the schema that its names refer to.
        specs: the table's partition specs by id.
        row_filter: the filter, not bound.
        known: the columns whose partition values are given; the others answer nothing.
        case_sensitive: how its names are matched.
    """

    def __init__(
        self,
        schema: Schema,
        specs: Mapping[int, PartitionSpec],
        row_filter: BooleanExpression,
        known: frozenset[int],
        *,
        case_sensitive: bool,
    ) -> None:
        self._known = known
        self._schema = schema
        self._specs = {number: exact_spec(spec) for number, spec in specs.items()}
        self._filter = rewrite_not(row_filter)
        self._case_sensitive = case_sensitive
        self._conditions: dict[tuple[int, int], _Condition | None] = {}
        self._is_short = len(filtered_columns(row_filter)) <= MAX_CONDITIONS

    def of(self, spec_id: int, partition: tuple[Any, ...]) -> BooleanExpression:
        """Return what is left of the filter in a partition.

        Args:
            spec_id: the partition's spec.
            partition: its values in the order of the spec, as manifests store them; None for those that are
                not given.
        """
        return self._left(self._filter, spec_id, Record(*partition)) if self._is_short else self._filter

    def _left(self, part: BooleanExpression, spec_id: int, partition: Record) -> BooleanExpression:
        if isinstance(part, And | Or):
            left, right = (self._left(each, spec_id, partition) for each in (part.left, part.right))
            return And(left, right) if isinstance(part, And) else Or(left, right)
        if not isinstance(part, UnboundPredicate):
            return part
        condition = self._condition(part, spec_id)
        answer = None if condition is None else condition.answer(partition)
        if answer is None:
            return part
        return AlwaysTrue() if answer else AlwaysFalse()

    def _condition(self, part: UnboundPredicate, spec_id: int) -> _Condition | None:
        key = (spec_id, id(part))
        if key not in self._conditions:
            self._conditions[key] = self._made(part, self._specs[spec_id])
        return self._conditions[key]

    def _made(self, part: UnboundPredicate, spec: PartitionSpec) -> _Condition | None:
        """Return a condition in partitions; None if they do not say anything of it."""
        bound = part.bind(self._schema, self._case_sensitive)
        if not isinstance(bound, BoundPredicate):
            return None
        field = bound.term.ref().field
        places = tuple(
            place
            for place, each in enumerate(spec.fields)
            if each.source_id == field.field_id and not isinstance(each.transform, VoidTransform)
        )
        if not places or field.field_id not in self._known:
            return None
        if isinstance(field.field_type, FloatType | DoubleType):
            return None
        of_null = isinstance(part, IsNull | NotNull)
        return _Condition(self._evaluator(part, spec), self._evaluator(~part, spec), places, of_null)

    def _evaluator(self, part: BooleanExpression, spec: PartitionSpec) -> Callable[[Record], bool]:
        projected = Projection(self._schema, spec, self._case_sensitive).project(part)
        schema = Schema(*spec.partition_type(self._schema).fields)
        return expression_evaluator(schema, projected, self._case_sensitive)
