"""Changes and parses Iceberg's view metadata.

- The rules are those of the reference implementation, so that its clients see what they expect: a version or
  schema that is there already is used again, others get the next id; the log has one entry for each commit
  that changes the current version; old versions expire.
- The catalog sets ids and times. A client's time is not kept.

Sources: Iceberg view specification, format version 1; Iceberg REST catalog specification, "ViewUpdate" and
"ViewRequirement"; Apache Iceberg, `ViewMetadata.Builder`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, TypeAlias
from uuid import UUID

from pydantic import Field, ValidationError
from pyiceberg.schema import Schema
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssignUUIDUpdate,
    RemovePropertiesUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    UpgradeFormatVersionUpdate,
)
from pyiceberg.typedef import IcebergBaseModel
from pyiceberg.view.metadata import ViewHistoryEntry, ViewMetadata, ViewVersion

from catalog.base.errors import CommitConflict
from catalog.iceberg.metadata import first_problem, unpacked
from catalog.iceberg.view_bounds import wrong_id, wrong_time
from policy.errors import MetadataInvalid, PropertyInvalid, RequestInvalid
from policy.location.location import Location
from policy.strict_json import parse

HISTORY: Final = "version.history.num-entries"
"""The property that says how many versions a view keeps."""

DROP_DIALECT: Final = "replace.drop-dialect.allowed"
"""The property that says whether a change can leave out a dialect."""

_DEFAULT_HISTORY: Final = 10
_MAX_HISTORY: Final = 100
_FORMAT_VERSION: Final = 1
_LAST: Final = -1
_OPERATION: Final = "operation"


class ViewUpdateInvalid(RequestInvalid):
    """An update of a view contradicts its metadata, or another update."""


class AddViewVersionUpdate(IcebergBaseModel):
    """`AddViewVersionUpdate`; schema id -1 is the schema that was added last."""

    action: Literal["add-view-version"] = "add-view-version"
    view_version: ViewVersion = Field(alias="view-version")


class SetCurrentViewVersionUpdate(IcebergBaseModel):
    """`SetCurrentViewVersionUpdate`; version id -1 is the version that was added last."""

    action: Literal["set-current-view-version"] = "set-current-view-version"
    view_version_id: int = Field(alias="view-version-id")


ViewUpdate: TypeAlias = Annotated[
    AssignUUIDUpdate
    | UpgradeFormatVersionUpdate
    | AddSchemaUpdate
    | SetLocationUpdate
    | SetPropertiesUpdate
    | RemovePropertiesUpdate
    | AddViewVersionUpdate
    | SetCurrentViewVersionUpdate,
    Field(discriminator="action"),
]


class AssertViewUUID(IcebergBaseModel):
    """`AssertViewUUID`, the one requirement of views."""

    type: Literal["assert-view-uuid"]
    uuid: UUID


def first_version(schema: Schema, version: ViewVersion, properties: Mapping[str, str]) -> list[ViewUpdate]:
    """Return the updates that make a view of a schema, a version and properties."""
    return [SetPropertiesUpdate(updates=dict(properties)), *next_version(schema, version)]


def next_version(schema: Schema, version: ViewVersion) -> list[ViewUpdate]:
    """Return the updates that make a version with this schema the current one."""
    added = version.model_copy(update={"schema_id": _LAST})
    return [
        AddSchemaUpdate(schema_=schema),
        AddViewVersionUpdate.model_validate({"view-version": added}),
        SetCurrentViewVersionUpdate.model_validate({"view-version-id": _LAST}),
    ]


def empty_view(view_id: str, location: Location) -> ViewMetadata:
    """Return the metadata that updates make a new view of."""
    return ViewMetadata.model_validate(
        {
            "view-uuid": view_id,
            "format-version": _FORMAT_VERSION,
            "location": location.original,
            "schemas": [],
            "current-version-id": 0,
            "versions": [],
            "version-log": [],
            "properties": {},
        }
    )


def require(metadata: ViewMetadata, requirements: Sequence[AssertViewUUID], view: str) -> None:
    """Check the requirements of a commit.

    Raises:
        CommitConflict: the view is another one.
    """
    for each in requirements:
        if str(each.uuid) != metadata.view_uuid:
            raise CommitConflict(
                f"Requirement failed: view UUID does not match: expected {metadata.view_uuid} != {each.uuid}",
                table=view,
                hint="Load the view again.",
            )


def changed(base: ViewMetadata, updates: Sequence[ViewUpdate], now_ms: int, view: str) -> ViewMetadata:
    """Apply updates to view metadata; none of them changes `base`.

    Args:
        base: the metadata before, or that of `empty_view`.
        updates: the updates, in their order.
        now_ms: the time in milliseconds.
        view: dotted name, for errors.

    Raises:
        ViewUpdateInvalid: an update contradicts the metadata or another update.
        LocationInvalid: the location is none.
        PropertyInvalid: a property that this obeys has another value.
    """
    # A log that is not in the order of time is refused by other readers.
    now_ms = max([now_ms, *(each.timestamp_ms for each in base.version_log[-1:])])
    draft = _Draft(base, now_ms, view)
    for each in updates:
        draft.apply(each)
    return draft.finished()


def present(metadata: ViewMetadata) -> ViewMetadata:
    """Return metadata with the current version and its schema alone."""
    version = current_version(metadata)
    return metadata.model_copy(
        update={
            "versions": [version],
            "schemas": [each for each in metadata.schemas if each.schema_id == version.schema_id],
            "version_log": [e for e in metadata.version_log if e.version_id == version.version_id][-1:],
        }
    )


def current_version(metadata: ViewMetadata) -> ViewVersion:
    """Return the version that is read."""
    return next(each for each in metadata.versions if each.version_id == metadata.current_version_id)


def texts(version: ViewVersion) -> dict[str, str]:
    """Return the texts of a version by dialect, in small letters."""
    return {each.root.dialect.lower(): each.root.sql for each in version.representations}


def read_as(version: ViewVersion) -> tuple[object, ...]:
    """Return what decides how a version is read, beside its columns."""
    summary = {key: value for key, value in version.summary.items() if key != _OPERATION}
    return texts(version), version.default_catalog, tuple(version.default_namespace), summary


def parse_view(data: bytes, *, path: str, view: str, max_bytes: int, now_ms: int) -> ViewMetadata:
    """Parse the bytes of a metadata file of a view.

    Args:
        data: the stored bytes.
        path: its location; the name says whether it is gzip.
        view: dotted name, for errors.
        max_bytes: maximum decompressed size in bytes.
        now_ms: the time in milliseconds.

    Raises:
        MetadataInvalid: not JSON, ambiguous JSON, or no view metadata; or an id or time is out of bounds.
    """
    document = parse(unpacked(data, path, view, max_bytes), what="The view metadata", error=MetadataInvalid)
    try:
        metadata = ViewMetadata.model_validate(document)
        _require_whole(metadata)
    except ValidationError as error:
        raise _invalid(first_problem(error), path, view) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # pyiceberg's validators run on raw dictionaries and fail on unexpected types.
        raise _invalid(type(error).__name__, path, view) from error
    problem = wrong_id(metadata) or wrong_time(metadata, now_ms)
    if problem is not None:
        raise _invalid(problem, path, view)
    return metadata


def _require_whole(metadata: ViewMetadata) -> None:
    """Refuse metadata whose parts do not fit together: ValueError."""
    schemas = [each.schema_id for each in metadata.schemas]
    versions = [each.version_id for each in metadata.versions]
    for ids in (schemas, versions):
        if len(set(ids)) != len(ids):
            raise ValueError("an id occurs twice")
    if metadata.current_version_id not in versions:
        raise ValueError("the current version is missing")
    if any(each.schema_id not in schemas for each in metadata.versions):
        raise ValueError("a schema is missing")
    if any(_dialect_twice(each) is not None for each in metadata.versions):
        raise ValueError("a dialect occurs twice")


def _dialect_twice(version: ViewVersion) -> str | None:
    """Return a dialect that has two texts, of which readers could take either; None if there is none."""
    dialects = [each.root.dialect.lower() for each in version.representations]
    return next((each for each in dialects if dialects.count(each) > 1), None)


def _invalid(problem: str, path: str, view: str) -> MetadataInvalid:
    return MetadataInvalid(
        f"The view metadata is not valid: {problem}.",
        path=path,
        table=view,
        rule="metadata",
        hint="Name a metadata file that the view specification describes.",
    )


class _Draft:
    """View metadata while updates are applied."""

    def __init__(self, base: ViewMetadata, now_ms: int, view: str) -> None:
        self._base = base
        self._now_ms = now_ms
        self._view = view
        self._location = base.location
        self._schemas = {each.schema_id: each for each in base.schemas}
        self._versions = {each.version_id: each for each in base.versions}
        self._properties = dict(base.properties)
        self._current = base.current_version_id
        self._added: set[int] = set()
        self._last_schema: int | None = None
        self._last_version: int | None = None

    def apply(self, update: ViewUpdate) -> None:
        match update:
            case AssignUUIDUpdate():
                if str(update.uuid) != self._base.view_uuid:
                    raise self._refused("Cannot reassign uuid")
            case UpgradeFormatVersionUpdate():
                if update.format_version != _FORMAT_VERSION:
                    raise self._refused(f"Unsupported format version: {update.format_version}")
            case SetLocationUpdate():
                self._location = Location.parse(update.location).original
            case SetPropertiesUpdate():
                self._properties |= update.updates
            case RemovePropertiesUpdate():
                for name in update.removals:
                    self._properties.pop(name, None)
            case AddSchemaUpdate():
                self._last_schema = self._add_schema(update.schema_)
            case AddViewVersionUpdate():
                self._last_version = self._add_version(update.view_version)
            case SetCurrentViewVersionUpdate():
                self._set_current(update.view_version_id)

    def finished(self) -> ViewMetadata:
        if not self._versions:
            raise self._refused("Invalid view: no versions were added")
        if self._current not in self._versions:
            raise self._refused("Invalid view: no version is the current one")
        self._require_dialects()
        kept = self._kept()
        schemas = {each.schema_id for each in kept} | ({self._last_schema} - {None})
        made = self._base.model_copy(
            update={
                "location": self._location,
                "schemas": [each for id_, each in self._schemas.items() if id_ in schemas],
                "current_version_id": self._current,
                "versions": kept,
                "version_log": self._log({each.version_id for each in kept}),
                "properties": self._properties,
            }
        )
        problem = wrong_id(made)
        if problem is not None:
            raise self._refused(f"Invalid view: {problem}")
        return made

    def _add_schema(self, schema: Schema) -> int:
        same = next((id_ for id_, each in self._schemas.items() if each == schema), None)
        if same is not None:
            return same
        schema_id = max(self._schemas, default=_LAST) + 1
        self._schemas[schema_id] = Schema(
            *schema.fields, schema_id=schema_id, identifier_field_ids=schema.identifier_field_ids
        )
        return schema_id

    def _add_version(self, version: ViewVersion) -> int:
        schema_id = self._last_schema if version.schema_id == _LAST else version.schema_id
        if schema_id is None:
            raise self._refused("Cannot set last added schema: no schema has been added")
        if schema_id not in self._schemas:
            raise self._refused(f"Cannot add version with unknown schema: {schema_id}")
        twice = _dialect_twice(version)
        if twice is not None:
            raise self._refused(f"Invalid view version: Cannot add multiple queries for dialect {twice[:80]}")
        for known in self._versions.values():
            if known.schema_id == schema_id and read_as(known) == read_as(version):
                return known.version_id
        version_id = max(self._versions, default=0) + 1
        operation = {_OPERATION: "replace" if self._versions else "create"}
        self._versions[version_id] = version.model_copy(
            update={
                "version_id": version_id,
                "schema_id": schema_id,
                "timestamp_ms": self._now_ms,
                "summary": version.summary | operation,
            }
        )
        self._added.add(version_id)
        return version_id

    def _set_current(self, version_id: int) -> None:
        wanted = self._last_version if version_id == _LAST else version_id
        if wanted is None:
            raise self._refused("Cannot set last version id: no current version id has been set")
        if wanted not in self._versions:
            raise self._refused(f"Cannot set current version to unknown version: {wanted}")
        self._current = wanted

    def _require_dialects(self) -> None:
        if not self._base.versions or flag(self._properties, DROP_DIALECT, self._view, default=False):
            return
        before, after = texts(current_version(self._base)), texts(self._versions[self._current])
        if not before.keys() <= after.keys():
            raise ViewUpdateInvalid(
                f"Cannot replace view due to loss of view dialects ({DROP_DIALECT}=false): "
                f"Previous dialects: {sorted(before)} New dialects: {sorted(after)}",
                table=self._view,
                rule="view-dialect",
                hint=f"Give a text for each dialect, or set {DROP_DIALECT!r} to 'true'.",
            )

    def _kept(self) -> list[ViewVersion]:
        must = self._added | {self._current}
        count = max(len(must), _history(self._properties, self._view))
        # The newest that are not needed anyway fill up the number.
        others = sorted(self._versions.keys() - must, reverse=True)[: count - len(must)]
        return [each for id_, each in self._versions.items() if id_ in must or id_ in others]

    def _log(self, kept: set[int]) -> list[ViewHistoryEntry]:
        log = list(self._base.version_log)
        if self._current != self._base.current_version_id:
            entry = {"timestamp-ms": self._now_ms, "version-id": self._current}
            log.append(ViewHistoryEntry.model_validate(entry))
        unknown = [at for at, each in enumerate(log) if each.version_id not in kept]
        return log[unknown[-1] + 1 :] if unknown else log

    def _refused(self, problem: str) -> ViewUpdateInvalid:
        return ViewUpdateInvalid(
            f"{problem}.",
            table=self._view,
            rule="view-update",
            hint="Load the view again, and send the updates as the Iceberg REST specification defines them.",
        )


def flag(properties: Mapping[str, str], name: str, view: str, *, default: bool) -> bool:
    """Return the value of a property that is true or false.

    Raises:
        PropertyInvalid: it has another value.
    """
    value = properties.get(name, "true" if default else "false").strip().lower()
    if value not in {"true", "false"}:
        raise _value_refused(name, view, "'true' or 'false'")
    return value == "true"


def _history(properties: Mapping[str, str], view: str) -> int:
    value = properties.get(HISTORY, str(_DEFAULT_HISTORY)).strip()
    # Short digits alone: `int` takes other digits, underscores, and texts of any length.
    number = int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0
    if not 1 <= number <= _MAX_HISTORY:
        raise _value_refused(HISTORY, view, f"a number from 1 to {_MAX_HISTORY}")
    return number


def _value_refused(name: str, view: str, allowed: str) -> PropertyInvalid:
    return PropertyInvalid(
        f"The property {name} of the view has a value that is not supported.",
        table=view,
        rule="property-value",
        hint=f"Set it to {allowed}.",
    )
