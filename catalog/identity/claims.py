"""Decides from the claims of an access token whose it is; nothing here does I/O.

The signature was checked before. A claim of another type than the standards say is refused, never converted.

Sources: RFC 7519 (JSON Web Token), sections 4.1 and 7.2; RFC 9068 (JWT profile for access tokens), section 4.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypeGuard

from catalog.identity.refusals import token_refused
from catalog.settings.identity import IssuerSettings
from policy.errors import RequestInvalid
from policy.principal import Principal

#: Names that a token can give; a user of more is a mistake of the provider.
_MOST_NAMES: Final = 2000
#: The end of the year 9999, in seconds since 1970. A later time is in other units, or no time.
_LAST_TIME: Final = 253_402_300_799
#: Characters without a shape that are no format characters, which no principal's name can have: fillers,
#: joiners and variation selectors. Source: Unicode 16, `Default_Ignorable_Code_Point`, less category Cf.
_UNSEEN: Final = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
#: Claims by which a token says that its groups have to be asked for elsewhere.
_ELSEWHERE: Final = ("_claim_names", "hasgroups")


#: The claim by which a message says what it is about (RFC 8417).
EVENTS: Final = "events"


def principal_of(
    claims: Mapping[str, object], issuer: IssuerSettings, foreign_prefixes: Sequence[str], now: float
) -> Principal:
    """Return the user of a token.

    Args:
        claims: the claims of a token whose signature is good.
        issuer: the provider that signed it.
        foreign_prefixes: the prefixes of other issuers; a name of this issuer cannot begin with a longer one.
        now: the time in seconds since 1970.

    Raises:
        NotAuthenticated: a claim is missing, of another type, or not as required.
    """
    check_audience(claims, issuer.audience)
    check_times(claims, issuer, now)
    _check_required(claims, issuer.required_claims)
    if EVENTS in claims:
        raise token_refused("purpose", "it is a message about an event, not an access token")
    user = _user(claims, issuer)
    groups = _names_in(claims, issuer.groups_claim, issuer)
    roles = _names_in(claims, issuer.roles_claim, issuer)
    _check_prefixes((user, *groups, *roles), issuer.prefix, foreign_prefixes)
    try:
        return Principal(user, frozenset(groups), frozenset(roles))
    except RequestInvalid as error:
        raise token_refused("name", error.message) from None


def issued_at(claims: Mapping[str, object]) -> datetime | None:
    """Return when a token was issued, if it says so. Errors: `principal_of`."""
    seconds = _time(claims, "iat")
    return None if seconds is None else datetime.fromtimestamp(int(seconds), UTC)


def _check_prefixes(names: Sequence[str], prefix: str, foreign_prefixes: Sequence[str]) -> None:
    """Refuse a name that another issuer could give too; a longer prefix can begin with a shorter one."""
    longer = tuple(each for each in foreign_prefixes if len(each) > len(prefix))
    if any(name.startswith(longer) for name in names):
        raise token_refused("prefix", "a name begins with the prefix of another issuer")


def check_audience(claims: Mapping[str, object], accepted: Sequence[str]) -> None:
    """Check `aud`.

    Raises:
        NotAuthenticated: it is missing, of another type, or has none of the accepted values.
    """
    given = claims.get("aud")
    audiences = [given] if isinstance(given, str) else given
    if not _are_texts(audiences):
        raise token_refused("audience", "the claim aud is missing or of another type")
    if not set(audiences) & set(accepted):
        raise token_refused("audience", "it is for another audience")


def check_times(claims: Mapping[str, object], issuer: IssuerSettings, now: float) -> None:
    """Check `exp`, `nbf` and `iat`, and the lifetime.

    Raises:
        NotAuthenticated: one is of another type, or the token is not valid now, or for too long.
    """
    leeway = issuer.leeway_s
    expires, begins, issued = (_time(claims, name) for name in ("exp", "nbf", "iat"))
    if expires is None:
        raise token_refused("expired", "the claim exp is missing: it would be valid for ever")
    if now >= expires + leeway:
        raise token_refused("expired", "it has expired")
    if begins is not None and now < begins - leeway:
        raise token_refused("not-yet-valid", "it is not valid yet (nbf)")
    if issued is not None and now < issued - leeway:
        raise token_refused("not-yet-valid", "it was issued in the future (iat): compare the clocks")
    if issuer.max_lifetime_s is None:
        return
    if issued is None or expires - issued > issuer.max_lifetime_s:
        raise token_refused("lifetime", "it is valid for too long, or does not say since when (iat)")


def _time(claims: Mapping[str, object], name: str) -> float | None:
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LAST_TIME:
        raise token_refused("type", f"the claim {name} is no time in seconds since 1970")
    return value


def _check_required(claims: Mapping[str, object], required: Mapping[str, Sequence[str]]) -> None:
    for name, accepted in required.items():
        given = claims.get(name)
        # A list is a set of values here, as in `aud`; `scope` is a text of several (RFC 8693, section 4.2).
        values = given.split(" ") if isinstance(given, str) and name == "scope" else given
        found = set(values) if _are_texts(values) else {values} if isinstance(values, str) else set()
        if not found & set(accepted):
            raise token_refused("required-claim", f"the claim {name} has none of the required values")


def _user(claims: Mapping[str, object], issuer: IssuerSettings) -> str:
    value = _at(claims, issuer.user_claim)
    if not isinstance(value, str):
        raise token_refused("user", f"the claim {'/'.join(issuer.user_claim)} is missing or no text")
    # As the provider wrote it, too: the lower case of a sign such as the Kelvin sign is an ordinary letter.
    name = _named(value, issuer)
    return _named(value.lower(), issuer) if issuer.names == "lower" else name


def _named(name: str, issuer: IssuerSettings) -> str:
    """Return a name with its issuer's prefix.

    A second spelling of the same characters would be another user, whom policies do not know.
    """
    if not name or name != name.strip() or not unicodedata.is_normalized("NFC", name):
        raise token_refused("name", "a name is blank, has blanks around it, or is not in normal form C")
    if _UNSEEN.search(name):
        raise token_refused("name", "a name has an invisible character")
    return issuer.prefix + name


def _names_in(
    claims: Mapping[str, object], path: Sequence[str] | None, issuer: IssuerSettings
) -> Sequence[str]:
    """Return the names in a claim: a list of texts, or one text, which is one name whatever is in it."""
    if path is None:
        return ()
    value = _at(claims, path)
    if value is None:
        if issuer.missing_groups == "refuse" or any(each in claims for each in _ELSEWHERE):
            raise token_refused("groups", f"the claim {'/'.join(path)} is missing")
        return ()
    names = [value] if isinstance(value, str) else value
    if not _are_texts(names) or len(names) > _MOST_NAMES:
        raise token_refused("groups", f"the claim {'/'.join(path)} is no list of at most {_MOST_NAMES} texts")
    return [_named(each, issuer) for each in names]


def _are_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _at(claims: Mapping[str, object], path: Sequence[str]) -> object:
    found: object = claims
    for name in path:
        if not isinstance(found, Mapping):
            return None
        found = found.get(name)
    return found
