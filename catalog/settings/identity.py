"""The settings of identity providers: ``[identity]``, and ``[identity.issuers.NAME]`` for each of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from catalog.settings.console import ConsoleClient
from catalog.settings.kms_options import AbsolutePath, Seconds, listed, parts_of, require_private_way
from catalog.settings.sections import Section

Algorithm: TypeAlias = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]

_ALGORITHMS: Final[tuple[Algorithm, ...]] = ("RS256", "PS256", "ES256", "ES384", "ES512", "EdDSA")
_NAME: Final = r"^[a-z0-9][a-z0-9_-]{0,31}$"


def provider_url(url: str) -> str:
    """Check an address of an identity provider.

    Raises:
        ValueError: it is no URL, has a password or a fragment, or others could listen on the way.
    """
    parts = parts_of(url, "https://login.example/keys")
    if parts.fragment or not url.isascii():
        raise ValueError("the URL must be ASCII, and must not have a fragment")
    require_private_way(url)
    return url


ProviderUrl = Annotated[
    str, AfterValidator(provider_url), WithJsonSchema({"type": "string", "format": "url"})
]
_Text = Annotated[str, Field(min_length=1, max_length=1000)]
_Texts = Annotated[tuple[_Text, ...], BeforeValidator(listed), Field(min_length=1, max_length=100)]
#: The name of a claim, or the names on the way to it in nested objects. A name is taken as it is: dots in it
#: have no meaning.
ClaimPath = Annotated[tuple[_Text, ...], BeforeValidator(listed), Field(min_length=1, max_length=10)]


class IssuerSettings(Section):
    """An identity provider whose access tokens are accepted.

    Attributes:
        issuer: the `iss` claim of its tokens, exactly.
        audience: values of which the claim `aud` must have one: what the provider calls this catalog.
        jwks_uri: the address of its public keys: https, or a loopback address. By default, what the discovery
            document at `ISSUER/.well-known/openid-configuration` says (OpenID Connect Discovery 1.0,
            section 4).
        ca_file: the authorities that its certificate is checked against, PEM; by default those of the system.
        token_file: a file with a bearer token for requests to the provider, as Kubernetes requires. It is
            read for each request.
        algorithms: the accepted signature algorithms.
        user_claim: the claim with the user's name.
        groups_claim: the claim with the user's groups; without it, tokens name no groups.
        roles_claim: the claim with the user's roles; without it, tokens name no roles.
        missing_groups: whether a token without one of these claims is refused, or stands for a user without
            groups or roles.
        names: `lower` takes names of users in lower case, for a provider to which `Ann` and `ann` are one
            user.
        prefix: text before each name of a user, group and role, with `:` or `/` at its end. No two issuers
            can have the same.
        required_claims: claims that a token must have, each with the accepted values.
        leeway_s: seconds by which the provider's clock can differ.
        refresh_s: seconds after which its keys are fetched again.
        keys_max_age_s: seconds for which its keys are used while it does not answer.
        timeout_s: seconds for a request to it.
        logout_audience: values of which the claim `aud` of a logout token must have one. Without it, logouts
            are not accepted. Needs `max_lifetime_s`.
        max_lifetime_s: maximum number of seconds after `iat` for which a token can be valid. Others, and
            tokens without `iat`, are refused.
        console: the client with which users log in to the console. Without it, they log in with tokens alone.
    """

    issuer: _Text
    audience: _Texts
    jwks_uri: ProviderUrl | None = None
    ca_file: AbsolutePath | None = None
    token_file: AbsolutePath | None = None
    algorithms: Annotated[tuple[Algorithm, ...], BeforeValidator(listed), Field(min_length=1)] = _ALGORITHMS
    user_claim: ClaimPath = ("sub",)
    groups_claim: ClaimPath | None = None
    roles_claim: ClaimPath | None = None
    missing_groups: Literal["refuse", "none"] = "refuse"
    names: Literal["exact", "lower"] = "exact"
    prefix: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,30}[:/])?$")
    required_claims: dict[_Text, _Texts] = Field(default_factory=dict)
    leeway_s: float = Field(default=60.0, ge=0, le=300)
    refresh_s: float = Field(default=300.0, ge=10, le=86_400)
    keys_max_age_s: float = Field(default=4 * 3600.0, ge=60, le=7 * 86_400)
    timeout_s: Seconds = 3.0
    logout_audience: _Texts | None = None
    max_lifetime_s: float | None = Field(default=None, ge=60, le=30 * 86_400)
    console: ConsoleClient | None = None

    @model_validator(mode="after")
    def _a_logout_ends_tokens_of_bounded_lifetime(self) -> Self:
        if self.logout_audience is not None and self.max_lifetime_s is None:
            raise ValueError("logout_audience needs max_lifetime_s: a logout is kept for that long")
        return self

    @model_validator(mode="after")
    def _the_console_asks_its_discovery_document(self) -> Self:
        if self.console is not None:
            try:
                provider_url(self.issuer)
            except ValueError as error:
                raise ValueError(f"console needs an issuer with a discovery document: {error}") from error
        return self

    @model_validator(mode="after")
    def _its_keys_can_be_found(self) -> Self:
        if self.jwks_uri is None:
            try:
                provider_url(self.issuer)
            except ValueError as error:
                raise ValueError(f"give jwks_uri, or an issuer with a discovery document: {error}") from error
        return self

    @model_validator(mode="after")
    def _keys_outlive_their_refreshment(self) -> Self:
        if self.keys_max_age_s < self.refresh_s:
            raise ValueError("keys_max_age_s must be at least refresh_s")
        return self


class IdentitySettings(Section):
    """Identity providers, beside the catalog's own tokens.

    Attributes:
        issuers: the identity providers, by a name for logs.
        claims_max_age_s: seconds for which groups and roles of a provider's last token count for requests
            without such a token: with a token of the catalog, or as the definer of a view.
        oauth2_server_uri: the address at which clients get tokens, told to Iceberg clients as
            `oauth2-server-uri`.
    """

    issuers: dict[Annotated[str, Field(pattern=_NAME)], IssuerSettings] = Field(default_factory=dict)
    claims_max_age_s: float = Field(default=30 * 86_400.0, ge=3600, le=366 * 86_400)
    oauth2_server_uri: ProviderUrl | None = None

    @property
    def takes_logouts(self) -> bool:
        """Whether an issuer tells of logouts."""
        return any(each.logout_audience is not None for each in self.issuers.values())

    @property
    def console_issuers(self) -> tuple[str, ...]:
        """The names of the issuers by which users log in to the console."""
        return tuple(name for name, each in self.issuers.items() if each.console is not None)

    @property
    def claims_age(self) -> timedelta:
        """How long the claims of a provider's last token count."""
        return timedelta(seconds=self.claims_max_age_s)

    @model_validator(mode="after")
    def _a_name_belongs_to_one_issuer(self) -> Self:
        every = list(self.issuers.values())
        for what, values in (
            ("issuer", [each.issuer for each in every]),
            ("prefix", [each.prefix for each in every]),
        ):
            if len(set(values)) != len(values):
                raise ValueError(f"two issuers have the same {what}; give each its own")
        return self
