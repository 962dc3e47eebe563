"""Bodies and answers of views under `/engine/v1`, with the fields of Iceberg's view metadata."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import Field
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.view.metadata import ViewMetadata

from catalog.base.identifiers import TableName, namespace_of, table_name
from catalog.http.base_models import Answer, OwnBody
from catalog.http.bodies import iceberg_part
from catalog.http.engine_models import PlanBody
from catalog.http.iceberg_models import Identifier, Levels, Properties
from catalog.iceberg.view_metadata import present
from catalog.state.views import SPARK, ViewRecord
from catalog.tables.definer_views import ThroughView
from catalog.tables.views import ViewDefinition
from policy.errors import NotSupportedYet, RequestInvalid


class SqlRepresentation(OwnBody):
    """`SQLViewRepresentation`."""

    type: Literal["sql"]
    sql: str
    dialect: Literal["spark"]


class NewVersion(OwnBody):
    """`ViewVersion`, without what the catalog sets itself; engines that read the view get `summary` back."""

    representations: Annotated[list[SqlRepresentation], Field(min_length=1, max_length=1)]
    default_catalog: str | None = None
    default_namespace: Annotated[list[str], Field(max_length=64)]
    summary: Properties = Field(default_factory=dict)


class _Defined(OwnBody):
    """What a view is."""

    view_schema: Annotated[dict[str, Any], Field(alias="schema")]
    view_version: NewVersion
    properties: Properties = Field(default_factory=dict)

    def to_definition(self, name: TableName) -> ViewDefinition:
        """Convert the body.

        Raises:
            RequestInvalid: the schema or the namespace is not valid.
        """
        version = self.view_version
        if "operation" in version.summary:
            raise RequestInvalid("The catalog sets the operation of a view's version.", rule="view")
        return ViewDefinition(
            name=name,
            schema=iceberg_part(_schema, self.view_schema, "schema"),
            sql=version.representations[0].sql,
            default_catalog=version.default_catalog,
            default_namespace=namespace_of(version.default_namespace) if version.default_namespace else (),
            summary=version.summary,
            properties=self.properties,
        )


class CreateView(_Defined):
    """`CreateViewRequest`, without what the catalog sets itself."""

    name: str


class ReplaceView(_Defined):
    """What a view becomes; `expected-version` is the state that it was changed from."""

    expected_version: int | None = None


class RenameView(OwnBody):
    """`RenameTableRequest`, of a view."""

    source: Identifier
    destination: Identifier


class ViewIdentifier(Answer):
    """`TableIdentifier`, of a view."""

    namespace: Levels
    name: str


class ViewList(Answer):
    """The views of a namespace; always the whole list."""

    identifiers: list[ViewIdentifier]


class _OfTable(OwnBody):
    """The table that is read through a view, and `view-uuid` and `version` of the view that was loaded."""

    table: Identifier
    view_uuid: UUID
    version: int

    def through(self, view: TableName) -> ThroughView:
        """Return the table and the view."""
        return ThroughView(
            view, str(self.view_uuid), self.version, table_name(self.table.namespace, self.table.name)
        )


class LoadThroughView(_OfTable):
    """A table to load through a view."""


class PlanThroughView(PlanBody, _OfTable):
    """A scan to plan through a view; the fields are those of a plan."""


class ViewAnswer(Answer):
    """A view: Iceberg's view metadata with the current version alone, its owner and definer, and its state.

    `version` is the number of the state. `security` says with whose permissions its tables are read.
    `principal` is the user who loaded it.
    """

    metadata: dict[str, Any]
    owner: str
    definer: str
    security: Literal["definer", "invoker"]
    version: int
    principal: str

    @classmethod
    def of(cls, record: ViewRecord, principal: str) -> Self:
        """Return the answer for a view and who loaded it.

        Raises:
            NotSupportedYet: the view has no text in Spark's dialect.
        """
        return cls(
            security="definer" if record.definer_rights else "invoker",
            principal=principal,
            metadata=_shown(record).model_dump(mode="json"),
            owner=record.owner,
            definer=record.definer,
            version=record.version,
        )


def _shown(record: ViewRecord) -> ViewMetadata:
    """Return what our engine reads: the current version, with its text in Spark's dialect."""
    version = record.current
    text = [each for each in version.representations if each.root.dialect.lower() == SPARK]
    if not text:
        raise NotSupportedYet(
            f"The view {record.name} has no text in the dialect {SPARK}.",
            table=str(record.name),
            rule="view-dialect",
            hint="Read it in an engine of one of its dialects, or replace it.",
        )
    shown = version.model_copy(update={"representations": text})
    return present(record.metadata).model_copy(update={"versions": [shown]})


def _schema(value: dict[str, Any]) -> Schema:
    return assign_fresh_schema_ids(Schema.model_validate(value))
