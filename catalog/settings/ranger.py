"""The settings of Ranger Admins that policies come from: ``[ranger.NAME]`` for each of them."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from catalog.settings.kms_options import AbsolutePath, Endpoint
from catalog.settings.sections import Section

#: The name of a source, which its documents carry: `ranger.NAME`.
SOURCE_NAME: Final = r"^[a-z0-9][a-z0-9_-]{0,31}$"


class RangerSettings(Section):
    """One service of a Ranger Admin, whose policies are put in force.

    Attributes:
        url: the address of Ranger Admin: https, or a loopback address.
        service: the name of the service in Ranger.
        user: the user for HTTP basic authentication.
        password_file: a private file (mode 0600) with the password. It is read again for each request.
        kerberos: whether to authenticate with Kerberos (SPNEGO), by the credentials of the process. Needs the
            extra `kerberos`.
        ca_file: the authorities that Ranger's certificate is checked against; by default those of the system.
        certificate_file: a client certificate, as PEM.
        key_file: its private key, as PEM without a passphrase.
        roles: whether roles are downloaded.
        tags: whether the tags of the service's resources are downloaded. Required if policies on tags deny,
            mask or filter.
        users: whether attributes of users and groups are downloaded.
        partial: whether policies are put in force although some, which only grant, are refused.
        poll_s: seconds from one download to the next.
        max_age_s: seconds for which policies are in force after Ranger last confirmed them.
        timeout_s: seconds for one download.
    """

    url: Endpoint
    service: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_ .-]{0,254}$")
    user: str | None = Field(default=None, pattern=r"^[!-9;-~]{1,255}$")
    password_file: AbsolutePath | None = None
    kerberos: bool = False
    ca_file: AbsolutePath | None = None
    certificate_file: AbsolutePath | None = None
    key_file: AbsolutePath | None = None
    roles: bool = True
    tags: bool = False
    users: bool = False
    partial: bool = False
    poll_s: float = Field(default=30.0, ge=1, le=300)
    max_age_s: float = Field(default=4 * 3600.0, ge=60, le=7 * 86_400)
    timeout_s: float = Field(default=20.0, gt=0, le=120)

    @property
    def is_authenticated(self) -> bool:
        """Return whether requests carry credentials of a user."""
        return self.kerberos or self.user is not None

    @model_validator(mode="after")
    def _whole_credentials(self) -> Self:
        if (self.user is None) != (self.password_file is None):
            raise ValueError("give user and password_file together")
        if self.user is not None and self.kerberos:
            raise ValueError("give either user and password_file, or kerberos, not both")
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("give certificate_file and key_file together")
        return self

    @model_validator(mode="after")
    def _policies_outlive_two_polls(self) -> Self:
        if self.max_age_s < 2 * (self.poll_s + self.timeout_s):
            raise ValueError("max_age_s must be at least twice poll_s and timeout_s together")
        return self


RangerSources = dict[Annotated[str, Field(pattern=SOURCE_NAME)], RangerSettings]
