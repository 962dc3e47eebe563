"""Where an audit gets its tables from: this catalog, or another one that PyIceberg can open."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import ValidationError
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
)
from pyiceberg.exceptions import ValidationError as IcebergValidationError
from pyiceberg.typedef import Identifier
from sqlalchemy.exc import SQLAlchemyError

from policy.errors import LocationInvalid, RequestInvalid
from policy.location.location import Location, shown
from policy.location.overlaps import Claim, Claims
from spark_ext.pipelines.audit.facts import FOREIGN, Facts
from spark_ext.pipelines.items import Item
from spark_ext.pipelines.lake import Lake, Patterns

_PAGE: Final = 10_000
_STATES: Final = 1_000
#: What catalogs, their clients and the parsers of metadata raise. Their texts can have credentials.
_UNREADABLE: Final = (
    ArithmeticError,
    AttributeError,
    BotoCoreError,
    ClientError,
    EOFError,
    IcebergValidationError,
    ImportError,
    LookupError,
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    NotInstalledError,
    OSError,
    RESTError,
    RecursionError,
    SQLAlchemyError,
    TypeError,
    ValidationError,
    ValueError,
    zlib.error,
)


class Source(Protocol):
    """Where tables come from."""

    def items(self, lake: Lake) -> Iterator[Item]:
        """Plan an item for each table, by name."""

    def facts(self, lake: Lake, group: Sequence[Item]) -> dict[str, Facts]:
        """Return what is known now of the tables of items, by name; without those that are gone."""


class ThisCatalog:
    """The tables of the Lakewarden catalog, also those that only its pointer store knows.

    Args:
        tables: patterns of them.
    """

    def __init__(self, tables: str | Sequence[str]) -> None:
        self._patterns = Patterns(tables)

    def items(self, lake: Lake) -> Iterator[Item]:
        after = None
        while True:
            page = lake.admin("GET", ("lake", "tables"), query={"limit": _PAGE, "after": after})
            for each in page["tables"]:
                if self._patterns.match(each["table"]):
                    yield Item(each["table"], each["table"])
            after = page["next"]
            if after is None:
                return

    def facts(self, lake: Lake, group: Sequence[Item]) -> dict[str, Facts]:
        found: dict[str, Facts] = {}
        for start in range(0, len(group), _STATES):
            names = [item.table for item in group[start : start + _STATES]]
            found |= _states(lake, names)
        return found


def _states(lake: Lake, names: list[str]) -> dict[str, Facts]:
    page = lake.admin("POST", ("lake", "states"), {"tables": names})
    tables, before = page["tables"], page["garbage-before-ms"]
    seals: dict[str, list[Mapping[str, Any]]] = {}
    while True:
        for each in page["seals"]:
            seals.setdefault(each["table-uuid"], []).append(each)
        if page["next"] is None:
            break
        page = lake.admin("POST", ("lake", "states"), {"tables": names, "after": page["next"]})
    return {
        each["table"]: Facts.governed_by(each, seals.get(each["table-uuid"], ()), before) for each in tables
    }


class OtherCatalog:
    """The tables of another catalog, as PyIceberg opens it on the driver.

    Args:
        tables: patterns of them.
        properties: as `pyiceberg.catalog.load_catalog` takes them, with the catalog's `name`. They can have
            credentials, so they are neither recorded nor sent to executors.

    Raises:
        RequestInvalid: the catalog cannot be opened.
    """

    def __init__(self, tables: str | Sequence[str], properties: Mapping[str, str]) -> None:
        self._patterns = Patterns(tables)
        others = {key: value for key, value in properties.items() if key != "name"}
        with _refused("opened"):
            self._catalog: Catalog = load_catalog(properties.get("name", "default"), **others)

    def items(self, lake: Lake) -> Iterator[Item]:
        states = sorted(map(self._state, self._tables(())), key=lambda each: str(each["table"]))
        claims = Claims([_claim(each) for each in states if each["location"] is not None])
        for state in states:
            if self._patterns.match(state["table"]):
                yield Item(state["table"], state["table"], payload=_with_others(state, claims))

    def facts(self, lake: Lake, group: Sequence[Item]) -> dict[str, Facts]:
        return {item.table: Facts(item.payload) for item in group}

    def _tables(self, above: Identifier) -> Iterator[Identifier]:
        """Yield the names of all tables.

        Raises:
            RequestInvalid: the catalog does not list them.
        """
        with _refused("listed"):
            namespaces = sorted(self._catalog.list_namespaces(above))
        for namespace in namespaces:
            with _refused("listed"):
                try:
                    tables = self._catalog.list_tables(namespace)
                except NoSuchNamespaceError:
                    continue
            yield from tables
            yield from self._tables(namespace)

    def _state(self, name: Identifier) -> dict[str, Any]:
        state = dict(_EMPTY, table=_dotted(name))
        try:
            table = self._catalog.load_table(name)
        except _UNREADABLE as error:
            return state | {"problem": f"The catalog cannot load the table: {type(error).__name__}."}
        return state | {
            "metadata-location": table.metadata_location,
            "location": _canonical(table.location()),
        }


_EMPTY: Final[Mapping[str, Any]] = {
    "standing": FOREIGN,
    "metadata-location": None,
    "table-uuid": None,
    "owner": None,
    "location": None,
    "governed": None,
    "sealed-location": None,
    "seal": None,
    "keys": [],
    "writes": [],
    "others": [],
    "shared": True,
    "violations": [],
    "problem": None,
}


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Refuse what the other catalog cannot do; the refusal has no text of its errors."""
    try:
        yield
    except _UNREADABLE as error:
        raise RequestInvalid(
            f"The other catalog cannot be {what}: {type(error).__name__}.",
            rule="other-catalog",
            hint="Give the properties of PyIceberg's load_catalog: type, uri, and what that type needs. "
            "Check that the catalog answers.",
        ) from None


def _dotted(name: Identifier) -> str:
    """Return the dotted name of a table. Parts with a dot are in backticks, so that names stay different."""
    return ".".join(f"`{part}`" if "." in part else part for part in name)


def _canonical(text: str) -> str | None:
    try:
        return Location.parse(text).canonical
    except LocationInvalid:
        return None


def _claim(state: Mapping[str, Any]) -> Claim:
    return Claim(state["table"], state["table"], state["location"], False)


def _with_others(state: dict[str, Any], claims: Claims) -> dict[str, Any]:
    if state["location"] is None:
        return state
    found = (each for each in claims.meeting(Location.parse(state["location"])))
    others = [
        {"table": each.name, "location": each.location, "dropped": False}
        for each in found
        if each.table_id != state["table"]
    ]
    return state | {"others": others}


def shown_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return what of a catalog's properties tells it from others, without what can be a credential."""
    told = {name: shown(properties[name]) for name in ("name", "type", "warehouse") if name in properties}
    if "uri" in properties:
        parts = urlsplit(properties["uri"])
        told["uri"] = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
    return told
