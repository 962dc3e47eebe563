"""Creates a catalog's settings, keys, database and first administrator (`lakewarden init`).

- Existing parts stay as they are; a second run creates only what is missing.
- It creates everything or nothing. Settings without a key of the audit log, and policies that leave the
  administrator of a new catalog without permissions, are refused before anything is created.
- A catalog without policies gets the document `ranger/admin`, unless the settings name policy files.
- The administrator's policy grants all permissions on the catalog, and on storage below the warehouse.
  Reading tables from other locations needs another policy.
- Secrets are in files of mode 0600 in a data directory of mode 0700.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

from catalog.audit.checkpoints import Checkpointer, Signer
from catalog.authorization.tokens import TokenStore
from catalog.cli.arguments import DEFAULT_DATA_DIR
from catalog.cli.policy_store import Store
from catalog.cli.session import calling, open_local_kms, open_state
from catalog.crypto.secret import SecretBytes
from catalog.db import migrate
from catalog.db.engine import open_database
from catalog.kms.local import LocalKms
from catalog.kms.root_key import KeyFile, Passphrase, RootKeySource
from catalog.policy_store.documents import EMPTY, DocumentId, Edit, Kind, PolicyDocuments, StoredSet
from catalog.policy_store.files import PolicyFiles, read_documents
from catalog.policy_store.kinds import OF_POLICIES
from catalog.settings.catalog import Settings
from catalog.settings.kms import local_kms_options
from catalog.settings.kms_options import LocalKmsOptions
from policy.errors import LakewardenError, RequestInvalid, StateUnavailable
from policy.principal import Principal
from policy.privileges.operations import On, required
from policy.ranger import PolicySet

#: Called with one sentence about a part that was created or kept.
Say: TypeAlias = Callable[[str], None]

_AUDIT_KEY: Final = "audit.key"

_SETTINGS: Final = """\
# Settings of a Lakewarden catalog. An environment variable such as LAKEWARDEN_HTTP__PORT wins over this file.

data_dir = {data_dir}

# Where new tables get their default location; by default a directory in data_dir.
# warehouse = "s3://bucket/warehouse"

[kms]
# The embedded default, not for production: its master keys are in reach of the catalog's process.
kind = "local"

[audit]
# Signs the checkpoints of the audit trail; every replica needs the same one.
key_file = {audit_key}
"""


def make_catalog(
    file: Path, environ: Mapping[str, str], admin: Principal, data_dir: Path | None, say: Say
) -> Settings:
    """Create the missing parts of a catalog: settings, keys, database and an administrator's policy.

    Args:
        file: the settings file; an existing file is kept.
        environ: environment variables, which override the file.
        admin: the administrator in a new policy.
        data_dir: directory of database and keystore; by default that of the settings.
        say: called with a sentence about each part.

    Returns:
        The settings in force.

    Raises:
        RequestInvalid: the settings name another data directory, are malformed, or lack something.
        PolicyInvalid: the existing policies cannot be evaluated.
        StateUnavailable: a part cannot be created.
    """
    settings = _settings(file, environ, admin, data_dir, say)
    _make_directory(settings.data_dir, 0o700)
    _make_keys(settings, say)
    _make_database(settings, say)
    _make_trail(settings, say)
    _make_policies(settings, admin, say)
    return settings


def _settings(
    file: Path, environ: Mapping[str, str], admin: Principal, data_dir: Path | None, say: Say
) -> Settings:
    """Load the settings from the existing file, or from a new file, which is removed again after an error."""
    if file.exists():
        settings = _checked(file, environ, admin, data_dir)
        say(f"Kept the existing settings in {file}.")
        return settings
    chosen = data_dir or Path(environ.get("LAKEWARDEN_DATA_DIR", DEFAULT_DATA_DIR))
    _create(file, _settings_text(chosen.absolute()), 0o644)
    try:
        settings = _checked(file, environ, admin, data_dir)
    except LakewardenError:
        file.unlink()
        raise
    say(f"Wrote the settings to {file}.")
    return settings


def _checked(file: Path, environ: Mapping[str, str], admin: Principal, data_dir: Path | None) -> Settings:
    """Load the settings, and refuse if a complete catalog cannot be created with them."""
    settings = Settings.load(file, environ)
    if data_dir is not None and settings.data_dir != data_dir.absolute():
        raise RequestInvalid(
            f"--data-dir is {data_dir}, but the settings in {file} say {settings.data_dir}.",
            rule="settings",
            hint="Leave --data-dir out, or give another settings file with --config.",
        )
    missing = [*_missing_key(settings), *_missing_permissions(settings, admin)]
    if missing:
        raise RequestInvalid(
            f"The settings in {file} are not complete: {'; '.join(says for says, _ in missing)}. "
            "Nothing was created.",
            rule="init",
            hint=f"{' '.join(hint for _, hint in missing)} Then run `lakewarden init` again.",
        )
    return settings


def _missing_key(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the problem and the next step if the settings name no key that signs the audit log."""
    if settings.audit.key_file is None:
        yield (
            "audit.key_file is not set, so nothing signs the audit log",
            f"Set key_file = {_quoted(settings.data_dir / _AUDIT_KEY)} below [audit].",
        )


def _missing_permissions(settings: Settings, admin: Principal) -> Iterator[tuple[str, str]]:
    """Yield the problem and the next step if the administrator of a new catalog has no permissions."""
    stored, is_used = _there(settings)
    if is_used or (stored.version == EMPTY.version and not settings.policies):
        return
    documents = read_documents(settings.policies) if settings.policies else stored.contents(*OF_POLICIES)
    if not _is_administrator(documents, settings, admin):
        yield (
            f"no policy grants {admin.name} the admin permission on service:{settings.catalog.name}",
            "Grant it in the files that `policies` names, or leave `policies` out: init then adds a policy."
            if settings.policies
            else "Grant it with `lakewarden policy put`.",
        )


def _is_administrator(documents: Mapping[str, bytes], settings: Settings, admin: Principal) -> bool:
    (request,) = required("admin.policies.change", On.service(admin, settings.catalog.name))
    return bool(PolicySet.parse(documents).decide(request, datetime.now(UTC)))


def _there(settings: Settings) -> tuple[StoredSet, bool]:
    """Return the stored policies, and whether users have tokens: then init grants no permission."""
    engine = open_database(settings.database.url)
    try:
        migrate.check(engine)
    except StateUnavailable:
        return EMPTY, False
    else:
        stored = PolicyDocuments(engine, settings.catalog.name).current()
        return stored, any(info.kind == "user" for info in TokenStore(engine).list())
    finally:
        engine.dispose()


def _quoted(path: Path) -> str:
    return json.dumps(str(path), ensure_ascii=False)


def _settings_text(data_dir: Path) -> str:
    # A JSON string without surrogate pairs is a TOML string.
    return _SETTINGS.format(
        data_dir=_quoted(data_dir),
        audit_key=_quoted(data_dir / _AUDIT_KEY),
    )


def _make_keys(settings: Settings, say: Say) -> None:
    """Create the keystore of the local KMS, its root key, and the default master key."""
    if settings.kms.kind != "local":
        wanted = settings.kms.default_master_key_id
        say(f"The master keys are in the KMS {settings.kms.kind!r}. Create the master key {wanted} there.")
        return
    options = local_kms_options(settings.kms)
    if options.keystore.exists():
        kms = open_local_kms(settings)
        say(f"Kept the existing keystore {options.keystore}.")
    else:
        _make_directory(options.keystore.parent, 0o700)
        kms = LocalKms.create(options.keystore, _new_root(options, say))
        say(f"Created the keystore {options.keystore}. It is not for production.")
    wanted = settings.kms.default_master_key_id
    if all(info.id != wanted for info in kms.list_master_keys()):
        kms.create_master_key(wanted)
        say(f"Created the master key {wanted}.")


def _new_root(options: LocalKmsOptions, say: Say) -> RootKeySource:
    """Return the root key source of a new keystore: the passphrase in the settings, or a key file."""
    key_file = options.key_file
    if key_file is None:
        passphrase = options.passphrase.get_secret_value() if options.passphrase else ""
        return Passphrase(SecretBytes(passphrase.encode("utf-8")))
    if key_file.exists():
        return KeyFile(key_file)
    _make_directory(key_file.parent, 0o700)
    root = KeyFile.create(key_file)
    say(f"Created the key file {key_file} with mode 0600.")
    return root


def _make_database(settings: Settings, say: Say) -> None:
    engine = open_database(settings.database.url)
    try:
        migrate.upgrade(engine)
    finally:
        engine.dispose()
    say("The database has this release's schema.")


def _make_trail(settings: Settings, say: Say) -> None:
    """Create the key of the audit log, and the first checkpoint."""
    key_file = settings.audit.key_file
    if key_file is None:
        raise ValueError("settings without a key of the audit trail were refused before")
    if not key_file.exists():
        _make_directory(key_file.parent, 0o700)
        KeyFile.create(key_file)
        say(f"Created the signing key of the audit log, {key_file}, with mode 0600.")
    with open_state(settings) as state:
        Checkpointer(state, Signer(key_file), lambda: int(time.time() * 1000), 0).begin("init")


def _make_policies(settings: Settings, admin: Principal, say: Say) -> None:
    """Apply the policy files of the settings; without any, add the first administrator's policy."""
    with open_state(settings) as engine:
        documents = PolicyDocuments(engine, settings.catalog.name)
        stored = documents.current()
        edits = PolicyFiles(settings.policies, settings.encryption_rules).edits(stored)
        if stored.version == EMPTY.version and not settings.policies:
            content = json.dumps({"policies": _admin_policies(settings, admin.name)}, indent=2)
            edits += (Edit(DocumentId(Kind.RANGER, "admin"), content.encode("utf-8"), None),)
        if edits:
            Store(documents, engine, settings, calling(None)).make(edits, dry_run=False, force=False)
            stored = documents.current()
    said = ", ".join(str(each.id) for each in edits)
    say(f"Changed the policy documents: {said}." if edits else "Kept the policies.")
    if not _is_administrator(stored.contents(*OF_POLICIES), settings, admin):
        say(
            f"{admin.name} is not an administrator: no policy grants {admin.name} the admin permission on "
            f"service:{settings.catalog.name}. Grant it with `lakewarden policy put`."
        )


def _admin_policies(settings: Settings, admin: str) -> list[dict[str, object]]:
    everything = {"values": ["*"]}
    below_warehouse = {"values": [settings.warehouse], "isRecursive": True}
    grants = {
        "databases, tables and columns": (
            {"database": everything, "table": everything, "column": everything},
            ["all"],
        ),
        "storage below the warehouse": (
            {"storage-type": {"values": ["iceberg"]}, "storage-url": below_warehouse},
            ["rwstorage"],
        ),
        "master keys": ({"key": everything}, ["all"]),
        "the service": ({"service": {"values": [settings.catalog.name]}}, ["admin", "audit"]),
    }
    return [
        {
            "name": f"administrator: {name}",
            "service": settings.catalog.name,
            "resources": resources,
            "policyItems": [
                {"users": [admin], "accesses": [{"type": access, "isAllowed": True} for access in accesses]}
            ],
        }
        for name, (resources, accesses) in grants.items()
    ]


def _make_directory(path: Path, mode: int) -> None:
    """Create a directory in which this user can create files."""
    with _creating(path):
        path.mkdir(mode=mode, parents=True, exist_ok=True)
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _create(path: Path, text: str, mode: int) -> None:
    """Write a new file; a file that was created meanwhile is not overwritten."""
    with _creating(path), path.open("x", encoding="utf-8") as file:
        file.write(text)
        path.chmod(mode)


@contextmanager
def _creating(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        raise _cannot_create(path, failure) from failure


def _cannot_create(path: Path, failure: OSError) -> LakewardenError:
    return StateUnavailable(
        f"{path} cannot be created or written: {failure.strerror}.",
        rule="init",
        hint="Run the command as the user of the service, choose another directory with --data-dir or "
        "--config, or change its permissions.",
    )
