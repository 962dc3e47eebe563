"""Terms of filters that are transforms of columns, such as `bucket[4](id)`.

Partitions by the same transform of the column answer a condition on such a term. Nothing else does: bounds of
the column say nothing of its buckets. A filter by the identity is a filter by the column.

Source: Iceberg REST specification, "TransformTerm"; Apache Iceberg's `ProjectionUtil`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, cast

from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundLiteralPredicate,
    BoundPredicate,
    BoundReference,
    BoundSetPredicate,
    BoundTerm,
    Reference,
    UnboundTerm,
)
from pyiceberg.expressions.visitors import InclusiveProjection
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, Transform, VoidTransform, parse_transform
from pyiceberg.types import NestedField

from catalog.iceberg.transforms import exact
from policy.errors import RequestInvalid

_FORM: Final = re.compile(r"(bucket|truncate)\[[1-9][0-9]{0,9}\]|year|month|day|hour|identity|void", re.ASCII)


@dataclass(frozen=True, slots=True)
class TransformTerm(UnboundTerm):
    """A transform of a column, not bound to a schema.

    Attributes:
        name: the column, nested ones dotted.
        transform: the transform.
    """

    name: str
    transform: Transform[Any, Any]

    def bind(self, schema: Schema, case_sensitive: bool = True) -> BoundTransformTerm:
        """Bind it to a schema.

        Raises:
            ValueError: the schema does not have the column.
            RequestInvalid: its type does not have the transform.
        """
        source = schema.find_field(self.name, case_sensitive)
        if not self.transform.can_transform(source.field_type):
            raise RequestInvalid(
                f"The type {source.field_type} of column {source.name} does not have the transform "
                f"{self.transform}.",
                rule="filter",
                hint="Use a transform of the column's type, or filter on the column.",
            )
        return BoundTransformTerm(Reference(self.name).bind(schema, case_sensitive), self.transform)

    @property
    def as_bound(self) -> type[BoundTransformTerm]:
        """Return the class of bound terms."""
        return BoundTransformTerm


class BoundTransformTerm(BoundTerm):
    """A transform of a column of a schema.

    Args:
        source: the column.
        transform: the transform.
    """

    def __init__(self, source: BoundReference, transform: Transform[Any, Any]) -> None:
        self.source = source
        self.transform = transform

    def ref(self) -> BoundReference:
        """Return the column, with the type of the transform's result: values are compared with that."""
        field = self.source.field
        result = NestedField(
            field.field_id,
            field.name,
            self.transform.result_type(field.field_type),
            field.required and not isinstance(self.transform, VoidTransform),
        )
        return BoundReference(result, self.source.accessor)

    def eval(self, struct: Any) -> Any:
        """Return the transform of the column's value."""
        return self.transform.transform(self.source.field.field_type)(self.source.eval(struct))


class Projection(InclusiveProjection):
    """Projects a filter onto the partitions of a spec, with conditions on transforms."""

    def visit_bound_predicate(self, predicate: BoundPredicate) -> BooleanExpression:
        """Return what the partitions of matching rows meet."""
        term = predicate.term
        if not isinstance(term, BoundTransformTerm):
            return super().visit_bound_predicate(predicate)
        found: BooleanExpression = AlwaysTrue()
        for part in self.spec.fields_by_source_id(term.source.field.field_id):
            if part.transform == term.transform:
                found = And(found, _on(predicate, Reference(part.name)))
        return found


def _on(predicate: BoundPredicate, column: Reference) -> BooleanExpression:
    """Return the same condition on another column."""
    values: tuple[Any, ...] = ()
    if isinstance(predicate, BoundLiteralPredicate):
        values = (predicate.literal,)
    elif isinstance(predicate, BoundSetPredicate):
        values = (predicate.literals,)
    made: BooleanExpression = cast(Any, predicate.as_unbound)(column, *values)
    return made


def term_of(name: str, transform: object) -> UnboundTerm:
    """Return the term of a filter on a transform.

    Args:
        name: the column.
        transform: its JSON form, such as `bucket[4]`.

    Raises:
        ValueError: there is no such transform.
    """
    if not isinstance(transform, str) or not _FORM.fullmatch(transform):
        raise ValueError("there is no such transform")
    found = exact(parse_transform(transform))
    return Reference(name) if isinstance(found, IdentityTransform) else TransformTerm(name, found)


def compared_field(term: UnboundTerm, schema: Schema, case_sensitive: bool) -> NestedField:
    """Return the column of a term, with the type of the values that the term is compared with.

    Raises:
        ValueError: the schema does not have the column.
        RequestInvalid: its type does not have the transform.
    """
    if isinstance(term, TransformTerm):
        return term.bind(schema, case_sensitive).ref().field
    assert isinstance(term, Reference)
    return schema.find_field(term.name, case_sensitive)
