"""Asks Ranger Admin for policies, roles, tags and users, over one bounded HTTP request each.

- TLS, or a loopback address. No redirect is followed: Ranger redirects to its sign-in page if it does not
  know the user, and credentials go to no other address. No proxy of the environment is used.
- With credentials, the paths that Ranger protects (`secure`) are used: it checks no user at the others. These
  are for client certificates, and for a Ranger Admin that anybody can download from.
- Deltas are never requested.
- Errors quote neither credentials nor answers.

Source: Ranger's RangerRESTUtils, RangerAdminRESTClient (agents-common), and ServiceREST, RoleREST, TagREST,
XUserREST (security-admin).
"""

from __future__ import annotations

import base64
import socket
import time
from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from catalog.base.ca_files import why_unusable
from catalog.base.http_answers import POOLS, AnswerOutOfBounds, read_answer
from catalog.base.outside_calls import Part as CalledPart
from catalog.base.outside_calls import outside_call
from catalog.crypto.private_files import read_private
from catalog.policy_sources.negotiate import NoTicket, negotiate
from catalog.settings.ranger import RangerSettings
from policy.errors import KmsUnavailable, PropertyInvalid, Unavailable
from policy.ranger.parse import MAX_DOCUMENT_SIZE

_LONGEST_PASSWORD: Final = 1024
_LONGEST_PLUGIN_ID: Final = 255
_UNCHANGED: Final = frozenset({304, 204})
_JSON: Final = "application/json"
#: The version before the first download.
NO_VERSION: Final = -1

_WHAT_STATUS_MEANS: Final = {
    400: "Ranger refused the request, or has no such service",
    401: "Ranger does not accept the credentials",
    403: "The user cannot download: add it to `policy.download.auth.users` of the service in Ranger, and for "
    "tags and users to `tag.download.auth.users` and `userstore.download.auth.users`",
    404: "Ranger has no such service or download",
}


class SourceFailed(Unavailable):
    """A download failed, or cannot be put in force; nothing was changed."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message,
            rule="policy-source",
            hint="Nothing was changed. Correct the problem, then run `lakewarden policy sync`.",
        )


@dataclass(frozen=True, slots=True)
class _Paths:
    """Where something is downloaded, and the parameter with the last known version."""

    open: str
    secure: str
    known: str


class Part(Enum):
    """What can be downloaded."""

    POLICIES = "policies"
    ROLES = "roles"
    TAGS = "tags"
    USERS = "users"


_PATHS: Final = {
    Part.POLICIES: _Paths(
        "plugins/policies/download", "plugins/secure/policies/download", "lastKnownVersion"
    ),
    Part.ROLES: _Paths("roles/download", "roles/secure/download", "lastKnownRoleVersion"),
    Part.TAGS: _Paths("tags/download", "tags/secure/download", "lastKnownVersion"),
    Part.USERS: _Paths("xusers/download", "xusers/secure/download", "lastKnownUserStoreVersion"),
}


class RangerAdmin:
    """One service of a Ranger Admin; safe for many threads.

    Args:
        settings: where it is, and how it is asked.

    Raises:
        PropertyInvalid: the file of authorities cannot be used.
    """

    def __init__(self, settings: RangerSettings) -> None:
        if (why := why_unusable(settings.ca_file)) is not None:
            raise PropertyInvalid(
                why, rule="settings", hint=f"Correct ca_file of the Ranger at {settings.url} in the settings."
            )
        self._settings = settings
        self._pool = urllib3.PoolManager(
            num_pools=1,
            maxsize=1,
            retries=False,
            cert_reqs="CERT_REQUIRED",
            ca_certs=_text(settings.ca_file),
            cert_file=_text(settings.certificate_file),
            key_file=_text(settings.key_file),
        )
        self._pool.pool_classes_by_scheme = POOLS

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def download(self, part: Part, known: int, activated_ms: int) -> bytes | None:
        """Download a part.

        Args:
            part: what to download.
            known: the version that is in force; `NO_VERSION` to get it in any case.
            activated_ms: when that was put in force, for Ranger's page of plugins; 0 if it never was.

        Returns:
            None if the version is still the newest.

        Raises:
            SourceFailed: no answer in time, or another one than a document or that nothing changed.
        """
        with outside_call(CalledPart.RANGER, part.value):
            answer, body = self._ask(part, known, activated_ms)
        return _content(answer, body, part, known)

    def _ask(self, part: Part, known: int, activated_ms: int) -> tuple[urllib3.BaseHTTPResponse, bytes]:
        until = time.monotonic() + self._settings.timeout_s
        try:
            answer = self._pool.request(
                "GET",
                self._url(part, known, activated_ms),
                headers=self._headers(),
                timeout=urllib3.Timeout(total=self._settings.timeout_s),
                redirect=False,
                preload_content=False,
            )
            return answer, read_answer(answer, until, MAX_DOCUMENT_SIZE)
        except AnswerOutOfBounds:
            raise SourceFailed(f"The answer with {part.value} is too long, or took too long.") from None
        except NoTicket:
            raise SourceFailed(
                "There is no Kerberos ticket for Ranger, by KRB5_CLIENT_KTNAME or KRB5CCNAME."
            ) from None
        except KmsUnavailable as error:
            raise SourceFailed(f"The password cannot be read: {error.message}") from None
        except (HTTPError, OSError, ValueError) as error:
            # Without its message: it can quote the password.
            raise SourceFailed(f"Ranger cannot be asked for {part.value}: {type(error).__name__}.") from None

    def _url(self, part: Part, known: int, activated_ms: int) -> str:
        service, paths = self._settings.service, _PATHS[part]
        path = paths.secure if self._settings.is_authenticated else paths.open
        parameters = {
            paths.known: known,
            "lastActivationTime": activated_ms,
            "pluginId": f"lakewarden@{socket.gethostname()}-{service}"[:_LONGEST_PLUGIN_ID],
            "supportsPolicyDeltas": "false",
            "supportsTagDeltas": "false",
        }
        return f"{self._settings.url}/service/{path}/{quote(service, safe='')}?{urlencode(parameters)}"

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": _JSON, "Accept-Encoding": "identity", "User-Agent": "lakewarden"}
        if self._settings.kerberos:
            headers["Authorization"] = negotiate(urlsplit(self._settings.url).hostname or "")
        elif self._settings.user is not None and self._settings.password_file is not None:
            password = read_private(self._settings.password_file, limit=_LONGEST_PASSWORD).rstrip(b"\r\n")
            whole = self._settings.user.encode("ascii") + b":" + password
            headers["Authorization"] = f"Basic {base64.b64encode(whole).decode('ascii')}"
        return headers


def _content(answer: urllib3.BaseHTTPResponse, body: bytes, part: Part, known: int) -> bytes | None:
    """Return what an answer says; None if nothing changed."""
    if answer.status in _UNCHANGED:
        if known == NO_VERSION:
            raise SourceFailed(f"Ranger sent no {part.value} (HTTP status {answer.status}).")
        return None
    if 300 <= answer.status < 400:
        raise SourceFailed(f"Ranger redirects the request for {part.value}, such as to its sign-in page.")
    if answer.status != 200:
        meaning = _WHAT_STATUS_MEANS.get(answer.status, "Ranger's answer is unexpected")
        raise SourceFailed(f"{meaning} ({part.value}, HTTP status {answer.status}).")
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != _JSON:
        raise SourceFailed(f"The answer with {part.value} is not JSON, such as a sign-in page.")
    return body


def _text(path: object) -> str | None:
    return None if path is None else str(path)
