"""Clients of a soak: each asks one thing after the other over HTTP, and writes down what it is told."""

from __future__ import annotations

import base64
import itertools
import json
import random
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx

from catalog.crypto.secret import SecretBytes
from catalog.envelope.file_ids import FileIdentity, new_file_name
from catalog.envelope.transport import KeyLabel, Purpose, TransportKey, wrap_for_write
from tests.soak.history import History, Kind, Operation, Outcome, State
from tests.support.http_calls import SCHEMA
from tests.support.plan_streams import planned_files
from tests.support.service import TLS

#: The key of a snapshot's summary with the element that it appended, and the property that is the register.
ELEMENT, NOTE = "soak.element", "soak.note"
#: Appends to a table until the next one takes its place, so that metadata stays small.
APPENDS = 50
#: Seconds after which a client gives up.
WAIT_S = 20.0

_VERSION = re.compile(r"/(\d+)-[^/]+\.metadata\.json$")
#: Errors of requests that are refused for what others do, or because a part fails.
_EXPECTED = frozenset({401, 404, 409, 503})


@dataclass
class Slot:
    """A table that takes appends until it has enough of them; then the next one is created.

    Attributes:
        number: of the slot.
        encrypted: whether its tables are.
    """

    number: int
    encrypted: bool
    generation: int = 0
    appended: int = 0
    made: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        """The name of the present table."""
        return f"t{self.number}_{self.generation}"


@dataclass
class World:
    """What the clients share.

    Attributes:
        url: the address of the service.
        token: a user's.
        history: of all clients.
        slots: tables that take appends.
        names: names of tables that are created and dropped all the time.
        left: names of tables that have enough elements.
        stop: ends the clients.
        requests: how many requests were answered.
    """

    url: str
    token: str = field(repr=False)
    history: History = field(default_factory=History)
    slots: tuple[Slot, ...] = field(default_factory=lambda: tuple(Slot(n, n % 2 == 1) for n in range(4)))
    names: tuple[str, ...] = ("short0", "short1", "short2")
    left: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    requests: Iterator[int] = field(default_factory=itertools.count)
    answered: int = 0


@dataclass(frozen=True)
class Told:
    """An answer.

    Attributes:
        outcome: whether it was granted.
        status: of the answer; None if there was none.
        document: what it says.
        request_id: of the request.
        error: what was not expected.
        content: its bytes.
    """

    outcome: Outcome
    status: int | None
    document: Any
    request_id: str
    error: str | None = None
    content: bytes = b""


class Client:
    """One client; `run` is the body of a thread.

    Args:
        world: what the clients share.
        rng: decides what it does.
        pause_s: seconds between two operations.
    """

    def __init__(self, world: World, rng: random.Random, pause_s: float) -> None:
        self._world = world
        self._rng = rng
        self._pause_s = pause_s
        self._http = httpx.Client(
            base_url=world.url,
            headers={"Authorization": f"Bearer {world.token}"},
            timeout=WAIT_S,
            verify=TLS,
        )
        self._acts: dict[Callable[[], None], int] = {
            self.append: 40,
            self.load: 20,
            self.plan: 10,
            self.alter: 10,
            self.create_or_drop: 10,
            self.look_up: 10,
        }

    def run(self) -> None:
        """Ask until the world stops."""
        while not self._world.stop.wait(self._pause_s * self._rng.random() * 2):
            self._rng.choices(list(self._acts), list(self._acts.values()))[0]()

    def is_ready(self) -> bool:
        """Whether the catalog says that it serves everything."""
        try:
            return self._http.get("/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def append(self) -> None:
        """Append an element: begin a write, store a file, commit."""
        slot = self._slot()
        if slot is None:
            return
        name, element, start = slot.name, uuid4().hex, time.monotonic()
        begun = self._ask("POST", f"/engine/v1/tables/soak/{name}/writes")
        if begun.outcome is not Outcome.OK:
            # Nothing was asked for that could take effect.
            self._tell(Kind.APPEND, name, start, _never(begun), element)
            return
        body = {
            "operation": "append",
            "added": [_file(begun.document, element)],
            "summary": {ELEMENT: element},
        }
        url, start = f"/engine/v1/writes/{begun.document['write-id']}/commit", time.monotonic()
        told = self._ask("POST", url, body)
        state = _state(told) if told.outcome is Outcome.OK else None
        if told.outcome is Outcome.UNKNOWN:
            # A write is committed once, however often it is asked for.
            told = self._again(url, body)
        self._tell(Kind.APPEND, name, start, told, element, state)
        if told.outcome is Outcome.OK:
            self._count(slot, name)

    def _again(self, url: str, body: dict[str, Any]) -> Told:
        self._world.stop.wait(self._rng.random() * 4)
        told = self._ask("POST", url, body)
        # A refusal says nothing of the first attempt.
        return told if told.outcome is Outcome.OK else Told(Outcome.UNKNOWN, None, None, told.request_id)

    def alter(self) -> None:
        """Set the register of a table."""
        slot = self._slot()
        if slot is None:
            return
        name, note, start = slot.name, uuid4().hex, time.monotonic()
        if slot.encrypted or self._rng.random() < 0.5:
            changes = {"changes": [{"action": "set-property", "name": NOTE, "value": note}]}
            told = self._ask("POST", f"/engine/v1/tables/soak/{name}/alter", changes)
        else:
            update = {"action": "set-properties", "updates": {NOTE: note}}
            body = {"requirements": [], "updates": [update]}
            told = self._ask("POST", f"/v1/lakewarden/namespaces/soak/tables/{name}", body)
        self._tell(Kind.ALTER, name, start, told, note, _state(told))

    def load(self) -> None:
        """Load a table."""
        if (slot := self._slot()) is not None:
            self.load_named(slot.name, engine=slot.encrypted or self._rng.random() < 0.5)

    def load_named(self, name: str, *, engine: bool = True) -> Operation:
        """Load a table by its name."""
        start = time.monotonic()
        if engine:
            told = self._ask("POST", f"/engine/v1/tables/soak/{name}/load")
        else:
            told = self._ask("GET", f"/v1/lakewarden/namespaces/soak/tables/{name}")
        return self._tell(Kind.READ, name, start, told, None, _state(told))

    def plan(self) -> None:
        """Plan a scan: the catalog reads the manifests and unwraps the keys."""
        slot = self._slot()
        if slot is None:
            return
        name, start = slot.name, time.monotonic()
        told = self._ask("POST", f"/engine/v1/tables/soak/{name}/plan", {})
        state = None
        if told.outcome is Outcome.OK:
            files = planned_files(told.content)["file_path"].to_pylist()
            table = self._uuid_of(name)
            state = None if table is None else State(table, tuple(map(_element_of, files)), ordered=False)
        self._tell(Kind.READ, name, start, told if state else _never(told), None, state)

    def create_or_drop(self) -> None:
        """Create a table that comes and goes, or drop it."""
        name, start = self._rng.choice(self._world.names), time.monotonic()
        if self._rng.random() < 0.5:
            told = self._create(name, self._rng.random() < 0.3)
            self._tell(Kind.CREATE, name, start, told, None, _state(told))
            return
        purge = self._rng.choice(("true", "false"))
        url = f"/v1/lakewarden/namespaces/soak/tables/{name}?purgeRequested={purge}"
        self._tell(Kind.DROP, name, start, self._ask("DELETE", url))

    def look_up(self) -> None:
        """Look for a table that comes and goes."""
        name, start = self._rng.choice(self._world.names), time.monotonic()
        told = self._ask("POST", f"/engine/v1/tables/soak/{name}/load")
        if told.status == 404:
            told = Told(Outcome.OK, 404, None, told.request_id)
            self._tell(Kind.READ, name, start, told, recorded=False)
            return
        self._tell(Kind.READ, name, start, told, None, _state(told))

    def _create(self, name: str, encrypted: bool) -> Told:
        body = {
            "name": name,
            "schema": SCHEMA,
            "properties": {"encryption.mechanism": "envelope"} if encrypted else {},
        }
        return self._ask("POST", "/engine/v1/namespaces/soak/tables", body)

    def _slot(self) -> Slot | None:
        """A slot with a table; the first client that comes creates it."""
        slot = self._rng.choice(self._world.slots)
        with slot.lock:
            if not slot.made:
                start = time.monotonic()
                told = self._create(slot.name, slot.encrypted)
                self._tell(Kind.CREATE, slot.name, start, told, None, _state(told))
                slot.made = told.outcome is Outcome.OK
                if not slot.made:
                    # Whether it exists is not known: leave the name alone.
                    slot.generation += 1
                    return None
        return slot

    def _count(self, slot: Slot, name: str) -> None:
        with slot.lock:
            if slot.name != name:
                return
            slot.appended += 1
            if slot.appended >= APPENDS:
                self._world.left.append(name)
                slot.generation, slot.appended, slot.made = slot.generation + 1, 0, False

    def _uuid_of(self, name: str) -> str | None:
        """The UUID of a table that is never dropped."""
        operations = self._world.history.operations
        return next(
            (
                each.state.table
                for each in reversed(operations)
                if each.name == name and each.state is not None
            ),
            None,
        )

    def _tell(
        self,
        kind: Kind,
        name: str,
        start: float,
        told: Told,
        value: str | None = None,
        state: State | None = None,
        *,
        recorded: bool = True,
    ) -> Operation:
        request_id = told.request_id if recorded and told.outcome is Outcome.OK else None
        operation = Operation(
            kind, name, start, time.monotonic(), told.outcome, value, state, request_id, told.error
        )
        self._world.history.add(operation)
        return operation

    def _ask(self, method: str, url: str, body: Any = None) -> Told:
        request_id = f"soak-{uuid4().hex}"
        try:
            answer = self._http.request(method, url, json=body, headers={"X-Request-Id": request_id})
        except httpx.HTTPError:
            return Told(Outcome.UNKNOWN, None, None, request_id)
        self._world.answered = next(self._world.requests) + 1
        return _told(answer, request_id)


def _told(answer: httpx.Response, request_id: str) -> Told:
    status, kind = answer.status_code, answer.headers.get("content-type", "")
    document = None
    if kind.startswith("application/json") and answer.content:
        document = json.loads(answer.content)
    if answer.is_success:
        return Told(Outcome.OK, status, document, request_id, content=answer.content)
    ours = document["error"].get("lakewarden") if document else None
    if status == 500:
        error = None if ours == "CommitStateUnknown" else f"500 {ours}"
        return Told(Outcome.UNKNOWN, status, document, request_id, error)
    rule = document["error"].get("rule") if document else None
    error = None if status in _EXPECTED else f"{status} {ours} {rule}"
    return Told(Outcome.REFUSED, status, document, request_id, error)


def _never(told: Told) -> Told:
    """What cannot have taken effect, whatever was told."""
    return Told(Outcome.REFUSED, told.status, None, told.request_id, told.error)


def _state(told: Told) -> State | None:
    """The table that an answer shows."""
    if told.outcome is not Outcome.OK or not told.document or "metadata" not in told.document:
        return None
    metadata, location = told.document["metadata"], told.document.get("metadata-location")
    snapshots = sorted(metadata.get("snapshots", []), key=lambda each: each["sequence-number"])
    found = _VERSION.search(location or "")
    return State(
        metadata["table-uuid"],
        tuple(each["summary"].get(ELEMENT, "") for each in snapshots),
        int(found[1]) if found else None,
        location,
        metadata.get("properties", {}).get(NOTE),
    )


def _file(begun: dict[str, Any], element: str) -> dict[str, Any]:
    """A stored file whose name tells its element; what is in it does not matter to the catalog."""
    name = new_file_name(f"part-{element}", "parquet")
    path = f"{begun['location']}/{name}"
    where = Path(path.removeprefix("file://"))
    size = 1_000
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        with where.open("wb") as stored:
            stored.truncate(size)
    except OSError:
        pass  # The disk is full: the commit finds no file.
    keys = [_key(begun, path)] if begun.get("encryption") else []
    return {
        "path": path,
        "file-format": "parquet",
        "record-count": 3,
        "file-size-in-bytes": size,
        "keys": keys,
    }


def _key(begun: dict[str, Any], path: str) -> dict[str, Any]:
    given = begun["transport-key"]
    transport = TransportKey(
        base64.b64decode(given["id"]), Purpose.WRITE, SecretBytes(base64.b64decode(given["key"]))
    )
    dek = SecretBytes(secrets.token_bytes(begun["encryption"]["data-key-length"]))
    label = KeyLabel(begun["encryption"]["footer-key-name"])
    identity = FileIdentity.of(UUID(begun["table-uuid"]), path)
    return {
        "key-name": label.key_name,
        "wrapped": base64.b64encode(wrap_for_write(transport, dek, identity, label)).decode(),
    }


def _element_of(path: str) -> str:
    return path.rpartition("/part-")[2].partition("-")[0]
