"""The options of the built-in KMS back ends: ``[kms.options]``.

- Secrets mask themselves in `repr`, and no error repeats a value.
- A KMS elsewhere is reached over TLS; plain HTTP is for this machine alone.

This module imports no back end.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    WithJsonSchema,
    model_validator,
)

from catalog.base.addresses import is_private_way

#: The types of an option of a back end from an installed package.
OptionValue = str | int | float | bool | tuple[str, ...]

#: A single attempt ends before the time-out in `resilient`.
_LONGEST_S: Final = 4.0
_HOST: Final = "[A-Za-z0-9][A-Za-z0-9.-]{0,252}"
_HADOOP_URL: Final = re.compile(
    rf"kms://(https?)@({_HOST}(?:;{_HOST}){{0,15}})(:[0-9]{{1,5}})?((?:/[A-Za-z0-9_.-]+)*/?)"
)


def listed(value: object) -> object:
    """Take a single text for a list of one."""
    return [value] if isinstance(value, str) else value


def parts_of(url: str, example: str) -> SplitResult:
    """Return the parts of a URL that has a host, and neither user nor password.

    Raises:
        ValueError: it is another one; the error shows the example.
    """
    parts = urlsplit(url)
    if not parts.hostname or parts.username is not None or parts.password is not None:
        raise ValueError(f"give a URL such as {example}, without user and password")
    if parts.port == 0 or not url.isprintable() or " " in url:
        raise ValueError("the URL has an invalid port or character")
    return parts


def require_private_way(url: str) -> None:
    """Refuse a URL on the way to which others can listen.

    Raises:
        ValueError: as it says.
    """
    if not is_private_way(url):
        raise ValueError("use https; plain http is permitted only for a loopback address")


def _endpoint(url: str) -> str:
    parts = parts_of(url, "https://kms.example:8200")
    if parts.query or parts.fragment:
        raise ValueError("the URL must not have a query or fragment")
    require_private_way(url)
    return url.rstrip("/")


def is_kms_address(url: str) -> bool:
    """Return whether Hadoop's clients accept a URL as the address of a KMS."""
    return _HADOOP_URL.fullmatch(url) is not None


def _hadoop_url(url: str) -> str:
    for address in _hadoop_addresses(url):
        require_private_way(address)
    return url


def _hadoop_addresses(url: str) -> tuple[str, ...]:
    found = _HADOOP_URL.fullmatch(url)
    if found is None:
        raise ValueError("give a URL such as kms://https@kms1.example;kms2.example:9600/kms")
    scheme, hosts, port, path = found.groups()
    return tuple(f"{scheme}://{host}{port or ''}{path.rstrip('/')}" for host in hosts.split(";"))


def _header_text(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("not a valid token: use visible ASCII characters only")
    return secret


def _ascii(text: str) -> str:
    if not text.isascii():
        raise ValueError("use ASCII letters, digits and _ . - /")
    return text


Endpoint = Annotated[str, AfterValidator(_endpoint), WithJsonSchema({"type": "string", "format": "url"})]
AbsolutePath = Annotated[Path, AfterValidator(Path.absolute)]
Seconds = Annotated[float, Field(gt=0, le=_LONGEST_S)]
HeaderText = Annotated[SecretStr, AfterValidator(_header_text)]
Account = Annotated[str, Field(pattern=r"^[0-9]{12}$")]
MountPath = Annotated[str, Field(pattern=r"^\w[\w.-]*(/\w[\w.-]*)*$", max_length=255), AfterValidator(_ascii)]


class BackendOptions(BaseModel):
    """The options of a back end."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class LocalKmsOptions(BackendOptions):
    """The local KMS: where its master keys are, and what decrypts them.

    Attributes:
        keystore: the file with the master keys.
        key_file: the key file that decrypts the keystore.
        passphrase: a passphrase of at least 8 bytes, instead of a key file.
    """

    keystore: AbsolutePath
    key_file: AbsolutePath | None = None
    passphrase: SecretStr | None = None

    @model_validator(mode="after")
    def _one_opener(self) -> Self:
        if self.key_file is not None and self.passphrase is not None:
            raise ValueError("give either key_file or passphrase, not both")
        return self


class AwsKmsOptions(BackendOptions):
    """Access to AWS KMS; the AWS defaults of the process apply to options that are not set.

    Attributes:
        region: the region of the master keys.
        endpoint: another endpoint than AWS's own for the region, such as one inside a VPC.
        accounts: accounts whose master keys tables can name by ARN. Without it, ARNs are refused.
        profile: a profile of the AWS configuration files.
        access_key_id: credentials, instead of those of the standard chain.
        secret_access_key: the secret of `access_key_id`.
        connect_timeout_s: time-out of a connection.
        request_timeout_s: time-out of an answer.
    """

    region: str | None = None
    endpoint: Endpoint | None = None
    accounts: Annotated[tuple[Account, ...], BeforeValidator(listed)] = ()
    profile: str | None = None
    access_key_id: str | None = None
    secret_access_key: SecretStr | None = None
    connect_timeout_s: Seconds = 2.0
    request_timeout_s: Seconds = 4.0

    @model_validator(mode="after")
    def _whole_key(self) -> Self:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("give access_key_id and secret_access_key together")
        if self.access_key_id is not None and self.profile is not None:
            raise ValueError("give either profile or access_key_id, not both")
        return self


class VaultKmsOptions(BackendOptions):
    """Access to the Transit engine of HashiCorp Vault or OpenBao.

    Attributes:
        url: address of the server: https, or a loopback address.
        mount: mount path of the Transit engine.
        namespace: the namespace, if the server has namespaces.
        token: a token. Give exactly one of `token`, `token_file` and `role_id`.
        token_file: a file with a token, such as the sink of an agent. It is read on each call.
        role_id: the role of an AppRole. The catalog logs in, and logs in again before the lease expires.
        secret_id: the secret of `role_id`, if the role needs one.
        auth_mount: mount path of AppRole.
        ca_file: certificate authorities of the server, instead of the public ones.
        connect_timeout_s: time-out of a connection.
        request_timeout_s: time-out of an answer.
    """

    url: Endpoint
    mount: MountPath = "transit"
    namespace: MountPath | None = None
    token: SecretStr | None = None
    token_file: AbsolutePath | None = None
    role_id: str | None = None
    secret_id: SecretStr | None = None
    auth_mount: MountPath = "approle"
    ca_file: AbsolutePath | None = None
    connect_timeout_s: Seconds = 2.0
    request_timeout_s: Seconds = 4.0

    @model_validator(mode="after")
    def _one_identity(self) -> Self:
        given = [each for each in (self.token, self.token_file, self.role_id) if each is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of token, token_file and role_id")
        if self.secret_id is not None and self.role_id is None:
            raise ValueError("give secret_id only together with role_id")
        return self


class HadoopKmsOptions(BackendOptions):
    """Access to a Hadoop or Ranger KMS.

    Attributes:
        url: the address in Hadoop's form, `kms://https@kms1.example;kms2.example:9600/kms`. The catalog tries
            several hosts, on one port, in turn.
        token: a token for `Authorization: Bearer`, of a gateway such as Knox or of another catalog's KMS
            endpoint. Give exactly one of `token`, `delegation_token` and `user`.
        delegation_token: a delegation token of the KMS in its text form.
        user: the user name of the catalog, for a KMS with simple authentication.
        ca_file: certificate authorities of the hosts, instead of the public ones.
        connect_timeout_s: time-out of a connection to one host.
        request_timeout_s: time-out of an answer from all hosts together.
    """

    url: Annotated[str, AfterValidator(_hadoop_url)]
    token: HeaderText | None = None
    delegation_token: HeaderText | None = None
    user: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@/-]{0,127}$")] | None = None
    ca_file: AbsolutePath | None = None
    connect_timeout_s: Seconds = 1.0
    request_timeout_s: Seconds = 4.0

    @model_validator(mode="after")
    def _one_identity(self) -> Self:
        given = [each for each in (self.token, self.delegation_token, self.user) if each is not None]
        if len(given) != 1:
            raise ValueError("give only one of token, delegation_token and user")
        return self

    def addresses(self) -> tuple[str, ...]:
        """Each host's address, without the version of the protocol."""
        return _hadoop_addresses(self.url)
