"""One tree of errors, which say where, by which rule, and what to do; also to clients of pyiceberg."""

from __future__ import annotations

import inspect

import pytest
from pyiceberg import exceptions as iceberg

from catalog.base import errors as catalog_errors
from policy import errors as policy_errors
from policy.errors import LakewardenError, LocationNotAllowed
from tests.support.vectors import each_row


def _errors(module: object) -> list[type[Exception]]:
    return [each for _, each in inspect.getmembers(module, inspect.isclass) if issubclass(each, Exception)]


@each_row("kind", _errors(policy_errors) + _errors(catalog_errors))
def test_every_error_is_in_the_one_tree_and_carries_the_same_fields(kind: type[LakewardenError]) -> None:
    error = kind("It was refused.", table="db.t", snapshot=7, path="s3://b/x", rule="some-rule", hint="Do.")
    assert isinstance(error, LakewardenError)
    for told in ("It was refused.", "table=db.t", "snapshot=7", "path=s3://b/x", "rule=some-rule"):
        assert told in str(error)
    assert str(error).endswith("] Do.")


def test_what_is_not_known_is_not_told() -> None:
    assert str(LocationNotAllowed("It lies elsewhere.")) == "It lies elsewhere."
    error = LocationNotAllowed("It lies elsewhere.", table="db.t", path="s3://b/x")
    error.path = None
    assert "s3://" not in str(error)


@pytest.mark.parametrize(
    ("kind", "promised"),
    [
        (catalog_errors.NoSuchTable, iceberg.NoSuchTableError),
        (catalog_errors.NoSuchNamespace, iceberg.NoSuchNamespaceError),
        (catalog_errors.TableExists, iceberg.TableAlreadyExistsError),
        (catalog_errors.NamespaceExists, iceberg.NamespaceAlreadyExistsError),
        (catalog_errors.NamespaceNotEmpty, iceberg.NamespaceNotEmptyError),
        (catalog_errors.CommitConflict, iceberg.CommitFailedException),
    ],
)
def test_clients_of_pyiceberg_meet_the_exceptions_that_it_promises(
    kind: type[Exception], promised: type[Exception]
) -> None:
    assert issubclass(kind, promised)


def test_the_tree_is_drawn_whole_in_the_module_that_defines_it() -> None:
    for kind in _errors(policy_errors):
        assert kind.__name__ in (policy_errors.__doc__ or "")
