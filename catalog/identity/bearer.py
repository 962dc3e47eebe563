"""Tells whose a bearer token is: one of the catalog's own tokens, or an access token of an identity provider.

The two cannot be confused: an access token has dots, and a token of the catalog has none.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from catalog.authorization.logouts import Logout
from catalog.authorization.principals import Principals
from catalog.authorization.tokens import TokenStore
from catalog.identity.refusals import token_refused
from catalog.settings.identity import IdentitySettings
from policy.errors import PropertyInvalid
from policy.principal import Principal

if TYPE_CHECKING:
    from catalog.identity.access_tokens import AccessTokens


class BearerTokens:
    """The tokens by which users are known; thread-safe.

    Args:
        tokens: the catalog's own tokens.
        principals: what is known of users.
        access_tokens: those of identity providers; None if there is no provider.
        require_clock: raises if the time cannot be trusted.
    """

    def __init__(
        self,
        tokens: TokenStore,
        principals: Principals,
        access_tokens: AccessTokens | None,
        require_clock: Callable[[], None],
    ) -> None:
        self._tokens = tokens
        self._principals = principals
        self._access_tokens = access_tokens
        self._require_clock = require_clock

    def user(self, text: str) -> Principal:
        """Return the user of a token, with all groups and roles; those of an access token are remembered.

        Raises:
            NotAuthenticated: the token is not valid, for whatever reason.
            StateUnavailable: the database does not answer, or the clock of this host is off.
            ProviderUnavailable: an identity provider does not answer, and its last keys are too old.
        """
        if self._access_tokens is None or "." not in text:
            return self._tokens.verify(text, "user")
        self._require_clock()
        return self._principals.claimed(*self._access_tokens.verify(text))

    def logout(self, text: str) -> tuple[Logout, str]:
        """Return what a logout token of a provider says has ended, and the issuer's name in the settings.

        Raises:
            NotAuthenticated: it is not valid, for whatever reason.
            StateUnavailable, ProviderUnavailable: as `user`.
        """
        if self._access_tokens is None:
            raise token_refused("issuer", "no issuer is in the settings")
        self._require_clock()
        return self._access_tokens.logout(text)

    def check_login(self, name: str, access_token: str, id_token: str, nonce: str) -> None:
        """Check that a provider gave both tokens for one login; see `AccessTokens.check_login`.

        Raises:
            NotAuthenticated: it did not.
            StateUnavailable, ProviderUnavailable: as `user`.
        """
        if self._access_tokens is None:
            raise token_refused("issuer", "no issuer is in the settings")
        self._require_clock()
        self._access_tokens.check_login(name, access_token, id_token, nonce)


def open_bearer_tokens(
    settings: IdentitySettings,
    tokens: TokenStore,
    principals: Principals,
    now: Callable[[], datetime],
    seconds: Callable[[], float],
    require_clock: Callable[[], None],
) -> BearerTokens:
    """Open what `settings` describe; no provider is asked before the first token.

    Raises:
        PropertyInvalid: there are providers, and a Python package is missing or a file of authorities cannot
            be used.
    """
    if not settings.issuers:
        return BearerTokens(tokens, principals, None, require_clock)
    try:
        from catalog.identity.access_tokens import AccessTokens
    except ModuleNotFoundError as failure:
        raise PropertyInvalid(
            "Access tokens of identity providers need Python packages that are not installed.",
            rule="settings",
            hint='Run `pip install "lakewarden[oidc]"`, or remove identity.issuers from the settings.',
        ) from failure
    issued = AccessTokens(settings.issuers, lambda: now().timestamp(), seconds)
    return BearerTokens(tokens, principals, issued, require_clock)
