"""TLS in the service: the certificate, and the handshake of a connection.

- A connection counts for the limits from its first byte, and its handshake has the deadline of a request's
  head, so that connections that never agree on TLS take no more than others.
- What cannot agree on TLS, such as a request in plain HTTP, is closed without an answer.
- A renewed certificate is used from the next connection on. One that cannot be used is logged, and the one
  before stays.
- The private key is refused if every user of the host can read it.

Source: RFC 8446; asyncio's `loop.start_tls`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from catalog.base.file_versions import FileVersion, file_version
from catalog.http.connections import BoundedProtocol, Connections
from catalog.settings.sections import TlsSettings
from policy.errors import RequestInvalid

_log: Final = logging.getLogger("lakewarden.http.tls")
#: Seconds for which the end of a secured connection waits for the client's.
_SHUTDOWN_S: Final = 5.0
_UNKNOWN: Final = "unknown"


class Certificate:
    """The certificate that the service shows, with its key.

    Args:
        tls: the files.

    Raises:
        RequestInvalid: they cannot be used.
    """

    def __init__(self, tls: TlsSettings) -> None:
        self._files = (tls.certificate_file, tls.key_file)
        self._seen = self._fingerprint()
        self._context = self._load()

    def context(self) -> ssl.SSLContext:
        """Return how to agree on TLS with the next connection; reads files that were changed."""
        found = self._fingerprint()
        if found != self._seen:
            self._seen = found
            try:
                self._context = self._load()
                _log.info("the renewed certificate is used")
            except RequestInvalid as error:
                _log.error("the certificate was not renewed: %s", error.message)
        return self._context

    def _fingerprint(self) -> tuple[FileVersion | None, ...]:
        return tuple(map(_version, self._files))

    def _load(self) -> ssl.SSLContext:
        certificate, key = self._files
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            # Opening a pipe would wait for what is written into it.
            for each in self._files:
                if not each.is_file():
                    raise _unusable(f"{each} is no file")
            if key.stat().st_mode & stat.S_IROTH:
                raise _unusable(f"every user can read {key}")
            # A key with a password would ask for it at the terminal.
            context.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ValueError) as error:
            raise _unusable(f"{certificate} and {key} are no pair, or cannot be read") from error
        return context


def _no_password() -> str:
    raise ValueError("a key with a password is not supported")


def _version(path: Path) -> FileVersion | None:
    """Return the version of a file; None if there is none."""
    try:
        return file_version(path)
    except OSError:
        return None


def _unusable(problem: str) -> RequestInvalid:
    return RequestInvalid(
        f"The certificate of the service cannot be used: {problem}.",
        rule="tls",
        hint="Correct the files of `http.tls`: a chain of certificates and its unencrypted key, both PEM.",
    )


class Handshake(asyncio.Protocol):
    """A connection until both sides agree on TLS; then the protocol of requests takes over.

    Args:
        certificate: the certificate.
        connections: counts the connection.
        following: makes the protocol of requests.
    """

    def __init__(
        self, certificate: Certificate, connections: Connections, following: Callable[[], BoundedProtocol]
    ) -> None:
        self._certificate = certificate
        self._all = connections
        self._following = following
        self._early: list[bytes] = []
        self._is_lost = False
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, and begin the handshake."""
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) else _UNKNOWN
        refusal = self._all.enter(address)
        if refusal is None:
            begun = self._agree(cast(asyncio.Transport, transport), address)
            self._task = asyncio.get_running_loop().create_task(begun)
        else:
            # No answer could be read yet.
            self._all.refused(refusal.rule or type(refusal).__name__)
            cast(asyncio.Transport, transport).abort()

    def data_received(self, data: bytes) -> None:
        """Keep what arrives between the end of the handshake and the protocol of requests."""
        self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remember the end of a connection that agreed on TLS and sent nothing."""
        self._is_lost = True

    async def _agree(self, transport: asyncio.Transport, address: str) -> None:
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport,
                self,
                self._certificate.context(),
                server_side=True,
                ssl_handshake_timeout=self._all.http.head_timeout_s,
                ssl_shutdown_timeout=_SHUTDOWN_S,
            )
        except OSError:
            # Whatever the client sent, it is no reason for a line in the log.
            self._all.refused("tls")
            return
        finally:
            self._all.leave(address)
        if secured is None or self._is_lost:
            return
        following = self._following()
        secured.set_protocol(following)
        following.connection_made(secured)
        for data in self._early:
            following.data_received(data)
