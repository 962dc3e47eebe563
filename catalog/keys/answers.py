"""The bodies of a KMS's answers.

They are read within a bound on their size, and on the time for all of it: the time that a socket allows is
for each read, so a server that sends a byte now and then would go on for ever.
"""

from __future__ import annotations

import time
from typing import Final

import urllib3

_LONGEST: Final = 1024 * 1024
_CHUNK: Final = 64 * 1024


class AnswerOutOfBounds(Exception):
    """An answer is too long, or has taken too long; it says nothing of what was in it."""


def read_answer(response: urllib3.BaseHTTPResponse, until: float) -> bytes:
    """The whole body of an answer; at most one more wait for the socket passes the time.

    Args:
        response: of which nothing was read; it is used up afterwards.
        until: when the time is up, in monotonic seconds.

    Raises:
        AnswerOutOfBounds: it has more than a megabyte, or is not whole in time.
        urllib3.exceptions.HTTPError: the connection fails.
        OSError: the same.
    """
    chunks: list[bytes] = []
    size = 0
    try:
        while chunk := response.read1(_CHUNK):
            chunks.append(chunk)
            size += len(chunk)
            if size > _LONGEST or time.monotonic() > until:
                response.close()
                raise AnswerOutOfBounds
    finally:
        response.release_conn()
    return b"".join(chunks)
