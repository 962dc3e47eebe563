"""The errors of access tokens: the caller learns that a token is not valid, the logs why."""

from __future__ import annotations

from policy.errors import NotAuthenticated, Unavailable


class ProviderUnavailable(Unavailable):
    """An identity provider does not answer, and its last keys are too old to be used."""


def token_refused(check: str, detail: str) -> NotAuthenticated:
    """Return the refusal of an access token.

    Args:
        check: the check that failed, a short stable name for the logs.
        detail: what was found, for the logs; nothing of the token itself.
    """
    return NotAuthenticated(
        "The access token is not valid here.",
        rule="access-token",
        hint="Get a new token from your identity provider. An administrator finds the reason in the log.",
        why=f"{check}: {detail}",
    )
