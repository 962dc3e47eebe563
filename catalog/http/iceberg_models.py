"""Bodies and answers of the Iceberg REST specification, as far as they are served.

Parts that pyiceberg has models for (schemas, specs, updates, requirements) are free objects here.
`catalog.http.bodies` parses them, so that each mistake becomes one typed error.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from catalog.http.base_models import Answer, IcebergBody
from catalog.iceberg.expressions import filter_of
from catalog.planning.standard_request import StandardScan
from catalog.storage_access.s3_requests import Asked
from policy.errors import RequestInvalid

_LONG: Final = 2**63 - 1

Long = Annotated[int, Field(ge=-_LONG, le=_LONG)]
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


class ChangeTable(IcebergBody):
    """`CommitTableRequest` in a transaction, where the body names the table."""

    identifier: Identifier
    requirements: list[dict[str, Any]] = Field(default_factory=list)
    updates: list[dict[str, Any]] = Field(default_factory=list)


class CommitTransaction(IcebergBody):
    """`CommitTransactionRequest`."""

    table_changes: list[ChangeTable]


class RenameTable(IcebergBody):
    """`RenameTableRequest`."""

    source: Identifier
    destination: Identifier


class SignRequest(IcebergBody):
    """`RemoteSignRequest`."""

    region: str
    uri: Annotated[str, Field(max_length=16_384)]
    method: str
    headers: Annotated[dict[str, list[str]], Field(max_length=100)]
    body: str | None = None
    provider: str | None = None

    def to_asked(self) -> Asked:
        """Convert the body to the request to sign."""
        return Asked(self.method, self.region, self.uri, self.headers, self.body)


class SignedAnswer(Answer):
    """`RemoteSignResult`, with the headers that the client has to add."""

    uri: str
    headers: dict[str, list[str]]


class PlanTableScan(IcebergBody):
    """`PlanTableScanRequest`."""

    snapshot_id: Long | None = None
    select: Annotated[list[str], Field(max_length=100_000)] | None = None
    filter: Annotated[Any, Field(description="An expression of the Iceberg REST specification.")] = True
    min_rows_requested: Annotated[int, Field(ge=0, le=_LONG)] | None = None
    case_sensitive: bool = True
    use_snapshot_schema: bool = False
    start_snapshot_id: Long | None = None
    end_snapshot_id: Long | None = None
    stats_fields: Annotated[list[str], Field(max_length=100_000)] | None = None

    def to_scan(self) -> StandardScan:
        """Convert the body to the planner's request.

        Raises:
            RequestInvalid: the filter is not an expression, or it is null.
        """
        if self.filter is None:
            raise RequestInvalid(
                "The filter is null.", rule="filter", hint="Leave it out, or send true for all rows."
            )
        return StandardScan(
            snapshot_id=self.snapshot_id,
            columns=None if self.select is None else tuple(self.select),
            filter=filter_of(self.filter, transforms=True),
            case_sensitive=self.case_sensitive,
            use_snapshot_schema=self.use_snapshot_schema,
            start_snapshot_id=self.start_snapshot_id,
            end_snapshot_id=self.end_snapshot_id,
            stats_fields=tuple(self.stats_fields or ()),
            min_rows=self.min_rows_requested,
        )


class FetchScanTasks(IcebergBody):
    """`FetchScanTasksRequest`."""

    plan_task: Annotated[str, Field(max_length=255)]


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
    """`ListNamespacesResponse`."""

    namespaces: list[list[str]]
    next_page_token: str | None = None


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
    """`ListTablesResponse`."""

    identifiers: list[TableIdentifier]
    next_page_token: str | None = None


class StorageCredential(Answer):
    """`StorageCredential`; `storage_credentials` writes it as text, this class is for the description."""

    prefix: str
    config: Properties


class LoadedCredentialsAnswer(Answer):
    """`LoadCredentialsResponse`."""

    storage_credentials: list[StorageCredential]


class LoadedTableAnswer(Answer):
    """`LoadTableResult`; `table_answers` writes it as bytes, this class is for the description."""

    metadata_location: str | None = None
    metadata: dict[str, Any]
    config: Properties
    read_restrictions: dict[str, Any] | None = None
    storage_credentials: list[StorageCredential] | None = None


class ScanTasksAnswer(Answer):
    """`FetchScanTasksResult`; `scan_tasks` writes it as text, this class is for the description."""

    delete_files: list[dict[str, Any]] = Field(default_factory=list)
    file_scan_tasks: list[dict[str, Any]]
    plan_tasks: list[str] = Field(default_factory=list)


class PlannedAnswer(ScanTasksAnswer):
    """`PlanTableScanResult` and `FetchPlanningResult`, always completed."""

    status: Literal["completed"]
    plan_id: str | None = None


class CommittedTableAnswer(Answer):
    """`CommitTableResponse`; `table_answers` writes it as bytes, this class is for the description."""

    metadata_location: str
    metadata: dict[str, Any]
