"""Bodies and answers of views in the Iceberg REST specification."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from pyiceberg.view.metadata import ViewVersion

from catalog.http.base_models import Answer, IcebergBody
from catalog.http.bodies import iceberg_part, schema_of
from catalog.http.iceberg_models import Identifier, Properties
from catalog.iceberg.view_metadata import AssertViewUUID, ViewUpdate, first_version

_Parts = Annotated[list[dict[str, Any]], Field(max_length=1_000)]


class CreateIcebergView(IcebergBody):
    """`CreateViewRequest`; the catalog sets the ids and the time of the version."""

    name: str
    location: str | None = None
    view_schema: Annotated[dict[str, Any], Field(alias="schema")]
    view_version: dict[str, Any]
    properties: Properties = Field(default_factory=dict)

    def to_updates(self) -> list[ViewUpdate]:
        """Return the updates that make the view.

        Raises:
            RequestInvalid: the schema or the version is not valid.
        """
        version = iceberg_part(ViewVersion.model_validate, self.view_version, "view version")
        return first_version(schema_of(self.view_schema), version, self.properties)


class CommitView(IcebergBody):
    """`CommitViewRequest`."""

    identifier: Identifier | None = None
    requirements: _Parts = Field(default_factory=list)
    updates: _Parts

    def to_requirements(self) -> list[AssertViewUUID]:
        """Return the requirements; RequestInvalid if one is not known."""
        parse = AssertViewUUID.model_validate
        return [iceberg_part(parse, each, "view requirement") for each in self.requirements]

    def to_updates(self) -> list[ViewUpdate]:
        """Return the updates; RequestInvalid if one is not known."""
        return [iceberg_part(_update(), each, "view update") for each in self.updates]


class RegisterView(IcebergBody):
    """`RegisterViewRequest`."""

    name: str
    metadata_location: str


class LoadedViewAnswer(Answer):
    """`LoadViewResult`; it is written as bytes, this class is for the description."""

    metadata_location: str
    metadata: dict[str, Any]
    config: Properties


@cache
def _update() -> Callable[[Any], ViewUpdate]:
    adapter: TypeAdapter[ViewUpdate] = TypeAdapter(ViewUpdate)
    return adapter.validate_python
