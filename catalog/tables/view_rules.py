"""Decides what a view can be, and when its definer changes."""

from __future__ import annotations

from typing import Final

from pyiceberg.schema import Schema, index_by_name
from pyiceberg.view.metadata import ViewMetadata, ViewVersion

from catalog.authorization.definers import text_tables
from catalog.base.identifiers import TableName
from catalog.iceberg.layout import check_distinct_ids
from catalog.iceberg.view_metadata import current_version, flag, read_as, texts
from catalog.state.views import SPARK
from catalog.tables.view_files import KEEPS_FILES
from policy.errors import RequestInvalid
from policy.privileges.requests import MAX_NAME_LENGTH
from policy.privileges.tables import check_view_properties, has_definer_rights

MAX_TEXT: Final = 256 * 1024
"""Characters of a view's text."""

_MAX_COLUMNS: Final = 10_000
_MAX_PROPERTIES: Final = 64 * 1024
_MAX_DIALECTS: Final = 20
_MAX_DOCUMENT: Final = 4 * 1024 * 1024


def check(metadata: ViewMetadata, name: TableName) -> bool:
    """Check what a view is to be; return whether its tables are read with the permissions of its definer.

    Definer rights belong to the text in Spark's dialect, which the catalog reads as well. Texts in other
    dialects are stored, and give nobody a permission: their engines load each table for the reader.

    Raises:
        RequestInvalid: it is too large, has no text or no columns, a column or dialect has no usable name, or
            the catalog cannot read the text that definer rights belong to.
        PropertyInvalid: a property cannot be stored.
    """
    for version in metadata.versions:
        _check_texts(version, name)
    for schema in metadata.schemas:
        _check_columns(schema, name)
    given = (*metadata.properties.items(), *current_version(metadata).summary.items())
    if sum(len(key) + len(value) for key, value in given) > _MAX_PROPERTIES:
        raise _refused(f"The properties of the view have more than {_MAX_PROPERTIES} characters.", name)
    if len(metadata.model_dump_json()) > _MAX_DOCUMENT:
        raise _refused(f"The versions of the view have more than {_MAX_DOCUMENT} characters.", name)
    check_view_properties(metadata.properties, str(name))
    flag(metadata.properties, KEEPS_FILES, str(name), default=True)
    rights = has_definer_rights(metadata.properties, str(name))
    if rights:
        version = current_version(metadata)
        text = texts(version).get(SPARK)
        if text is None:
            raise RequestInvalid(
                "The view has no text in the dialect spark, which a definer view is read by.",
                table=str(name),
                rule="view-text",
                hint="Add one, or create the view with the permissions of its readers.",
            )
        text_tables(text, version.default_catalog, tuple(version.default_namespace), version.summary, name)
    return rights


def is_read_alike(before: ViewMetadata, after: ViewMetadata) -> bool:
    """Return whether two states of a view have the same texts and columns, so that its definer stays."""
    one, two = current_version(before), current_version(after)
    return read_as(one) == read_as(two) and _columns(before, one) == _columns(after, two)


def _columns(metadata: ViewMetadata, version: ViewVersion) -> object:
    return next(each for each in metadata.schemas if each.schema_id == version.schema_id).as_struct()


def _check_texts(version: ViewVersion, name: TableName) -> None:
    if not 1 <= len(version.representations) <= _MAX_DIALECTS:
        raise _refused(f"The view must have 1 to {_MAX_DIALECTS} texts.", name)
    for each in version.representations:
        if not each.root.sql.strip() or len(each.root.sql) > MAX_TEXT:
            raise _refused(f"The text of the view must have 1 to {MAX_TEXT} characters.", name)
        if not each.root.dialect.strip() or len(each.root.dialect) > MAX_NAME_LENGTH:
            raise _refused("The dialect of a text has no usable name.", name)


def _check_columns(schema: Schema, name: TableName) -> None:
    if not 1 <= len(schema.fields) <= _MAX_COLUMNS:
        raise _refused(f"The view must have 1 to {_MAX_COLUMNS} columns.", name)
    if not all(1 <= len(each.name) <= MAX_NAME_LENGTH for each in schema.fields):
        raise _refused(f"The names of the view's columns must have 1 to {MAX_NAME_LENGTH} characters.", name)
    check_distinct_ids(schema, str(name))
    try:
        index_by_name(schema)
    except ValueError as error:
        raise _refused("Two columns of the view have the same name.", name) from error


def _refused(problem: str, name: TableName) -> RequestInvalid:
    return RequestInvalid(problem, table=str(name), rule="view", hint="Change the definition of the view.")
