"""Applies updates to table metadata, and parses what they change of it.

Metadata as parsed is never changed in place. So the metadata after a commit shares its parts with the
metadata before it, and comparisons of both recognize shared parts by identity. What a commit costs follows
what it changes, not the number of snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate, update_table_metadata

#: The lists of metadata that grow with each commit.
_GROWING: Final = ("snapshots", "snapshot_log", "metadata_log")


class _Shared(list[Any]):
    """A list whose deep copy has the same elements. pyiceberg returns a deep copy of updated metadata."""

    def __add__(self, more: list[Any]) -> _Shared:
        return _Shared([*self, *more])

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        return _Shared(found) if isinstance(place, slice) else found

    def __deepcopy__(self, memo: object) -> list[Any]:
        return list(self)


def updated(base: TableMetadata, updates: Sequence[TableUpdate], location: str | None) -> TableMetadata:
    """Return metadata with updates applied, by pyiceberg.

    Args:
        base: the metadata; it stays as it is.
        updates: in order.
        location: path of `base`, for the metadata log; None for a table that does not exist yet. Its metadata
            is validated as a whole.

    Raises:
        ValueError, KeyError, TypeError, StopIteration, pyiceberg.exceptions.ValidationError: an update does
            not fit.
    """
    shared = {name: _Shared(value) for name, value in base if isinstance(value, list)}
    return update_table_metadata(
        base.model_copy(update=shared),
        tuple(updates),
        enforce_validation=location is None,
        metadata_location=location,
    )


def parsed_again(
    made: TableMetadata, base: TableMetadata, parse: Callable[[TableMetadata], TableMetadata]
) -> TableMetadata:
    """Return what parsing updated metadata gives, and parse only what is not shared with the metadata before.

    Args:
        made: the updated metadata.
        base: the metadata before, as parsed.
        parse: writes metadata and parses it.
    """
    known = {id(each) for name in _GROWING for each in getattr(base, name)}
    new = {name: [each for each in getattr(made, name) if id(each) not in known] for name in _GROWING}
    parsed = parse(made.model_copy(update=new))
    whole = {
        name: list(_joined(getattr(made, name), known, iter(getattr(parsed, name)))) for name in _GROWING
    }
    return parsed.model_copy(update=whole)


def _joined(elements: Sequence[object], known: set[int], parsed: Iterator[object]) -> Iterator[object]:
    for each in elements:
        yield each if id(each) in known else next(parsed)
