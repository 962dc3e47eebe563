"""Bounds the size and the total time of the responses of other services: key management, identity providers.

The time that a socket allows is for each read: a server that sends a byte now and then would go on for ever.
- The head of an answer has twice the time of a read: then its connection is cut (`POOLS`). A server that says
  nothing is noticed before, by the read itself.
- The body is read in time and within a bound (`read_answer`). The line before a chunk of an answer in chunks
  has no bound, so that the connection of such an answer is cut when the time is up.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.response import HTTPResponse

_LONGEST: Final = 1024 * 1024
_CHUNK: Final = 64 * 1024


class AnswerOutOfBounds(Exception):
    """A response is too long or took too long; the error does not quote it."""


def read_answer(response: urllib3.BaseHTTPResponse, until: float, longest: int = _LONGEST) -> bytes:
    """Read a whole response body; at most one more socket read exceeds the time.

    Args:
        response: of which nothing was read; it is used up afterwards.
        until: when the time is up, in monotonic seconds.
        longest: the maximum number of bytes, a megabyte by default.

    Raises:
        AnswerOutOfBounds: it has more bytes, or is not whole in time.
        urllib3.exceptions.HTTPError: the connection fails.
        OSError: the same.
    """
    chunks: list[bytes] = []
    size = 0
    try:
        with _cut_at(response, until):
            while chunk := response.read1(_CHUNK):
                chunks.append(chunk)
                size += len(chunk)
                if size > longest or time.monotonic() > until:
                    response.close()
                    raise AnswerOutOfBounds
    finally:
        response.release_conn()
    return b"".join(chunks)


class _Connection(HTTPConnection):
    def getresponse(self) -> HTTPResponse:  # type: ignore[override] # as in urllib3
        with _cut_when_late(self) as cut:
            return _with(super().getresponse(), cut)


class _TlsConnection(HTTPSConnection):
    def getresponse(self) -> HTTPResponse:  # type: ignore[override] # as in urllib3
        with _cut_when_late(self) as cut:
            return _with(super().getresponse(), cut)


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


#: The `pool_classes_by_scheme` of a pool manager.
POOLS: Final = {"http": _Pool, "https": _TlsPool}


#: The attribute of a response that cuts its connection.
_CUT: Final = "lakewarden_cut"


def _with(response: HTTPResponse, cut: Callable[[], None]) -> HTTPResponse:
    setattr(response, _CUT, cut)
    return response


@contextmanager
def _cut_when_late(connection: HTTPConnection) -> Iterator[Callable[[], None]]:
    """Cut a connection if the block takes twice the read time-out of the connection."""
    # After an answer that ends the connection, it does not have its socket any more.
    sock = connection.sock

    def cut() -> None:
        # The socket can be closed already.
        with suppress(OSError, AttributeError):
            sock.shutdown(socket.SHUT_RDWR)

    assert connection.timeout is not None
    with _after(2 * connection.timeout, cut):
        yield cut


@contextmanager
def _cut_at(response: urllib3.BaseHTTPResponse, until: float) -> Iterator[None]:
    """Cut the connection of an answer in chunks when the time is up."""
    cut = getattr(response, _CUT, None)
    if cut is None or not getattr(response, "chunked", False):
        yield
    else:
        with _after(max(until - time.monotonic(), 0), cut):
            yield


@contextmanager
def _after(seconds: float, call: Callable[[], None]) -> Iterator[None]:
    """Call a function if the block takes longer."""
    watch = threading.Timer(seconds, call)
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()
