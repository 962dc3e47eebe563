"""Checks of a table's location and ordinary properties.

Properties that would configure the *reader's* file access are refused outright: a table's writer has no say
in which endpoint, credential or code its readers use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from policy.errors import LocationInvalid, PropertyInvalid
from policy.iceberg_properties import check_names
from policy.location.location import Location
from policy.write_properties import check_write_properties

#: Table properties that tell writers where to put files (Iceberg documentation, "Write properties").
WRITE_PATHS: Final = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)

#: Leaves room for the names of metadata files below what the pointer store can hold.
MAX_TABLE_LOCATION: Final = 800

_READER_PREFIXES: Final = (
    "s3.",
    "s3a.",
    "adls.",
    "gcs.",
    "hdfs.",
    "oss.",
    "ecs.",
    "hf.",
    "client.",
    "http-client.",
    "rest.",
    "auth.",
    "ssl.",
    "header.",
    "fs.",
)
_READER_NAMES: Final = frozenset(
    {
        "io-impl",
        "py-io-impl",
        "write.location-provider.impl",
        "write.py-location-provider.impl",
        "uri",
        "token",
        "credential",
        "oauth2-server-uri",
        "auth",
        "ssl",
        "botocore_session",
        "warehouse",
        "default_scheme",
        "default_netloc",
    }
)
_LOCATION: Final = "location"
#: Spark makes a view of these, and of names below `view.`.
_OF_VIEWS: Final = frozenset({"collation", "owner", "table_type"})
_BELOW_VIEW: Final = "view."

VIEW_SECURITY: Final = "security"
"""The property of a view that says with whose permissions its tables are read: `definer` or `invoker`."""

_DEFINER: Final = "definer"
_SECURITY: Final = frozenset({_DEFINER, "invoker"})


def check_table_location(location: Location, table: str) -> None:
    """Refuse a location below which the catalog could not name its metadata files.

    Raises:
        LocationInvalid: it is too long.
    """
    if len(location.canonical) > MAX_TABLE_LOCATION:
        raise LocationInvalid(
            f"The table location has more than {MAX_TABLE_LOCATION} characters.",
            table=table,
            rule="location-length",
            hint="Use a shorter location.",
        )


def write_paths(properties: Mapping[str, str]) -> list[Location]:
    """The locations that properties send writers to.

    Raises:
        LocationInvalid: one of them is not a location.
    """
    return [Location.parse(properties[name]) for name in WRITE_PATHS if name in properties]


def check_properties(properties: Mapping[str, str], table: str) -> None:
    """Check the ordinary properties that a user sets.

    Raises:
        PropertyInvalid: one configures readers, has no effect, or has a value that no writer could follow.
    """
    check_ordinary_properties(properties, table)
    refuse_location_property(properties, table)
    check_names(properties, table)
    check_write_properties(properties, table)


def check_view_properties(names: Iterable[str], view: str) -> None:
    """Check the properties that a user sets on a view.

    Raises:
        PropertyInvalid: one configures readers, or has a name that Spark uses for what makes up a view.
    """
    listed = list(names)
    check_ordinary_properties(listed, view)
    reserved = next((each for each in listed if _makes_up_a_view(each.strip().lower())), None)
    if reserved is not None:
        raise PropertyInvalid(
            f"The property {reserved[:120]!r} of the view has a name that Spark uses itself.",
            table=view,
            rule="view-property",
            hint="Use another name.",
        )


def has_definer_rights(properties: Mapping[str, str], view: str) -> bool:
    """Return whether the properties of a view say that its tables are read with its definer's permissions.

    Without the property they are read with the permissions of the reader.

    Raises:
        PropertyInvalid: the property has another value, or its name in other letters.
    """
    for name, value in properties.items():
        if name.strip().lower() == VIEW_SECURITY and (name != VIEW_SECURITY or value not in _SECURITY):
            raise PropertyInvalid(
                f"The property {name[:120]!r} of the view has the value {value[:120]!r}.",
                table=view,
                rule="view-security",
                hint=f"Set {VIEW_SECURITY!r} to 'definer' or 'invoker'.",
            )
    return properties.get(VIEW_SECURITY) == _DEFINER


def _makes_up_a_view(folded: str) -> bool:
    return folded in _OF_VIEWS or folded.startswith(_BELOW_VIEW)


def configures_readers(name: str) -> bool:
    """Whether a table property configures how readers access storage."""
    folded = name.strip().lower()
    return folded in _READER_NAMES or folded.startswith(_READER_PREFIXES)


def refuse_location_property(names: Iterable[str], table: str) -> None:
    """Refuse a table property that says where the table lies: it would be kept, and mean nothing.

    Raises:
        PropertyInvalid: such a property.
    """
    for name in names:
        known = _near_write_path(name)
        if known is not None:
            raise PropertyInvalid(
                f"The table property {name[:120]!r} has no effect, but resembles {known}.",
                table=table,
                rule="property-name",
                hint=f"Use {known}.",
            )
        if name.strip().lower() == _LOCATION:
            raise PropertyInvalid(
                f"The table property {name[:120]!r} does not move the table.",
                table=table,
                rule="location-property",
                hint="Set the location when you create the table, or update its location.",
            )


def _near_write_path(name: str) -> str | None:
    """The property that tells writers where to put files which a name is taken for, and is not."""
    if name in WRITE_PATHS:
        return None
    return next((known for known in WRITE_PATHS if name.strip().lower() == known), None)


def check_ordinary_properties(names: Iterable[str], table: str) -> None:
    """Refuse properties that would configure the reader's file access.

    Raises:
        PropertyInvalid: such a property.
    """
    for name in names:
        if configures_readers(name):
            raise PropertyInvalid(
                f"The table property {name[:120]!r} configures how readers access storage.",
                table=table,
                rule="reader-configuration",
                hint="Set it in the configuration of the client or engine instead.",
            )
