"""Sends one request to a Hadoop KMS over HTTP, to each host in turn; `catalog.kms.hadoop` has the rules.

A host is passed over when it cannot be reached, breaks off, takes too long, or is a gateway that says so
(502, 503, 504). Whatever else it answers is the answer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlencode

import urllib3

from catalog.base.http_answers import POOLS, AnswerOutOfBounds, read_answer
from catalog.kms.back_ends import require_ca_file
from catalog.settings.kms_options import HadoopKmsOptions
from policy import strict_json
from policy.errors import InvalidInput, KmsUnavailable

_DELEGATION_HEADER: Final = "X-Hadoop-Delegation-Token"
_CONNECTIONS: Final = 64
_SHORTEST_S: Final = 0.001
_PASSED_OVER: Final = frozenset({502, 503, 504})
#: How a KMS says that an authenticated user has no permission on a key.
_DENIALS: Final = frozenset(
    {
        "org.apache.hadoop.security.authorize.AuthorizationException",
        "org.apache.hadoop.security.AccessControlException",
    }
)
_FORBIDDEN: Final = "java.lang.SecurityException"
_WRAPPED_DENIALS: Final = tuple(f"{name}: " for name in sorted(_DENIALS))


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a host.

    Attributes:
        status: the HTTP status.
        body: at most a megabyte; it may hold a key.
    """

    status: int
    body: bytes = field(repr=False)

    def document(self) -> object:
        """The body as JSON.

        Raises:
            KmsUnavailable: it is none, or ambiguous.
        """
        try:
            return strict_json.parse(self.body, what="The answer")
        except InvalidInput:
            # The cause can quote a key.
            raise unexpected() from None

    def denies_key(self) -> bool:
        """Return whether the KMS authenticated the caller, and refused the key or its name."""
        name, message = self._exception()
        if self.status in (401, 403):
            return name in _DENIALS or (self.status == 403 and name == _FORBIDDEN)
        # Hadoop wraps a refused generate call into another exception, whose message begins with the name of
        # the first.
        return self.status == 400 or (self.status == 500 and message.startswith(_WRAPPED_DENIALS))

    def _exception(self) -> tuple[str, str]:
        """The Java exception that the answer names, and its message; empty if there is none."""
        try:
            document = strict_json.parse(self.body, what="The answer")
        except InvalidInput:
            return "", ""
        remote = document.get("RemoteException") if isinstance(document, dict) else None
        found = remote if isinstance(remote, dict) else {}
        name, message = (str(found.get(each, "")) for each in ("javaClassName", "message"))
        return name, message


class HadoopRest:
    """The REST protocol of a Hadoop KMS; safe for many threads.

    Args:
        options: where it is, who asks, and how long it may take.

    Raises:
        PropertyInvalid: the file of authorities is missing.
    """

    def __init__(self, options: HadoopKmsOptions) -> None:
        require_ca_file(options.ca_file)
        self._hosts = options.addresses()
        self._headers, self._identity = _credential(options)
        self._connect_s = options.connect_timeout_s
        self._first = 0
        self._pool = urllib3.PoolManager(
            num_pools=len(self._hosts),
            maxsize=_CONNECTIONS,
            retries=False,
            cert_reqs="CERT_REQUIRED",
            ca_certs=None if options.ca_file is None else str(options.ca_file),
        )
        self._pool.pool_classes_by_scheme = POOLS

    def ask(
        self,
        method: str,
        path: Sequence[str],
        until: float,
        parameters: Mapping[str, str],
        body: object,
    ) -> Answer:
        """Return the answer of the first host that responds.

        Args:
            method: the HTTP method.
            path: the names of the path, below the version of the protocol.
            until: when the time is up, in monotonic seconds.
            parameters: of the address.
            body: sent as JSON, unless None.

        Raises:
            KmsUnavailable: none does.
        """
        target = "/".join(quote(name, safe="") for name in path)
        query = urlencode({**parameters, **self._identity})
        content = None if body is None else json.dumps(body).encode("ascii")
        first = self._first
        for turn in range(len(self._hosts)):
            place = (first + turn) % len(self._hosts)
            answer = self._try(method, f"{self._hosts[place]}/v1/{target}?{query}", content, until)
            if answer is not None and answer.status not in _PASSED_OVER:
                self._first = place
                return answer
        raise KmsUnavailable(
            "No host of the KMS responded.", rule="kms", hint="Check that the KMS is running and reachable."
        )

    def _try(self, method: str, url: str, content: bytes | None, until: float) -> Answer | None:
        """One host's answer, or None."""
        left = until - time.monotonic()
        if left < _SHORTEST_S:
            return None
        try:
            response = self._pool.request(
                method,
                url,
                body=content,
                headers=self._headers,
                timeout=urllib3.Timeout(connect=min(self._connect_s, left), read=left),
                redirect=False,
                preload_content=False,
            )
            return Answer(response.status, read_answer(response, until))
        except AnswerOutOfBounds:
            raise unexpected() from None
        except (urllib3.exceptions.HTTPError, OSError):
            return None


def unexpected() -> KmsUnavailable:
    """The error for an answer that does not follow the protocol."""
    return KmsUnavailable(
        "The answer of the KMS does not follow the Hadoop KMS protocol.",
        rule="kms-answer",
        hint="Check that kms.options.url is the address of a Hadoop or Ranger KMS.",
    )


def _credential(options: HadoopKmsOptions) -> tuple[dict[str, str], dict[str, str]]:
    """Return the headers and parameters with the credential."""
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if options.token is not None:
        return {**headers, "Authorization": f"Bearer {options.token.get_secret_value()}"}, {}
    if options.delegation_token is not None:
        return {**headers, _DELEGATION_HEADER: options.delegation_token.get_secret_value()}, {}
    assert options.user is not None
    return headers, {"user.name": options.user}
