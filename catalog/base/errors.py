"""Errors about the existence of catalog objects and about commits.

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


class NamespaceExists(LakewardenError, iceberg.NamespaceAlreadyExistsError):
    """A namespace of that name exists."""


class TableExists(LakewardenError, iceberg.TableAlreadyExistsError):
    """A table of that name exists."""


class NamespaceNotEmpty(LakewardenError, iceberg.NamespaceNotEmptyError):
    """The namespace still holds tables or namespaces."""


class CommitConflict(LakewardenError, iceberg.CommitFailedException):
    """Another commit came first, or a requirement no longer holds; the client may load and try again."""


class KeysChanged(CommitConflict):
    """Keys that were seen of a table were replaced by a commit since; looking again tells those of today."""
