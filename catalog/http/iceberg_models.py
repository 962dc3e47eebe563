"""Bodies and answers of the Iceberg REST specification, as far as they are served.

Parts that pyiceberg has models for (schemas, specs, updates, requirements) are free objects here.
`catalog.http.bodies` parses them, so that each mistake becomes one typed error.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from catalog.http.base_models import Answer, IcebergBody

Levels = Annotated[list[str], Field(min_length=1, max_length=64)]
Properties = dict[str, str]


class CreateNamespace(IcebergBody):
    """`CreateNamespaceRequest`."""

    namespace: Levels
    properties: Properties = Field(default_factory=dict)


class UpdateNamespace(IcebergBody):
    """`UpdateNamespacePropertiesRequest`."""

    removals: list[str] = Field(default_factory=list)
    updates: Properties = Field(default_factory=dict)


class CreateTable(IcebergBody):
    """`CreateTableRequest`."""

    name: str
    location: str | None = None
    table_schema: Annotated[dict[str, Any], Field(alias="schema")]
    partition_spec: dict[str, Any] | None = None
    write_order: dict[str, Any] | None = None
    stage_create: bool = False
    properties: Properties | None = None


class RegisterTable(IcebergBody):
    """`RegisterTableRequest`."""

    name: str
    metadata_location: str
    overwrite: bool = False


class Identifier(IcebergBody):
    """`TableIdentifier`."""

    namespace: Levels
    name: str


class CommitTable(IcebergBody):
    """`CommitTableRequest`."""

    identifier: Identifier | None = None
    requirements: list[dict[str, Any]] = Field(default_factory=list)
    updates: list[dict[str, Any]] = Field(default_factory=list)


class RenameTable(IcebergBody):
    """`RenameTableRequest`."""

    source: Identifier
    destination: Identifier


class CatalogConfig(Answer):
    """`CatalogConfig`."""

    defaults: Properties
    overrides: Properties
    endpoints: list[str]
    idempotency_key_lifetime: str


class NamespaceAnswer(Answer):
    """`CreateNamespaceResponse` and `GetNamespaceResponse`."""

    namespace: list[str]
    properties: Properties


class NamespaceList(Answer):
    """`ListNamespacesResponse`; always the whole list."""

    namespaces: list[list[str]]
    next_page_token: None = None


class NamespaceChange(Answer):
    """`UpdateNamespacePropertiesResponse`."""

    updated: list[str]
    removed: list[str]
    missing: list[str]


class TableIdentifier(Answer):
    """`TableIdentifier`."""

    namespace: list[str]
    name: str


class TableList(Answer):
    """`ListTablesResponse`; always the whole list."""

    identifiers: list[TableIdentifier]
    next_page_token: None = None


class LoadedTableAnswer(Answer):
    """`LoadTableResult`; `table_answers` writes it as bytes, this class is for the description."""

    metadata_location: str | None = None
    metadata: dict[str, Any]
    config: Properties
    read_restrictions: dict[str, Any] | None = None


class CommittedTableAnswer(Answer):
    """`CommitTableResponse`; `table_answers` writes it as bytes, this class is for the description."""

    metadata_location: str
    metadata: dict[str, Any]
