"""A real catalog in a directory: database, keystore, policies, storage; nothing is replaced."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import SecretStr
from sqlalchemy import Engine

from catalog.authorization.authorizer import Caller
from catalog.db.engine import open_database
from catalog.kms.local import LocalKms
from catalog.kms.root_key import KeyFile
from catalog.policy_store.documents import DocumentId, Edit, Kind, PolicyDocuments, StoredDocument
from catalog.policy_store.files import PolicyFiles
from catalog.service.pyiceberg_catalog import GuardedCatalog
from catalog.service.services import Services
from catalog.settings.catalog import Settings
from policy.principal import Principal
from tests.support import databases

MASTER_KEY = "lakewarden"

#: Alice looks after everything; Bob looks after the database `bobs` alone; Carol reads the database `db`.
ALICE, BOB, CAROL = "alice", "bob", "carol"

#: Of a namespace whose tables can be read after a writer went straight to the pointer store.
ALLOWS_UNSEALED = {"lakewarden.unsealed": "allow"}


def policy(
    name: str, resources: Mapping[str, Sequence[str]], grants: Mapping[str, Sequence[str]], **more: Any
) -> dict[str, Any]:
    """A Ranger policy: resource values by resource, access types by user."""
    items = [
        {"users": [user], "accesses": [{"type": access, "isAllowed": True} for access in accesses]}
        for user, accesses in grants.items()
    ]
    values = {resource: {"values": list(each)} for resource, each in resources.items()}
    return {"name": name, "service": "lake", "resources": values, "policyItems": items, **more}


def tables(database: str) -> dict[str, Sequence[str]]:
    """Every column of every table of a database."""
    return {"database": [database], "table": ["*"], "column": ["*"]}


def standard_policies() -> list[dict[str, Any]]:
    """What Alice, Bob and Carol may do."""
    return [
        policy("alice-tables", tables("*"), {ALICE: ["all"]}),
        policy("alice-storage", {"storage-type": ["*"], "storage-url": ["*"]}, {ALICE: ["rwstorage"]}),
        policy("alice-keys", {"key": ["*"]}, {ALICE: ["use", "release", "rotate", "destroy"]}),
        policy("alice-service", {"service": ["*"]}, {ALICE: ["admin", "audit"]}),
        policy("bob-tables", tables("bobs"), {BOB: ["all"]}),
        policy("carol-reads", tables("db"), {CAROL: ["select"]}),
        policy("engines", {"engine": ["*"]}, {"spark": ["act"]}),
        policy("alice-code", {"engine": ["spark"]}, {ALICE: ["code"]}),
    ]


def policies_without_code() -> list[dict[str, Any]]:
    """The same, but nobody runs code in the engine."""
    return [each for each in standard_policies() if each["name"] != "alice-code"]


@dataclass
class Lake:
    """An open catalog and where its parts lie."""

    root: Path
    settings: Settings
    services: Services
    kms: LocalKms

    @property
    def warehouse(self) -> Path:
        """The local warehouse."""
        return self.root / "warehouse"

    def caller(self, user: str, engine: str | None = None) -> Caller:
        """A caller as the service would make one."""
        return Caller(Principal(user), Principal(engine) if engine else None, uuid4().hex)

    def catalog(self, user: str = ALICE) -> GuardedCatalog:
        """The catalog as a user sees it, through pyiceberg's interface."""
        return GuardedCatalog(self.services, self.caller(user))

    def reopen(self) -> None:
        """Open the same catalog anew, as another process would."""
        self.services.close()
        self.services = Services.open(self.settings, self.kms)

    def set_policies(self, policies: Sequence[Mapping[str, Any]]) -> None:
        """Put other policies in force."""
        write_policies(self.root, policies)
        apply_policies(self.root, self.services.engine, self.settings.catalog.name)
        self.services.policies.reload()


def write_policies(root: Path, policies: Sequence[Mapping[str, Any]]) -> None:
    """Write a policy document, which is applied when the catalog is opened."""
    directory = root / "policies"
    directory.mkdir(exist_ok=True)
    (directory / "lake.json").write_text(json.dumps({"policies": list(policies)}))


def apply_policies(root: Path, engine: Engine, catalog: str) -> None:
    """Put the policies that were written into the database, without a check or a record."""
    documents = PolicyDocuments(engine, catalog)
    _write(documents, PolicyFiles([root / "policies"]).edits(documents.current()))


def write_unchecked(documents: PolicyDocuments, name: str, content: bytes) -> None:
    """Write a policy document that no check has seen, as a newer release could."""
    _write(documents, [Edit(DocumentId(Kind.RANGER, name), content, None)])


def _write(documents: PolicyDocuments, edits: Sequence[Edit]) -> None:
    base, now = documents.current(), datetime.now(UTC)
    number = base.version.revision + 1
    changed = [
        StoredDocument.of(each, number, author=ALICE, request_id="r", changed_at=now) for each in edits
    ]
    if changed:
        documents.replace(base, changed)


def lake_settings(root: Path, **overrides: Any) -> Settings:
    """Settings for a catalog in `root`; overrides are environment variables without the prefix."""
    environ = {"DATA_DIR": root, "WAREHOUSE": f"file://{root}/warehouse"}
    if "DATABASE__URL" not in overrides:
        environ["POLICIES"] = root / "policies"
    return Settings.load(
        None, {f"LAKEWARDEN_{name}": str(value) for name, value in (environ | overrides).items()}
    )


@contextmanager
def open_lake(
    root: Path, *, policies: Sequence[Mapping[str, Any]] | None = None, **overrides: Any
) -> Iterator[Lake]:
    """Make a catalog in a directory and open it.

    Args:
        root: an empty directory.
        policies: Ranger policies; by default `standard_policies`.
        overrides: settings as environment variables without the prefix, such as ``DATABASE__URL``.
    """
    write_policies(root, standard_policies() if policies is None else policies)
    settings = lake_settings(root, **overrides)
    options = settings.kms.options
    kms = LocalKms.create(options.keystore, KeyFile.create(options.key_file))
    kms.create_master_key(MASTER_KEY)
    engine = open_database(settings.database.url)
    try:
        databases.upgrade(engine)
        apply_policies(root, engine, settings.catalog.name)
    finally:
        engine.dispose()
    lake = Lake(root, settings, Services.open(settings, kms), kms)
    try:
        yield lake
    finally:
        lake.services.close()


def upgrade(url: SecretStr) -> None:
    """Bring a database to the present schema."""
    engine = open_database(url)
    try:
        databases.upgrade(engine)
    finally:
        engine.dispose()
