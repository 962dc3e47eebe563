"""Defines the options and arguments that several commands share, and parses their values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, TypeAlias
from uuid import UUID

import typer

from catalog.base.identifiers import TableName, table_name
from policy.errors import RequestInvalid
from policy.identifiers import namespace_of

#: The default directory of a new catalog, below the working directory.
DEFAULT_DATA_DIR: Final = "lakewarden-data"

_DURATION: Final = re.compile(r"([1-9][0-9]{0,4})([smhd])", re.ASCII)
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def table_of(text: str) -> TableName:
    """Parse a dotted table name.

    Raises:
        typer.BadParameter: it has no namespace.
        RequestInvalid: a part is not a name.
    """
    *namespace, name = text.split(".")
    if not namespace:
        raise typer.BadParameter(f"{text!r} has no namespace. Give the table as NAMESPACE.TABLE.")
    return table_name(namespace, name)


def namespace_named(text: str) -> str:
    """Parse a namespace, whose levels are joined by dots.

    Raises:
        typer.BadParameter: it is not a namespace.
    """
    try:
        return ".".join(namespace_of(text.split(".")))
    except RequestInvalid as error:
        raise typer.BadParameter(error.message) from error


def duration_of(text: str) -> timedelta:
    """Parse a time span such as ``90s``, ``30m``, ``12h`` or ``7d``.

    Raises:
        typer.BadParameter: it is not one.
    """
    matched = _DURATION.fullmatch(text)
    if matched is None:
        raise typer.BadParameter(f"{text!r} is not a time span. Give a number and s, m, h or d, such as 12h.")
    return timedelta(**{_UNITS[matched[2]]: int(matched[1])})


def lifetime_of(text: str) -> timedelta:
    """Parse the lifetime of a token: a time span, or ``never`` for `timedelta.max`.

    Raises:
        typer.BadParameter: it is neither.
    """
    return timedelta.max if text == "never" else duration_of(text)


def moment_of(text: str) -> datetime:
    """Parse a time: ISO 8601 (UTC unless it names a zone), or a time span before now.

    Raises:
        typer.BadParameter: it is neither.
    """
    if _DURATION.fullmatch(text):
        return datetime.now(UTC) - duration_of(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time. Give ISO 8601, such as 2030-01-31T12:00, or a time span, such as 12h."
        ) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


@dataclass(frozen=True)
class KeysOf:
    """The table of the keys: a table by its name, or a dropped table by its UUID."""

    whose: TableName | UUID

    def __str__(self) -> str:
        return str(self.whose)


def keys_of(text: str) -> KeysOf:
    """Parse a dotted table name, or the UUID of a dropped table; no dotted name is a UUID.

    Raises:
        as `table_of`.
    """
    return KeysOf(UUID(text) if _UUID.fullmatch(text) else table_of(text))


def admin_path(table: TableName, *operation: str) -> tuple[str, ...]:
    """Return the path of an operation on a table, below `/admin/v1`."""
    return ("tables", "\x1f".join(table.namespace), table.name, *operation)


AsUser: TypeAlias = Annotated[
    str | None,
    typer.Option("--as", metavar="USER", help="The user to act for. Default: the operating system's user."),
]
Groups: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="GROUP", help="A group of the user. Can be repeated."),
]
Roles: TypeAlias = Annotated[
    list[str] | None, typer.Option("--role", metavar="ROLE", help="A role of the user. Can be repeated.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Table: TypeAlias = Annotated[
    TableName,
    typer.Argument(
        parser=table_of, metavar="TABLE", help="The table, as NAMESPACE.TABLE.", show_default=False
    ),
]
TableOrUuid: TypeAlias = Annotated[
    KeysOf,
    typer.Argument(
        parser=keys_of,
        metavar="TABLE",
        help="The table, as NAMESPACE.TABLE, or the UUID of a dropped table.",
        show_default=False,
    ),
]
