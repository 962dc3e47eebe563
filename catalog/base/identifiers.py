"""Parses names of namespaces and tables; `policy.identifiers` decides what is valid."""

from policy.identifiers import (
    MAX_LEVELS,
    MAX_NAME_LENGTH,
    MAX_NAMESPACE_LENGTH,
    Namespace,
    TableName,
    namespace_of,
    slug,
    table_name,
)

__all__ = [
    "MAX_LEVELS",
    "MAX_NAMESPACE_LENGTH",
    "MAX_NAME_LENGTH",
    "Namespace",
    "TableName",
    "namespace_of",
    "slug",
    "table_name",
]
