"""What a row of the authorization matrix is, and what one try of it has at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import httpx

from tests.authorization import places
from tests.authorization.roles import OWN, WITH_TOKEN
from tests.authorization.world import ABSENT, PLAIN, VAULT, World
from tests.support.http_calls import SCHEMA
from tests.support.tables import ENCRYPTED

EVERYBODY: Final = " ".join(WITH_TOKEN)


@dataclass(frozen=True)
class Try:
    """One cell: who, with which location, and whether it is to work.

    Attributes:
        world: the lake.
        role: who asks.
        allowed: whether the table of rows says that it works; it then gets things of its own.
        via: how a location comes in.
        state: the state of that location; None where none comes in.
        absent: whether the table is to be one that does not exist.
    """

    world: World
    role: str
    allowed: bool
    via: str = ""
    state: str | None = None
    absent: bool = False

    @property
    def http(self) -> httpx.Client:
        """The role's connection."""
        return self.world.client(self.role)

    @property
    def v1(self) -> str:
        """The beginning of the Iceberg operations."""
        return f"{self.world.service.prefix}/namespaces/{OWN}"

    def table(self, *, encrypted: bool = False) -> str:
        """The table that it is tried on; what is going to be changed is new."""
        if self.absent:
            return ABSENT
        if not self.allowed:
            return self.standing(encrypted=encrypted)
        if self.via in (*places.WRITE_PATHS, places.LIST):
            return self.world.roaming(listed=self.state == "on the list already")
        name = self.world.new_table(properties=ENCRYPTED if encrypted else {})
        if self.state == "on the list already":
            self.world.list_more(name)
        return name

    def standing(self, *, encrypted: bool = False) -> str:
        """A table that is only looked at, or that does not exist."""
        if self.absent:
            return ABSENT
        return VAULT if encrypted else PLAIN

    def place(self, table: str | None = None) -> str:
        """A location in this cell's state."""
        assert self.state is not None
        return places.place(self.world, self.state, table)

    def created(self, **more: Any) -> dict[str, Any]:
        """The body that asks for a new table, with the location where it comes in."""
        body: dict[str, Any] = {"name": self.world.new(), "schema": SCHEMA, **more}
        if self.state is not None and self.via == places.LOCATION:
            body["location"] = self.place()
        elif self.state is not None:
            body.setdefault("properties", {})[self.via] = self.place()
        return body

    def commit(self, table: str, *updates: dict[str, Any], **more: Any) -> httpx.Response:
        """Commit updates to a table."""
        body = {"requirements": [], "updates": list(updates), **more}
        return self.http.post(f"{self.v1}/tables/{table}", json=body)


@dataclass(frozen=True)
class Row:
    """One use of one operation.

    Attributes:
        route: method and path, as the service routes it.
        case: which use of it.
        needs: what the model says that it needs.
        allowed: the roles that may do it, with a location that needs nothing.
        call: makes the request.
        ok: the status where it is allowed.
        bare: whether it can be asked for without a location.
        via: the ways in which a location comes in.
        states: the states of a location that are tried.
        refusal: status and error where it is refused to a user with a token.
        on_table: whether it is about a table, whose existence must not be told.
        known_to: the rights of which one is enough to be told, though it is refused.
    """

    route: str
    case: str
    needs: tuple[str, ...]
    allowed: str
    call: Callable[[Try], httpx.Response]
    ok: int = 200
    bare: bool = True
    via: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    refusal: tuple[int, str] = (403, "NotAuthorized")
    on_table: bool = False
    known_to: str = "select|update|alter"

    def __str__(self) -> str:
        return f"{self.route} ({self.case})"


def setting(**properties: str) -> dict[str, Any]:
    """The update that sets properties."""
    return {"action": "set-properties", "updates": properties}


def sending(attempt: Try, table: str) -> dict[str, Any]:
    """The update that sends the table or its writers somewhere, or puts a location on its list."""
    if attempt.via == places.LOCATION:
        return {"action": "set-location", "location": attempt.place(table)}
    return {"action": "set-properties", "updates": {attempt.via: sent(attempt, table)}}


def sent(attempt: Try, table: str) -> str:
    """The value of the property by which a location comes in."""
    where = attempt.place(table)
    if attempt.via != places.LIST:
        return where
    return f"{attempt.world.location(table)},{where}"
