"""The lake that the authorization matrix is tried in: one running service, and things to try it on.

What is refused leaves everything as it is, so it is tried on tables that stay; what is allowed gets a table,
namespace or directory of its own.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import httpx
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from sqlalchemy import Table, insert, select, text, update

from catalog.authorization.definers import CATALOG_NAME
from catalog.base.identifiers import table_name
from catalog.db import schema
from catalog.db.engine import write
from catalog.iceberg.metadata import dump_metadata
from catalog.kms_server.store import Denial, KeySpec
from catalog.planning.standard_request import StandardScan
from catalog.state.scan_plans import KeptPlan, ScanPlans
from catalog.tables.drafts import NewTable
from catalog.tables.views import ViewDefinition
from policy.principal import Principal
from tests.authorization import roles
from tests.support.lake import ALLOWS_UNSEALED, MASTER_KEY, Lake, open_lake
from tests.support.service import ENGINE, Service, running
from tests.support.tables import ENCRYPTED, SCHEMA

#: Another master key that a table could be put under.
SPARE_KEY: Final = "spare"
#: A key of the KMS endpoint for standard Hadoop clients.
ENDPOINT_KEY: Final = "doorkey"
#: Tables that what is refused is tried on: plaintext, encrypted, and one that does not exist.
PLAIN, VAULT, ABSENT = "plain", "vault", "absent"
#: A view.
SIGHT: Final = "sight"
#: A definer view of `PLAIN`.
DOOR: Final = "door"
#: A table whose pointer was moved past the catalog.
UNSEALED: Final = "unsealed"
_DOCUMENTS: Final = "/admin/v1/policies/documents/ranger"
_COUNT: Final = "UPDATE matrix_changes SET number = number + 1;"
_COUNTED: Final = "SELECT number FROM matrix_changes"

_TOKEN_STATE: Final = ", ".join(each.name for each in schema.lw_token.c if each.name != "used_ms")
_STATE: Final[tuple[Table, ...]] = (
    schema.iceberg_tables,
    schema.iceberg_namespace_properties,
    schema.lw_view,
    schema.lw_table,
    schema.lw_binding,
    schema.lw_governed,
    schema.lw_pek,
    schema.lw_seal,
    schema.lw_staged,
    schema.lw_write,
    schema.lw_scan_plan,
    schema.lw_principal,
    schema.lw_token,
    schema.lw_engine_key,
    schema.lw_policy_set,
    schema.lw_policy_document,
    schema.lw_door_key,
    schema.lw_door_key_version,
)


@dataclass
class World:
    """A lake with its service.

    Attributes:
        service: the running service.
        changes_before: what `changes` was when the last request was sent.
    """

    service: Service
    changes_before: int = 0
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), repr=False)
    _roaming: str | None = None
    _document: str | None = None
    _wrapped_kek: str | None = None
    _dropped: tuple[UUID, UUID] | None = None
    _clients: dict[str, httpx.Client] = field(default_factory=dict, repr=False)

    @cached_property
    def _counter(self) -> sqlite3.Connection:
        """Reads without SQLAlchemy: it is asked before and after each of thousands of requests."""
        database = str(self.lake.services.engine.url.database)
        return sqlite3.connect(f"file:{database}?mode=ro", uri=True, isolation_level=None)

    @property
    def lake(self) -> Lake:
        """The catalog behind the service."""
        return self.service.lake

    @property
    def root(self) -> Path:
        """The directory of the lake."""
        return self.lake.root

    def client(self, role: str) -> httpx.Client:
        """The connection of a role."""
        if role not in self._clients:
            self._clients[role] = self._connect(role)
        return self._clients[role]

    def changes(self) -> int:
        """How many rows of the catalog's state were written so far; the audit trail is none of it."""
        return int(self._counter.execute(_COUNTED).fetchone()[0])

    def _note(self, request: httpx.Request) -> None:
        self.changes_before = self.changes()

    def _connect(self, role: str) -> httpx.Client:
        client = self._client(role)
        client.event_hooks = {"request": [self._note]}
        return client

    def _client(self, role: str) -> httpx.Client:
        if role == roles.THROUGH_ENGINE:
            return self.service.client(role, engine=ENGINE)
        if role == roles.ENGINE_ALONE:
            engine = {"Authorization": f"Bearer {self.service.engine_token(kind='engine-reusable')}"}
            return httpx.Client(base_url=self.service.url, headers=engine, timeout=60)
        return self.service.client(None if role == roles.ANONYMOUS else role)

    def close(self) -> None:
        """Close the connections."""
        self._counter.close()
        for client in self._clients.values():
            client.close()

    def new(self, stem: str = "t") -> str:
        """A name that nothing has had."""
        return f"{stem}{next(self._numbers)}"

    def new_namespace(self, **properties: str) -> str:
        """A namespace of the matrix, empty."""
        name = self.new(f"{roles.OWN}-")
        self.lake.catalog(roles.STEWARD).create_namespace(name, properties)
        return name

    def new_table(self, name: str | None = None, **options: Any) -> str:
        """A table of the owner's; `options` are pyiceberg's."""
        name = name or self.new()
        identifier = (roles.OWN, name)
        self.lake.catalog(roles.STEWARD).create_table(identifier, SCHEMA, **options)
        with write(self.lake.services.engine) as connection:
            mine = (schema.lw_table.c.namespace == roles.OWN, schema.lw_table.c.name == name)
            connection.execute(update(schema.lw_table).where(*mine).values(owner=roles.OWNER))
        return name

    def new_view(self, name: str | None = None) -> str:
        """A view of the owner's."""
        name = name or self.new()
        new = ViewDefinition(table_name([roles.OWN], name), SCHEMA, "SELECT 1", None, (), {}, {})
        self.lake.services.views.create(self.lake.caller(roles.STEWARD), new)
        with write(self.lake.services.engine) as connection:
            mine = (schema.lw_view.c.namespace == roles.OWN, schema.lw_view.c.name == name)
            connection.execute(update(schema.lw_view).where(*mine).values(owner=roles.OWNER))
        return name

    def door(self) -> str:
        """The UUID of that view."""
        services, name = self.lake.services, table_name([roles.OWN], DOOR)
        return services.views.load(self.lake.caller(roles.STEWARD), name).id

    def new_door(self) -> None:
        """A view of `PLAIN` with the permissions of the steward."""
        sql, summary = "SELECT * FROM plain", {CATALOG_NAME: "lake"}
        name, rights = table_name([roles.OWN], DOOR), {"security": "definer"}
        new = ViewDefinition(name, SCHEMA, sql, None, (roles.OWN,), summary, rights)
        # The definer is a user whom the catalog knows.
        self.client(roles.STEWARD)
        self.lake.services.views.create(self.lake.caller(roles.STEWARD), new)

    def dropped(self) -> tuple[UUID, UUID]:
        """The UUID of an encrypted table that was dropped, and the id of its key."""
        if self._dropped is None:
            services, name = self.lake.services, table_name([roles.OWN], self.new_table(properties=ENCRYPTED))
            record = services.loader.load(name).record
            (key,) = services.keyring.records(record)
            services.lifecycle.drop(self.lake.caller(roles.STEWARD), name)
            self._dropped = record.table_uuid, key.id
        return self._dropped

    def location(self, table: str) -> str:
        """Where a table of the matrix lies."""
        return self.lake.catalog(roles.STEWARD).load_table((roles.OWN, table)).location()

    def directory(self, parent: str) -> str:
        """A location of its own below one of the lake's directories."""
        return f"file://{self.root}/{parent}/{self.new('d')}"

    def metadata_file(self, location: str) -> str:
        """The metadata.json of a table that another catalog made at a location; answers where it is."""
        metadata = new_table_metadata(
            SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, location, {}, table_uuid=uuid4()
        )
        directory = Path("/", location.removeprefix("file:").lstrip("/"), "metadata")
        directory.mkdir(parents=True)
        (directory / "v0.metadata.json").write_bytes(dump_metadata(metadata))
        return f"{location}/metadata/v0.metadata.json"

    def view_file(self, location: str) -> str:
        """The metadata file of a view that another catalog made at a location; answers where it is."""
        text = {"sql": "SELECT 1", "type": "sql", "dialect": "spark"}
        ids = {"version-id": 1, "timestamp-ms": 0}
        version = {**ids, "schema-id": 0, "representations": [text], "default-namespace": []}
        metadata = {
            "view-uuid": str(uuid4()),
            "format-version": 1,
            "location": location,
            "schemas": [json.loads(SCHEMA.model_dump_json())],
            "current-version-id": 1,
            "versions": [version],
            "version-log": [ids],
        }
        directory = Path("/", location.removeprefix("file:").lstrip("/"), "metadata")
        directory.mkdir(parents=True)
        (directory / "v0.metadata.json").write_text(json.dumps(metadata))
        return f"{location}/metadata/v0.metadata.json"

    def pointer(self, table: str, location: str) -> None:
        """Put a table into the pointer store, past the catalog."""
        row = {
            "catalog_name": self.lake.settings.catalog.name,
            "table_namespace": roles.OWN,
            "table_name": table,
            "metadata_location": location,
            "iceberg_type": "TABLE",
        }
        with write(self.lake.services.engine) as connection:
            connection.execute(insert(schema.iceberg_tables).values(**row))

    def unseal(self, table: str) -> None:
        """Put a table's pointer on a copy of its metadata, past the catalog."""
        tables = schema.iceberg_tables
        mine = (tables.c.table_namespace == roles.OWN, tables.c.table_name == table)
        with write(self.lake.services.engine) as connection:
            sealed = str(connection.scalar(select(tables.c.metadata_location).where(*mine)))
            copy = sealed.replace(".metadata.json", "-copy.metadata.json")
            Path(copy.removeprefix("file://")).write_bytes(Path(sealed.removeprefix("file://")).read_bytes())
            connection.execute(update(tables).where(*mine).values(metadata_location=copy))

    def write_of(self, role: str, table: str) -> str:
        """A write that a role began while it had the right to; its id."""
        services = self.lake.services
        name = self.lake.catalog(roles.STEWARD)._name((roles.OWN, table))
        session = services.writes.begin(self.lake.caller(roles.STEWARD), name)
        with write(services.engine) as connection:
            mine = schema.lw_write.c.id == session.id
            connection.execute(update(schema.lw_write).where(mine).values(principal=role))
        return session.id

    def plan_of(self, role: str, table: str) -> str:
        """A scan plan with one part that a role made while it had the right to; its id."""
        services, name = self.lake.services, table_name([roles.OWN], table)
        loaded = services.loader.load(name)
        request = StandardScan(schema_id=loaded.metadata.current_schema_id).to_json()
        kept = KeptPlan(loaded.record.id, role, request, ((),), None)
        return ScanPlans(services.engine, services.now_ms, 3_600_000).keep(kept)

    def wrapped_kek(self) -> str:
        """A key of files that standard readers may ask for, as the files carry it."""
        if self._wrapped_kek is None:
            table = self.new_table(properties=ENCRYPTED | {"encryption.stock-readers": "true"})
            name = self.lake.catalog(roles.STEWARD)._name((roles.OWN, table))
            session = self.lake.services.writes.begin(self.lake.caller(roles.STEWARD), name)
            self._wrapped_kek = session.stock_keys[0].wrapped
        return self._wrapped_kek

    def staged(self, role: str, table: str, location: str | None) -> tuple[str, str]:
        """The identity that a role was given for a table while it had the right to; UUID and location."""
        new = NewTable(table_name([roles.OWN], table), SCHEMA, location)
        metadata = self.lake.services.creator.stage(self.lake.caller(roles.STEWARD), new).metadata
        with write(self.lake.services.engine) as connection:
            mine = schema.lw_staged.c.table_uuid == str(metadata.table_uuid)
            connection.execute(update(schema.lw_staged).where(mine).values(principal=role))
        return str(metadata.table_uuid), metadata.location

    def new_token(self) -> str:
        """The id of a token of a user."""
        return str(self.lake.services.tokens.issue(Principal("dave"), "user", None).id)

    def new_document(self, document: dict[str, Any]) -> str:
        """A policy document that is there; its name."""
        name = self.new("d")
        answer = self.client(roles.STEWARD).put(f"{_DOCUMENTS}/{name}", json=document)
        assert answer.status_code == 200, answer.text
        return name

    def standing_document(self, document: dict[str, Any]) -> str:
        """The policy document that stays; `document` is what it says, the first time."""
        if self._document is None:
            self._document = self.new_document(document)
        return self._document

    def tag_of(self, url: str) -> str:
        """The `ETag` of a policy document."""
        return self.client(roles.STEWARD).get(url).headers["ETag"]

    def roaming(self, *, listed: bool) -> str:
        """The table whose writers are sent here and there, with the directory `listed` on its list or not."""
        if self._roaming is None:
            self._roaming = self.new_table()
        if listed:
            self.list_more(self._roaming)
        return self._roaming

    def list_more(self, table: str) -> None:
        """Put the directory `listed` on a table's list."""
        loaded = self.lake.catalog(roles.STEWARD).load_table((roles.OWN, table))
        wider = f"{loaded.location()},file://{self.root}/listed"
        with loaded.transaction() as transaction:
            transaction.set_properties({"read.allowed.data.paths": wider})


@contextmanager
def open_world(root: Path) -> Iterator[World]:
    """Make the lake and serve it."""
    with open_lake(root, policies=[], KMS_ENDPOINT__ENABLED="true") as lake:
        lake.set_policies(roles.policies(root, lake.settings.catalog.name))
        lake.kms.create_master_key(SPARE_KEY)
        lake.services.kms_endpoint.create(
            lake.caller(roles.STEWARD), KeySpec(ENDPOINT_KEY, 256, None, {}, Denial.ERROR)
        )
        steward = lake.catalog(roles.STEWARD)
        for namespace in (roles.OWN, roles.ELSEWHERE):
            steward.create_namespace(namespace, ALLOWS_UNSEALED)
        steward.create_table((roles.ELSEWHERE, "taken"), SCHEMA, location=f"file://{root}/granted/taken")
        with running(lake) as service:
            world = World(service)
            _count_changes(lake)
            world.list_more(world.new_table(PLAIN))
            world.unseal(world.new_table(UNSEALED))
            world.new_view(SIGHT)
            # The definer of a view has had a token.
            service.token(roles.STEWARD)
            world.new_door()
            world.new_table(VAULT, properties=ENCRYPTED | {"encryption.master-key-id": MASTER_KEY})
            for role in roles.ROLES:
                world.client(role)
            try:
                yield world
            finally:
                world.close()


def _count_changes(lake: Lake) -> None:
    """Have the database count what is written into the tables that hold the catalog's state."""
    with write(lake.services.engine) as connection:
        connection.execute(text("CREATE TABLE matrix_changes (number INTEGER NOT NULL)"))
        connection.execute(text("INSERT INTO matrix_changes VALUES (0)"))
        for table, event in itertools.product(_STATE, ("INSERT", "UPDATE", "DELETE")):
            # When a token was last used is noted for callers who are refused, too.
            what = f"UPDATE OF {_TOKEN_STATE}" if (table, event) == (schema.lw_token, "UPDATE") else event
            when = f"CREATE TRIGGER matrix_{table.name}_{event} AFTER {what} ON {table.name}"
            connection.execute(text(" ".join((when, "BEGIN", _COUNT, "END"))))
