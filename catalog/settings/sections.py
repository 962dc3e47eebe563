"""The sections of the settings: each is a table of the TOML file."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    WithJsonSchema,
    model_validator,
)

from catalog.settings.kms_options import AbsolutePath, Endpoint
from policy.errors import LocationInvalid
from policy.location.location import Location

_MIB: Final = 1024 * 1024
_ORIGIN: Final = re.compile(r"https?://[a-z0-9.:\[\]-]+")


def _location(text: str) -> str:
    try:
        return Location.parse(text).canonical
    except LocationInvalid as error:
        raise ValueError(error.message) from error


LocationText = Annotated[
    str, AfterValidator(_location), WithJsonSchema({"type": "string", "format": "location"})
]


class Section(BaseModel):
    """A table of the settings file: frozen, without keys that are not known, and silent about values."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class CatalogSettings(Section):
    """The catalog's public name.

    Attributes:
        name: the catalog's name. Keys are bound to it, so do not change it.
    """

    name: str = Field(default="lakewarden", min_length=1, max_length=255)


class AuditSettings(Section):
    """The audit log: signing key, copies, and limits of space and time.

    Attributes:
        key_file: the key file that signs checkpoints, outside of the database, the same for all replicas.
            Without it they are not signed. `lakewarden init` makes one.
        checkpoint_s: seconds from one checkpoint to the next.
        checkpoint_file: a file to which checkpoints are appended as lines of JSON.
        stream_file: a file to which records are appended as lines of JSON.
        stream_format: the form of these lines: that of the audit log, CloudEvents, or OCSF.
        refusal_bytes: bytes that records of refusals can use in the database. Later refusals are only
            counted.
        keep_days: records younger than that are never pruned.
        archive: the location to which old records are moved, `file://` or `s3://`, outside of the warehouse.
            Without it they stay in the database.
        archive_after_days: days that records stay in the database before they are archived.
        archive_every_s: seconds from one look for records to archive to the next.
    """

    key_file: AbsolutePath | None = None
    checkpoint_s: PositiveFloat = 60.0
    checkpoint_file: AbsolutePath | None = None
    stream_file: AbsolutePath | None = None
    stream_format: Literal["json", "cloudevents", "ocsf"] = "json"
    refusal_bytes: PositiveInt = 1024 * _MIB
    keep_days: int = Field(default=30, ge=0, le=36_500)
    archive: LocationText | None = None
    archive_after_days: int = Field(default=7, ge=1, le=36_500)
    archive_every_s: float = Field(default=3600.0, ge=60, le=30 * 86_400)

    @model_validator(mode="after")
    def _a_format_has_a_file(self) -> Self:
        if self.stream_file is None and "stream_format" in self.model_fields_set:
            raise ValueError("stream_format needs stream_file, the file of the records")
        return self

    @model_validator(mode="after")
    def _an_archive_has_a_place(self) -> Self:
        given = sorted({"archive_after_days", "archive_every_s"} & self.model_fields_set)
        if self.archive is None and given:
            raise ValueError(f"{given[0]} needs archive, the location of the archive")
        return self


class DatabaseSettings(Section):
    """The database that holds the governed state.

    Attributes:
        url: `sqlite:////ABSOLUTE/PATH.db` or `postgresql://USER:PASSWORD@HOST/DATABASE`.
    """

    url: SecretStr


class StsSettings(Section):
    """Storage credentials of a single table for standard clients, by AssumeRole of AWS STS.

    Attributes:
        role_arn: the role that the catalog assumes. It needs permission on the warehouse for what tables
            need.
        external_id: the external id that the role's trust policy requires.
        duration_s: seconds for which a credential is valid.
        endpoint: URL of the STS of a store other than Amazon's: https, or a loopback address.
        policy_variables: whether the store knows the variables `${*}`, `${?}` and `${$}` in policies: `true`
            for Amazon's by default, `false` for others. Without them, locations with these characters get no
            credential.
    """

    role_arn: str = Field(pattern=r"^arn:[a-z0-9-]{1,32}:iam::([0-9]{12})?:role/[!-~]{1,512}$")
    external_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_+=,.@:/-]{2,1224}$")
    duration_s: int = Field(default=900, ge=900, le=3600)
    endpoint: Endpoint | None = None
    policy_variables: bool | None = None


class S3Settings(Section):
    """Access to S3; the AWS defaults of the process apply to settings that are not set.

    Attributes:
        endpoint: URL of a store other than Amazon's.
        region: region of the buckets.
        access_key_id: with `secret_access_key`, fixed credentials of the catalog.
        secret_access_key: the secret of `access_key_id`.
        connect_timeout_s: seconds until an attempt to connect is given up.
        request_timeout_s: seconds without a byte until a request is given up.
        signing: whether the catalog signs single requests of standard clients to S3. Needs `region`, and the
            extra `aws`.
        sts: storage credentials for standard clients; without it, none is issued.
    """

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: SecretStr | None = None
    connect_timeout_s: PositiveFloat = 5.0
    request_timeout_s: PositiveFloat = 5.0
    signing: bool = False
    sts: StsSettings | None = None

    @model_validator(mode="after")
    def _whole_key(self) -> Self:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("give access_key_id and secret_access_key together")
        return self

    @model_validator(mode="after")
    def _one_store(self) -> Self:
        if self.sts is not None and (self.endpoint is None) != (self.sts.endpoint is None):
            raise ValueError("give endpoint and sts.endpoint together: both are those of one store")
        if self.sts is not None and self.region is None:
            raise ValueError("give region: clients sign requests for it")
        return self

    @model_validator(mode="after")
    def _what_signing_needs(self) -> Self:
        if self.signing and self.region is None:
            raise ValueError("give region, since signatures are for a region")
        if self.signing and self.endpoint is not None and not _ORIGIN.fullmatch(self.endpoint):
            raise ValueError("signing needs an endpoint without a path, and in small letters")
        return self


class TlsSettings(Section):
    """TLS in the service.

    Attributes:
        certificate_file: the chain of certificates, PEM, the service's own first.
        key_file: its private key, PEM, without a password.
    """

    certificate_file: AbsolutePath
    key_file: AbsolutePath


class HttpSettings(Section):
    """The HTTP server: address, limits per client, and how long it keeps answers for repeated requests.

    Attributes:
        host: the address to listen on.
        port: the port; 0 takes a free one.
        tls: the certificate; without it the service speaks plain HTTP.
        workers: processes that serve; with 1, one process does everything.
        max_body_bytes: the largest request body.
        max_bodies_bytes: total size of all request bodies in progress. One user can use half of it, or one
            body.
        max_json_elements: values, names and containers in a body with a schema, snapshot or filter.
        max_bulk_json_elements: the same in a body with data files or policies.
        max_head_bytes: request line and header fields.
        max_connections: open connections.
        max_connections_per_address: open connections of one network address.
        head_timeout_s: seconds within which a request's head must arrive.
        body_timeout_s: seconds within which a request's body must arrive.
        idle_timeout_s: seconds after which a connection without a request is closed.
        answer_timeout_s: seconds for which a client can leave an answer unread.
        idempotency_lifetime_s: seconds for which the outcome of a request with an idempotency key is kept.
    """

    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8181, ge=0, le=65535)
    tls: TlsSettings | None = None
    workers: int = Field(default=1, ge=1, le=64)
    max_body_bytes: PositiveInt = 32 * _MIB
    max_bodies_bytes: PositiveInt = 256 * _MIB
    max_json_elements: PositiveInt = 200_000
    max_bulk_json_elements: PositiveInt = 4_000_000
    max_head_bytes: int = Field(default=32 * 1024, ge=1024)
    max_connections: PositiveInt = 1000
    max_connections_per_address: PositiveInt = 250
    head_timeout_s: PositiveFloat = 10.0
    body_timeout_s: PositiveFloat = 60.0
    idle_timeout_s: PositiveFloat = 30.0
    answer_timeout_s: PositiveFloat = 120.0
    idempotency_lifetime_s: int = Field(default=1800, ge=60, le=24 * 3600)


class PlanningSettings(Section):
    """Plans of scans for standard clients.

    Attributes:
        mode: who plans scans by default: ``server``, the catalog, or ``client``. A table can say otherwise.
        answer_files: the number of data files from which a plan is answered in parts.
        kept_s: seconds for which a plan that is answered in parts can be fetched.
    """

    mode: Literal["client", "server"] = "client"
    answer_files: PositiveInt = 10_000
    kept_s: int = Field(default=3600, ge=60, le=24 * 3600)


class LogSettings(Section):
    """The log of the service, on standard error.

    Attributes:
        format: text, or JSON lines.
        level: the minimum level that is logged. Each request is a line of level `info`. Each call to the
            database, a KMS, storage or an identity provider is a line of level `debug`.
    """

    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"


class TelemetrySettings(Section):
    """Traces and metrics by OpenTelemetry's protocol, over HTTP. Needs the extra `otel`.

    Attributes:
        traces: whether spans of requests and of their calls are sent.
        metrics: whether the metrics of `/metrics` are sent.
        endpoint: the collector, such as `http://127.0.0.1:4318`; by default what the standard variables of
            OpenTelemetry say. Credentials are in `OTEL_EXPORTER_OTLP_HEADERS`.
    """

    traces: bool = False
    metrics: bool = False
    endpoint: str | None = Field(default=None, pattern=r"^https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._/-]*)?$")


class KmsEndpointSettings(Section):
    """The KMS endpoint for Hadoop and ORC clients, `/kms/v1`.

    Attributes:
        enabled: whether the service has it.
        pseudo: whether users of this host authenticate with their name alone. The service must then listen on
            loopback.
        master_key_id: the master key that wraps its new keys; that of tables by default.
    """

    enabled: bool = False
    pseudo: bool = False
    master_key_id: str | None = Field(default=None, min_length=1, max_length=255)


class CacheSettings(Section):
    """The cache of decoded manifests, in memory and on disk.

    Attributes:
        manifest_bytes: memory for manifests that are not on disk.
        directory: the directory on disk: about 1 KB a data file, on a local disk. Processes of one catalog
            can share it. If other users can write it, the catalog does not start. Files with other names in
            it are left alone.
        directory_bytes: the size of the directory. Each process can exceed it by a sixteenth. 0 keeps nothing
            on disk.
    """

    manifest_bytes: int = Field(default=256 * _MIB, ge=0)
    directory: AbsolutePath | None = None
    directory_bytes: int = Field(default=8192 * _MIB, ge=0)


class LimitSettings(Section):
    """The largest metadata that is parsed, and the concurrent storage requests of commits.

    Attributes:
        metadata_bytes: the largest metadata.json that is opened.
        manifest_list_bytes: the largest manifest list.
        manifest_bytes: the largest manifest.
        manifest_decompressed_bytes: the largest manifest after decompression.
        manifest_entries: the maximum number of entries of a manifest.
        added_file_requests: maximum number of concurrent storage requests for files that commits add, for all
            commits together.
    """

    metadata_bytes: PositiveInt = 256 * _MIB
    manifest_list_bytes: PositiveInt = 256 * _MIB
    manifest_bytes: PositiveInt = 256 * _MIB
    manifest_decompressed_bytes: PositiveInt = 1024 * _MIB
    manifest_entries: PositiveInt = 2_000_000
    added_file_requests: PositiveInt = 16
