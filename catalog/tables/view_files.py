"""Stores copies of view metadata in files, and decides where they can be.

The catalog reads a view from its database. Other catalogs, and `registerView`, take it from a metadata file.
The file of a former state is deleted, unless the property `gc.enabled` of the view is false.
"""

from __future__ import annotations

import logging
import uuid
from typing import Final

from pyiceberg.view.metadata import ViewMetadata

from catalog.authorization.authorizer import Caller
from catalog.authorization.table_access import overlap_requests
from catalog.base.identifiers import TableName, slug
from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.iceberg.view_metadata import flag, parse_view
from catalog.state import claims
from catalog.state.views import ViewRecord
from policy.errors import LakewardenError, LocationInvalid
from policy.location.location import Location
from policy.privileges.operations import storage_requests
from policy.privileges.tables import MAX_TABLE_LOCATION

KEEPS_FILES: Final = "gc.enabled"
_PATH: Final = "write.metadata.path"

_log: Final = logging.getLogger(__name__)


class ViewFiles:
    """The metadata files of views.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._warehouse = Location.parse(context.settings.warehouse)
        self._max_bytes = context.settings.limits.metadata_bytes

    def default_location(self, name: TableName, view_id: str) -> Location:
        """Return the location of a view that gives none."""
        levels = [slug(level) for level in name.namespace]
        return self._warehouse.child(*levels, f"{slug(name.name)}-{view_id}")

    def authorize(
        self, caller: Caller, action: str, record: ViewRecord, before: ViewMetadata | None = None
    ) -> None:
        """Require that a view can have its location and metadata path.

        Args:
            caller: who asks.
            action: what they do.
            record: the view as it is to be.
            before: its metadata before; None for a new view.

        Raises:
            NotAuthorized: RWStorage on a location outside of the default one is not granted, or ALTER on a
                table that overlaps.
            LocationInvalid: a location is none, or too long.
        """
        own = self.default_location(record.name, record.id)
        known = set() if before is None else set(_paths(before))
        moved = [each for each in _paths(record.metadata) if each not in known and not own.contains(each)]
        if not moved:
            return
        self.require_storage(caller, action, record.name, record.owner, moved)

    def require_storage(
        self, caller: Caller, action: str, name: TableName, owner: str, locations: list[Location]
    ) -> None:
        """Require RWStorage on locations, and ALTER on each table that overlaps; errors as in `authorize`."""
        for each in locations:
            if max(len(each.canonical), len(each.original)) > MAX_TABLE_LOCATION:
                raise LocationInvalid(
                    f"The view location has more than {MAX_TABLE_LOCATION} characters.",
                    table=str(name),
                    rule="location-length",
                    hint="Use a shorter location.",
                )
        with read(self._context.engine) as connection:
            now_ms = self._context.now_ms()
            others = claims.overlapping_any(connection, self._context.catalog, locations, None, now_ms)
        requests = storage_requests(caller.on(name, owner), locations)
        hidden = overlap_requests(caller, others)
        self._context.authorizer.require(caller, action, str(name), requests, hidden=hidden)

    def write(self, record: ViewRecord) -> str:
        """Create the file of a state that is not stored yet; return its location."""
        location = _file_in(record.metadata, f"{record.version:05d}-{uuid.uuid4()}")
        data = record.metadata.model_dump_json().encode("utf-8")
        self._context.storage.create(Location.parse(location), data)
        return location

    def read(self, location: Location, view: str) -> ViewMetadata:
        """Read a metadata file, which is not trusted.

        Raises:
            MetadataInvalid: it is none.
            ObjectMissing, ObjectTooLarge, StorageUnavailable: as it says.
        """
        data = self._context.storage.read(location, limit=self._max_bytes)
        return parse_view(
            data,
            path=location.original,
            view=view,
            max_bytes=self._max_bytes,
            now_ms=self._context.now_ms(),
        )

    def superseded(self, record: ViewRecord) -> None:
        """Delete the file of a state that is not the current one any more."""
        if flag(record.metadata.properties, KEEPS_FILES, str(record.name), default=True):
            self.discard(record.metadata_location)

    def discard(self, location: str | None) -> None:
        """Delete a file; if that fails, it is left behind."""
        if location is None:
            return
        try:
            self._context.storage.delete(Location.parse(location))
        except LakewardenError as problem:
            _log.warning("a metadata file of a view is left behind: %s", type(problem).__name__)


def file_of(record: ViewRecord) -> str:
    """Return the location of a view's metadata file, as clients are told.

    A view that was not changed since a release without these files has none at this location.
    """
    return record.metadata_location or _file_in(record.metadata, f"00000-{record.id}")


def _file_in(metadata: ViewMetadata, name: str) -> str:
    """Return the location of a metadata file, spelled as the client spells the view's location."""
    return f"{_directory(metadata).original.rstrip('/')}/{name}.metadata.json"


def _directory(metadata: ViewMetadata) -> Location:
    return Location.parse(metadata.properties.get(_PATH, f"{metadata.location.rstrip('/')}/metadata"))


def _paths(metadata: ViewMetadata) -> list[Location]:
    return [Location.parse(metadata.location), _directory(metadata)]
