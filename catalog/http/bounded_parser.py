"""Parses the requests of one connection with h11, and refuses what is too large or ambiguous.

Source: RFC 9112, sections 3.2 (request target), 6.1 and 6.3 (framing), 9.6 (closing).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import h11
from h11._receivebuffer import ReceiveBuffer

from catalog.http.errors import HeadTooLarge
from policy.errors import LakewardenError, RequestInvalid

#: Maximum number of fields in a head; clients send less than a fifth of it.
MAX_FIELDS: Final = 100
#: Maximum bytes of a request target.
MAX_TARGET: Final = 8 * 1024
#: A body can have `_FREE_PIECES` pieces, and one more for every `_PIECE_BYTES` bytes. The parser runs for
#: each piece.
_FREE_PIECES: Final = 4096
_PIECE_BYTES: Final = 256
#: Digits of the length of a long answer, which is not sent in one piece with its head.
_LONG_DIGITS: Final = 6
#: Characters at the start of a line that continue the field of the line before.
_FOLDED: Final = (b" ", b"\t")
_VERSIONS: Final = frozenset({b"1.0", b"1.1"})


class _StrictLines(ReceiveBuffer):
    """h11's buffer, with CRLF as the only line end in heads and trailers, and without folded fields.

    A proxy that accepts a bare LF in a value would see other fields. So would a proxy that takes a folded
    line as a field of its own (RFC 9112, sections 2.2 and 5.2).
    """

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """See h11.

        Raises:
            h11.RemoteProtocolError: a line has another end.
        """
        before = len(self)
        lines = super().maybe_extract_lines()
        if lines is not None and before - len(self) != sum(len(line) + 2 for line in lines) + 2:
            raise h11.RemoteProtocolError("a line does not end with CRLF")
        if lines is not None and any(line.startswith(_FOLDED) for line in lines):
            raise h11.RemoteProtocolError("a line begins with a space or tab")
        return lines


class BoundedParser(h11.Connection):
    """h11's parser of one connection; it refuses heads and bodies that are too large or ambiguous.

    Args:
        max_head_bytes: maximum size of the request line and all fields.
        on_head: called when a head was read.
        on_body: called when a body was read to its end.
    """

    def __init__(self, max_head_bytes: int, on_head: Callable[[], None], on_body: Callable[[], None]) -> None:
        super().__init__(h11.SERVER, max_head_bytes)
        self._receive_buffer = _StrictLines()
        self._max_head_bytes = max_head_bytes
        self._on_head = on_head
        self._on_body = on_body
        self._pieces = self._body_bytes = 0
        #: The problem, after `next_event` raised.
        self.problem: LakewardenError | None = None
        #: Whether an answer announced the end of the connection.
        self.is_ending = False
        self._held_head = b""

    def next_event(self) -> Any:
        """See h11.

        Raises:
            h11.RemoteProtocolError: the request is refused; `problem` has the reason.
        """
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            too_large = error.error_status_hint == 431
            self.problem = self._too_large() if too_large else invalid(str(error))
            raise
        self.problem = self._problem_of(event)
        if self.problem is not None:
            raise h11.RemoteProtocolError(self.problem.message)
        return event

    def send(self, event: Any) -> Any:
        """See h11. The head of a short answer is returned with its body, so that one packet has both.

        Not before the body of the request was read: a client can wait for the head of a refusal.
        """
        data = self._announced(event, super().send(event))
        if data is None:
            return None
        if isinstance(event, h11.Response) and self.their_state is not h11.SEND_BODY and _is_short(event):
            self._held_head = data
            return b""
        held, self._held_head = self._held_head, b""
        return held + data if held else data

    def _announced(self, event: Any, data: bytes | None) -> bytes | None:
        """Announce the end of the connection in an answer before the end of the body.

        h11 itself does not get the announcement: it would close at once, and bytes that the client still
        sends would reset the connection before the answer is read (RFC 9112, section 9.6). A client without
        the announcement would send its next request on a connection that is ending.
        """
        if data is None or not isinstance(event, h11.Response) or self.their_state is not h11.SEND_BODY:
            return data
        if any(name == b"connection" for name, _ in event.headers):
            return data
        self.is_ending = True
        return data.removesuffix(b"\r\n") + b"connection: close\r\n\r\n"

    def _problem_of(self, event: object) -> LakewardenError | None:
        if isinstance(event, h11.Request):
            self._pieces = self._body_bytes = 0
            self._on_head()
            return self._head_problem(event)
        if isinstance(event, h11.Data):
            self._pieces += 1
            self._body_bytes += len(event.data)
            if self._pieces > _FREE_PIECES + self._body_bytes // _PIECE_BYTES:
                return invalid("the body arrives in too many small pieces")
        elif isinstance(event, h11.EndOfMessage):
            self._on_body()
        return None

    def _head_problem(self, head: h11.Request) -> LakewardenError | None:
        size = len(head.target) + sum(len(name) + len(value) + 4 for name, value in head.headers)
        if size > self._max_head_bytes or len(head.headers) > MAX_FIELDS or len(head.target) > MAX_TARGET:
            return self._too_large()
        framing = {name for name, _ in head.headers} & {b"content-length", b"transfer-encoding"}
        if len(framing) > 1:
            return invalid("it has Content-Length and Transfer-Encoding")
        if head.http_version not in _VERSIONS:
            return invalid("its HTTP version is neither 1.0 nor 1.1")
        if head.http_version == b"1.0" and b"transfer-encoding" in framing:
            return invalid("HTTP/1.0 has no Transfer-Encoding")
        if not head.target.startswith(b"/"):
            return invalid("its target is not a path")
        return None

    def _too_large(self) -> HeadTooLarge:
        return HeadTooLarge(
            f"The head of the request has more than {self._max_head_bytes} bytes, a target of more than "
            f"{MAX_TARGET} bytes, or more than {MAX_FIELDS} fields.",
            rule="head-size",
            hint="Send fewer or shorter header fields and names.",
        )


def invalid(problem: str) -> RequestInvalid:
    """Build the error for a request that is not valid HTTP, for a reason."""
    return RequestInvalid(
        f"The request is not valid HTTP: {problem}.",
        rule="http",
        hint="Send a valid request (RFC 9112, HTTP/1.1).",
    )


def _is_short(answer: h11.Response) -> bool:
    """Return whether an answer says that its body has few bytes: copying them costs less than a packet."""
    return any(name == b"content-length" and len(value) < _LONG_DIGITS for name, value in answer.headers)
