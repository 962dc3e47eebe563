"""The settings of a Lakewarden process, in one frozen object.

- Two sources: a TOML file, and environment variables, which win. The environment is an argument.
- `LAKEWARDEN_HTTP__PORT=8282` sets `port` of `[http]`: names in any case, levels separated by two
  underscores.
  A list in a variable is a JSON array, or a single item.
- The value of a variable can stand in a private file instead (`catalog.settings.secret_files`).
- A key or variable that is not known is refused with its name and source: a mistyped setting must not be
  silent.
- Passwords and secret keys mask themselves in `repr`, and no error repeats a value.
- Relative paths are relative to the working directory.

A file with everything that is usually set::

    data_dir = "/var/lib/lakewarden"
    warehouse = "s3://lake/warehouse"
    unsealed_metadata = "forbid"

    [catalog]
    name = "prod"

    [database]
    url = "postgresql://lakewarden:…@db.example/lakewarden"

    [kms]
    kind = "local"
    default_master_key_id = "lake"

    [kms.options]
    keystore = "/var/lib/lakewarden/keystore.json"
    key_file = "/etc/lakewarden/keystore.key"

    [s3]
    endpoint = "https://s3.example"
    region = "eu-central-1"

    [http]
    host = "0.0.0.0"
    port = 8181
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import (
    BeforeValidator,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from catalog.base.addresses import is_this_machine
from catalog.settings.console import ConsoleSettings
from catalog.settings.identity import IdentitySettings
from catalog.settings.kms import KINDS, KMS_NAME, KmsSettings, OtherKms
from catalog.settings.kms_options import AbsolutePath, listed
from catalog.settings.ranger import RangerSources
from catalog.settings.secret_files import SECRETS_DIRECTORY, with_secrets
from catalog.settings.sections import (
    AuditSettings,
    CacheSettings,
    CatalogSettings,
    DatabaseSettings,
    HttpSettings,
    KmsEndpointSettings,
    LimitSettings,
    LocationText,
    LogSettings,
    PlanningSettings,
    S3Settings,
    TelemetrySettings,
)
from policy.encryption.specification import StandardClients
from policy.errors import RequestInvalid
from policy.location.location import Location

ENVIRONMENT_PREFIX: Final = "LAKEWARDEN_"
#: Age in seconds before garbage collection deletes a file; every write is shorter.
MIN_AGE_OF_GARBAGE_S: Final = 3 * 24 * 3600
DEFAULT_FILE: Final = Path("lakewarden.toml")

#: Variables with the prefix that are not settings of the service: the settings file, the directory of
#: secrets, the tokens of clients, of Spark's user and of an engine, the authorities of clients.
NOT_SETTINGS: Final = frozenset(
    {
        "LAKEWARDEN_CA_FILE",
        "LAKEWARDEN_CONFIG",
        "LAKEWARDEN_ENGINE_TOKEN_FILE",
        "LAKEWARDEN_TOKEN",
        "LAKEWARDEN_TOKEN_FILE",
        SECRETS_DIRECTORY,
    }
)

_DEFAULT_DATA_DIR: Final = Path("lakewarden-data")

_Tree: TypeAlias = dict[str, Any]


class Settings(BaseSettings):
    """All settings; create with `Settings.load`.

    Attributes:
        data_dir: the directory of the embedded database, the keystore and the cache.
        warehouse: the location below which new tables are created, `file://` or `s3://`.
        catalog: the catalog as clients see it.
        database: the governed state.
        policies: policy documents, and directories of them, that are applied to the embedded database when
            the catalog is opened. They are refused with PostgreSQL.
        encryption_rules: the same for documents of rules for encryption.
        policies_poll_s: seconds between two checks for changed policies.
        ranger: services of Ranger Admins whose policies are put in force, by a name for each.
        kms: the key management service; what it takes depends on its kind.
        other_kms: further key management services, by name, that keys move to or from. They have the
            settings of `kms`, without `name`, `default_master_key_id` and `pek_ttl_s`.
        s3: access to S3.
        http: the service.
        planning: plans of scans for standard clients.
        log: the log of the service.
        telemetry: traces and metrics for OpenTelemetry.
        identity: the identity providers whose access tokens are accepted.
        console: the console for browsers.
        kms_endpoint: the KMS endpoint for standard Hadoop and ORC clients.
        cache: the cache of decoded manifests.
        limits: the largest metadata that is opened, and requests for files that commits add.
        audit: the audit trail.
        plan_valid_s: seconds within which a scan must start after its plan. A DataFrame that runs again
            later is planned again.
        write_ttl_s: seconds after which an unfinished write expires and can be cleaned up.
        staged_ttl_s: seconds for which a staged table keeps its identity.
        key_destroy_wait_s: seconds before a key that is scheduled for destruction is destroyed. Until then it
            can be enabled again.
        unsealed_metadata: whether namespaces without the property allow metadata that did not come through
            the catalog. Without the setting, the database decides: `forbid`, or `allow` in one in which an
            older release created tables.
        standard_clients: whether Iceberg clients without Lakewarden can load encrypted tables, for tables and
            namespaces without the property.
    """

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    data_dir: AbsolutePath = Field(default=_DEFAULT_DATA_DIR, validate_default=True)
    warehouse: LocationText
    catalog: CatalogSettings = CatalogSettings()
    database: DatabaseSettings
    policies: Annotated[tuple[AbsolutePath, ...], BeforeValidator(listed)] = ()
    encryption_rules: Annotated[tuple[AbsolutePath, ...], BeforeValidator(listed)] = ()
    policies_poll_s: Annotated[float, Field(gt=0, le=30)] = 5.0
    ranger: RangerSources = {}
    kms: KmsSettings
    other_kms: dict[Annotated[str, Field(pattern=KMS_NAME)], OtherKms] = {}
    s3: S3Settings = S3Settings()
    http: HttpSettings = HttpSettings()
    planning: PlanningSettings = PlanningSettings()
    log: LogSettings = LogSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    identity: IdentitySettings = IdentitySettings()
    console: ConsoleSettings = ConsoleSettings()
    kms_endpoint: KmsEndpointSettings = KmsEndpointSettings()
    cache: CacheSettings = CacheSettings()
    limits: LimitSettings = LimitSettings()
    audit: AuditSettings = AuditSettings()
    plan_valid_s: float = Field(default=20.0, gt=0, le=20)
    write_ttl_s: Annotated[int, Field(gt=0, lt=MIN_AGE_OF_GARBAGE_S)] = 24 * 3600
    staged_ttl_s: Annotated[int, Field(gt=0, lt=MIN_AGE_OF_GARBAGE_S)] = 3600
    key_destroy_wait_s: int = Field(default=7 * 24 * 3600, ge=0, le=365 * 24 * 3600)
    unsealed_metadata: Literal["allow", "forbid"] | None = None
    standard_clients: StandardClients = StandardClients.REFUSE

    @property
    def plan_valid_ms(self) -> int:
        """Milliseconds for which a scan may be begun by a plan."""
        return round(self.plan_valid_s * 1000)

    @model_validator(mode="after")
    def _each_kms_has_a_name(self) -> Self:
        if (main := self.kms.name or self.kms.kind) in self.other_kms:
            raise ValueError(
                f"other_kms.{main} has the name of the main KMS; choose another, or set kms.name"
            )
        return self

    @model_validator(mode="after")
    def _the_archive_is_outside_of_the_warehouse(self) -> Self:
        archive = self.audit.archive
        if archive is not None and Location.parse(archive).overlaps(Location.parse(self.warehouse)):
            raise ValueError("audit.archive must be outside of the warehouse, and not contain it")
        return self

    @model_validator(mode="after")
    def _names_are_believed_on_loopback(self) -> Self:
        if self.kms_endpoint.pseudo and not is_this_machine(self.http.host):
            raise ValueError("kms_endpoint.pseudo needs http.host to be a loopback address")
        return self

    @model_validator(mode="after")
    def _a_client_of_the_console_has_a_console(self) -> Self:
        if self.console.url is None and (names := self.identity.console_issuers):
            raise ValueError(f"identity.issuers.{names[0]}.console needs console.url, the console's address")
        return self

    @model_validator(mode="after")
    def _files_are_applied_to_the_embedded_database(self) -> Self:
        # A replica that starts with older files would put policies back in force that were replaced.
        embedded = self.database.url.get_secret_value().startswith("sqlite")
        if (self.policies or self.encryption_rules) and not embedded:
            raise ValueError(
                "policies and encryption_rules are for the embedded database; "
                "leave them out and run `lakewarden policy apply`"
            )
        return self

    @classmethod
    def load(cls, path: Path | None, environ: Mapping[str, str]) -> Settings:
        """Read the settings.

        Args:
            path: the TOML file; by default the one that `LAKEWARDEN_CONFIG` names, else `lakewarden.toml` in
                the working directory if there is one.
            environ: the environment variables.

        Raises:
            RequestInvalid: the file cannot be read, or a setting is unknown or has a wrong value.
        """
        file = path or _default_file(environ)
        from_file = {} if file is None else _read_file(file)
        from_environment, names = _read_environment(with_secrets(environ, _is_setting))
        _add_defaults(tree := _merged(from_file, from_environment))
        try:
            return cls(**tree)
        except ValidationError as error:
            # The cause holds the values, including secrets.
            raise _refusal(error, names, file) from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use only what `load` passes in, never the process environment."""
        return (init_settings,)


def _default_file(environ: Mapping[str, str]) -> Path | None:
    named = environ.get("LAKEWARDEN_CONFIG")
    if named:
        return Path(named)
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


def _read_file(path: Path) -> _Tree:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        reason = f"it cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    except tomllib.TOMLDecodeError as error:
        reason = f"it is not TOML: {error}"
    raise RequestInvalid(
        f"The settings file {path} is not valid: {reason}.",
        rule="settings",
        hint="Correct the file, then try again.",
    )


def _read_environment(environ: Mapping[str, str]) -> tuple[_Tree, dict[tuple[str, ...], str]]:
    """Return the variables as a tree, and the variable of each setting."""
    tree: _Tree = {}
    names: dict[tuple[str, ...], str] = {}
    for name in sorted(environ):
        if not _is_setting(name):
            continue
        keys = tuple(name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"))
        if keys in names or not _put(tree, keys, _value(environ[name])):
            raise RequestInvalid(
                f"The environment variable {name} conflicts with another variable for the same setting.",
                rule="settings",
                hint="Unset one of the two variables.",
            )
        names[keys] = name
    return tree, names


def _is_setting(variable: str) -> bool:
    return variable.startswith(ENVIRONMENT_PREFIX) and variable not in NOT_SETTINGS


def _value(text: str) -> object:
    """A JSON array as a list; anything else as it is."""
    if not text.startswith("["):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _put(tree: _Tree, keys: tuple[str, ...], value: object) -> bool:
    for key in keys[:-1]:
        tree = tree.setdefault(key, {})
        if not isinstance(tree, dict):
            return False
    return tree.setdefault(keys[-1], value) is value


def _merged(below: _Tree, above: _Tree) -> _Tree:
    """Merge two trees; `above` wins."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        result[key] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return result


def _add_defaults(tree: _Tree) -> None:
    """Add the defaults that are in the data directory."""
    data_dir = tree.get("data_dir", _DEFAULT_DATA_DIR)
    if not isinstance(data_dir, str | Path):
        return
    base = Path(data_dir).absolute()
    tree.setdefault("warehouse", f"file://{base}/warehouse")
    _set_default(tree, ("database", "url"), f"sqlite:///{base}/lakewarden.db")
    _set_default(tree, ("cache", "directory"), base / "manifest-cache")
    _set_default(tree, ("kms", "kind"), "local")
    if not isinstance(tree["kms"], dict) or tree["kms"]["kind"] != "local":
        return
    _set_default(tree, ("kms", "options", "keystore"), base / "keystore.json")
    options = tree["kms"].get("options")
    if isinstance(options, dict) and "passphrase" not in options:
        options.setdefault("key_file", base / "keystore.key")


def _set_default(tree: _Tree, keys: tuple[str, ...], value: object) -> None:
    """Set a value that is missing; what is not a section stays as it is and is refused by validation."""
    for key in keys[:-1]:
        section = tree.setdefault(key, {})
        if not isinstance(section, dict):
            return
        # The tree can share sections with the parsed file.
        tree[key] = tree = dict(section)
    tree.setdefault(keys[-1], value)


def _refusal(
    error: ValidationError, names: Mapping[tuple[str, ...], str], file: Path | None
) -> RequestInvalid:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    keys = _without_kind(tuple(str(part) for part in first["loc"]))
    said = first["msg"].removeprefix("Value error, ").rstrip(".")
    if first["type"] == "extra_forbidden":
        said = "there is no such setting"
    return RequestInvalid(
        f"The setting {'.'.join(keys)} ({_source(keys, names, file)}) is not valid: {said}.",
        rule="settings",
        hint="Correct or remove it. docs/settings.md lists the settings.",
    )


def _without_kind(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys as in the file: validation adds the kind of KMS between them."""
    at = 1 if keys[:1] == ("kms",) else 2 if keys[:1] == ("other_kms",) else len(keys)
    return keys[:at] + keys[at + 1 :] if keys[at : at + 1] and keys[at] in KINDS else keys


def _source(keys: tuple[str, ...], names: Mapping[tuple[str, ...], str], file: Path | None) -> str:
    """Return the variable that sets the setting, its parent or a child; else the file."""
    for known, name in names.items():
        if known[: len(keys)] == keys[: len(known)]:
            return name
    return str(file) if file is not None else "default"
