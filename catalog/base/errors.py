"""Errors about catalog objects that exist or do not exist, and about commits.

Each is a `LakewardenError` and also the exception that pyiceberg's `Catalog` interface promises, so that code
written against pyiceberg works unchanged against `GuardedCatalog`.
"""

from __future__ import annotations

from pyiceberg import exceptions as iceberg

from policy.errors import LakewardenError


class NoSuchNamespace(LakewardenError, iceberg.NoSuchNamespaceError):
    """The namespace does not exist."""


class NoSuchTable(LakewardenError, iceberg.NoSuchTableError):
    """The table does not exist, or is not governed by this catalog."""


class NoSuchView(LakewardenError, iceberg.NoSuchViewError):
    """The view does not exist."""


class NoSuchPlan(LakewardenError):
    """The user has no such scan plan of the table, or it expired."""


class NoSuchPlanTask(LakewardenError, iceberg.NoSuchPlanTaskError):
    """The user has no such part of a scan plan of the table, or the plan expired."""


class NamespaceExists(LakewardenError, iceberg.NamespaceAlreadyExistsError):
    """A namespace of that name exists."""


class TableExists(LakewardenError, iceberg.TableAlreadyExistsError):
    """A table of that name exists."""


class ViewExists(LakewardenError, iceberg.ViewAlreadyExistsError):
    """A view of that name exists, or a table, which has the same name space."""


class NamespaceNotEmpty(LakewardenError, iceberg.NamespaceNotEmptyError):
    """The namespace still holds tables or namespaces."""


class CommitConflict(LakewardenError, iceberg.CommitFailedException):
    """Another commit came first, or a requirement no longer holds; the client can load the table and try
    again.
    """


class ConcurrentModification(CommitConflict):
    """A commit conflicts with one that came after its base; the statement has to be run again."""


class KeysChanged(CommitConflict):
    """A commit replaced keys of the table that were read before; read them again."""
