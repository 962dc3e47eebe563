"""Converts the Iceberg parts of a request to pyiceberg's models.

pyiceberg's validators run on raw dictionaries and raise various exceptions for unexpected input.
`iceberg_part` is the only place that converts them to an error of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError
from pyiceberg.exceptions import ValidationError as IcebergValidationError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate

from catalog.base.identifiers import Namespace, TableName, namespace_of, table_name
from catalog.http.iceberg_models import Identifier
from catalog.iceberg.metadata import first_problem
from policy.errors import LakewardenError, RequestInvalid

T = TypeVar("T")

#: Separates the levels of a namespace in a path (Iceberg REST specification, parameter "namespace").
LEVEL_SEPARATOR: Final = "\x1f"
_MAX_PARTS: Final = 100_000
_PROBLEM_LENGTH: Final = 300


def namespace_from_path(text: str) -> Namespace:
    """Parse the namespace in a path.

    Raises:
        RequestInvalid: a level that is not a name.
    """
    return namespace_of(text.split(LEVEL_SEPARATOR))


def table_from_path(namespace: str, table: str) -> TableName:
    """Parse the table name in a path.

    Raises:
        RequestInvalid: a level or the table is not a name.
    """
    return table_name(namespace.split(LEVEL_SEPARATOR), table)


def check_identifier(name: TableName, given: Identifier | None) -> None:
    """Refuse the body of a commit that names another table or view than the path.

    Raises:
        RequestInvalid: it does.
    """
    if given is not None and (tuple(given.namespace), given.name) != (name.namespace, name.name):
        raise RequestInvalid(
            "The body and the address name different objects.",
            table=str(name),
            rule="identifier",
            hint="Give the same name in both, or leave `identifier` out.",
        )


def iceberg_part(parse: Callable[[Any], T], value: object, what: str) -> T:
    """Convert a part of a body to pyiceberg's model.

    Args:
        parse: makes the model.
        value: parsed JSON.
        what: kind of part, for the message: ``schema``.

    Raises:
        RequestInvalid: the part is not valid.
    """
    try:
        return parse(value)
    except LakewardenError:
        raise
    except ValidationError as error:
        problem = first_problem(error)[:_PROBLEM_LENGTH]
    except IcebergValidationError as error:
        problem = str(error)[:_PROBLEM_LENGTH]
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        problem = type(error).__name__
    raise RequestInvalid(
        f"The {what} is not valid: {problem}.",
        rule=what.replace(" ", "-"),
        hint="Send it as the Iceberg REST specification defines it.",
    )


def schema_of(value: dict[str, Any]) -> Schema:
    """Convert a schema."""
    return iceberg_part(Schema.model_validate, value, "schema")


def partition_spec_of(value: dict[str, Any]) -> PartitionSpec:
    """Convert a partition spec."""
    return iceberg_part(PartitionSpec.model_validate, value, "partition spec")


def sort_order_of(value: dict[str, Any]) -> SortOrder:
    """Convert a sort order."""
    return iceberg_part(SortOrder.model_validate, value, "sort order")


def requirements_of(values: list[dict[str, Any]]) -> list[TableRequirement]:
    """Convert the requirements of a commit."""
    return _parts(_requirement().validate_python, values, "table requirement")


def updates_of(values: list[dict[str, Any]]) -> list[TableUpdate]:
    """Convert the updates of a commit."""
    return _parts(_update().validate_python, values, "table update")


def _parts(parse: Callable[[Any], T], values: list[dict[str, Any]], what: str) -> list[T]:
    if len(values) > _MAX_PARTS:
        raise RequestInvalid(f"The commit has more than {_MAX_PARTS} {what}s.", rule="updates")
    return [iceberg_part(parse, value, what) for value in values]


@cache
def _requirement() -> TypeAdapter[TableRequirement]:
    return TypeAdapter(TableRequirement)


@cache
def _update() -> TypeAdapter[TableUpdate]:
    return TypeAdapter(TableUpdate)
