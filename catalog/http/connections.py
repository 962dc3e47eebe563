"""Limits connections and request times: per connection, per address and in total.

- A connection beyond `http.max_connections`, or beyond `http.max_connections_per_address`, is answered with
  503 and closed.
- A request's head must arrive within `http.head_timeout_s`, its body within `http.body_timeout_s`. Both are
  deadlines: slow bytes do not extend them. The answer is 408.
- A connection without a request is closed after `http.idle_timeout_s`. A connection whose client does not
  read its answer is closed after `http.answer_timeout_s`.
- A head that two readers could understand differently is refused with 400 (`catalog.http.bounded_parser`).
- An answer that is sent before the request's body was read ends the connection. Bytes that still arrive are
  discarded unparsed until the body's deadline, because a close with unread bytes would reset the connection
  and lose the answer.

The parser is h11, the protocol is uvicorn's; both only get limits here. Everything runs on the event loop.

Source: RFC 9112, sections 3.2 (request target), 6.1 and 6.3 (framing), 9.3.2 (pipelining), 9.6 (closing).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from catalog.http.bounded_parser import BoundedParser, invalid
from catalog.http.errors import RequestTimedOut, TooManyConnections, error_response
from catalog.http.metrics import Metrics
from catalog.http.tallies import Tally
from catalog.settings.sections import HttpSettings
from policy.errors import LakewardenError

#: Maximum number of refused connections that wait for their client to read the answer; others are closed at
#: once.
MAX_LEAVING: Final = 64
_LEAVE_S: Final = 1.0
_QUIET_S: Final = 60.0
_UNKNOWN: Final = "unknown"

_log: Final = logging.getLogger("lakewarden.http.connections")
#: uvicorn logs every malformed request, and a flood of them would fill the disk. They are counted instead.
_uvicorns_log: Final = logging.getLogger("uvicorn.lakewarden")
_uvicorns_log.setLevel(logging.ERROR)


class Connections:
    """Counts connections, in total and by address, and refusals.

    Args:
        http: the limits.
        metrics: counts open and refused connections.
        seconds: a monotonic clock.
        opened: counts open connections by address, over all workers.
    """

    def __init__(
        self,
        http: HttpSettings,
        metrics: Metrics,
        seconds: Callable[[], float] = time.monotonic,
        opened: Tally | None = None,
    ) -> None:
        self.http = http
        self.leaving = 0
        self._metrics = metrics
        self._seconds = seconds
        self._open = Tally() if opened is None else opened
        self._unlogged: Counter[str] = Counter()
        self._logged_at = -_QUIET_S

    def enter(self, address: str) -> TooManyConnections | None:
        """Count a connection. Beyond a limit, it is not counted, and the error to answer is returned."""
        self._open.add(address, 1)
        refusal = self._refusal(address)
        if refusal is not None:
            self._open.add(address, -1)
        self._metrics.connections(self._open.own_total)
        return refusal

    def _refusal(self, address: str) -> TooManyConnections | None:
        if self._open.total > self.http.max_connections:
            return _too_many("connections", f"{self.http.max_connections} connections", "max_connections")
        if self._open.of(address) > self.http.max_connections_per_address:
            limit = f"{self.http.max_connections_per_address} connections from one address"
            return _too_many("connections-of-address", limit, "max_connections_per_address")
        return None

    def leave(self, address: str) -> None:
        """Stop counting a connection that was closed."""
        self._open.add(address, -1)
        self._metrics.connections(self._open.own_total)

    def refused(self, rule: str) -> None:
        """Count a connection or request that a limit ended; a flood of them is logged once a minute."""
        self._metrics.connection_refused(rule)
        self._unlogged[rule] += 1
        if self._seconds() - self._logged_at >= _QUIET_S:
            said = ", ".join(f"{rule}: {count}" for rule, count in sorted(self._unlogged.items()))
            _log.warning("connections or requests were refused by limits of the service (%s)", said)
            self._logged_at = self._seconds()
            self._unlogged.clear()

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle errors of the event loop: failures to accept are counted, others logged by the loop."""
        if isinstance(context.get("exception"), OSError) and "accept" in str(context.get("message")):
            self.refused("accept")
        else:
            loop.default_exception_handler(context)


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol of one connection, with the limits of `connections`; see the module."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        connections: Connections,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._all = connections
        self._limits = connections.http
        self.logger = _uvicorns_log
        self.timeout_keep_alive = self._limits.idle_timeout_s  # type: ignore[assignment]
        self.conn = self._parser = BoundedParser(
            self._limits.max_head_bytes, self._head_was_read, self._body_was_read
        )
        self._address = _UNKNOWN
        self._deadline: asyncio.TimerHandle | None = None
        self._answer_deadline: asyncio.TimerHandle | None = None
        self._reads_body = False
        self._discards = False
        self._is_counted = self._is_leaving = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and expect a request."""
        super().connection_made(transport)
        # Count every buffered byte: closing waits for the last one, so even a small rest can block it
        # forever. With TLS, the limit itself counts as reached.
        transport.set_write_buffer_limits(high=1 if self.scheme == "https" else 0)
        self._address = self.client[0] if self.client else _UNKNOWN
        refusal = self._all.enter(self._address)
        if refusal is None:
            self._is_counted = True
            self._expect(self._limits.head_timeout_s, self._head_is_late)
        else:
            self._turn_away(refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._expect_nothing()
        self.resume_writing()
        self._unset_keepalive_if_required()
        if self._is_counted:
            self._all.leave(self._address)
        self._all.leaving -= self._is_leaving
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the bytes, unless the answer is already given."""
        if self._discards:
            return
        if self._deadline is None and self.conn.their_state is h11.IDLE:
            self._expect(self._limits.head_timeout_s, self._head_is_late)
        super().data_received(data)

    def on_response_complete(self) -> None:
        """Wait for the next request, or end the connection if the body was not read."""
        if not self._reads_body or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self._half_close()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that the parser refused, and close."""
        self._refuse(self._parser.problem or invalid("it cannot be parsed"))

    def pause_writing(self) -> None:
        """Start the answer's time-out: the client does not read."""
        super().pause_writing()
        self._answer_deadline = self.loop.call_later(self._limits.answer_timeout_s, self._answer_is_late)

    def resume_writing(self) -> None:
        """Stop the answer's time-out: the client reads again."""
        if self._answer_deadline is not None:
            self._answer_deadline.cancel()
            self._answer_deadline = None
        super().resume_writing()

    def _should_upgrade(self) -> bool:
        """Refuse other protocols; a request to upgrade is answered without the upgrade."""
        return False

    def _expect(self, seconds: float, otherwise: Callable[[], None]) -> None:
        self._expect_nothing()
        self._deadline = self.loop.call_later(seconds, otherwise)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _head_was_read(self) -> None:
        self._reads_body = True
        self._expect(self._limits.body_timeout_s, self._body_is_late)

    def _body_was_read(self) -> None:
        # After an answer announced the end of the connection, no further request is read.
        if not self._parser.is_ending:
            self._reads_body = False
            self._expect_nothing()

    def _head_is_late(self) -> None:
        self._refuse(_late("The head of the request", self._limits.head_timeout_s, "head-timeout"))

    def _body_is_late(self) -> None:
        self._refuse(_late("The body of the request", self._limits.body_timeout_s, "body-timeout"))

    def _answer_is_late(self) -> None:
        self._all.refused("answer-timeout")
        self.transport.abort()

    def _turn_away(self, refusal: TooManyConnections) -> None:
        """Answer, and give the client time to read it, unless too many connections wait already."""
        self._refuse(refusal, close=False)
        self._is_leaving = self._all.leaving < MAX_LEAVING
        self._all.leaving += self._is_leaving
        if self._is_leaving:
            self._half_close()
            self._expect(_LEAVE_S, self.transport.abort)
        else:
            self.transport.close()

    def _half_close(self) -> None:
        """Send the end of the stream, and discard bytes that still arrive."""
        self._discards = True
        # TLS ends in both directions at once; its client is told by the header.
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _refuse(self, error: LakewardenError, *, close: bool = True) -> None:
        """Answer with an error without calling the application, and end the connection."""
        self._expect_nothing()
        self._all.refused(error.rule or type(error).__name__)
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._discards = True
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(self._answer(error))
        if close:
            self.transport.close()

    def _answer(self, error: LakewardenError) -> bytes:
        response = error_response(error)
        headers = [*response.raw_headers, (b"connection", b"close")]
        parts = (
            h11.Response(status_code=response.status_code, headers=headers),
            h11.Data(data=bytes(response.body)),
            h11.EndOfMessage(),
        )
        return b"".join(self.conn.send(each) or b"" for each in parts)


def _too_many(rule: str, limit: str, setting: str) -> TooManyConnections:
    return TooManyConnections(
        f"The service already has its maximum of {limit}.",
        rule=rule,
        hint=f"Close connections that are idle, try again later, or raise `http.{setting}`.",
    )


def _late(what: str, seconds: float, rule: str) -> RequestTimedOut:
    return RequestTimedOut(
        f"{what} did not arrive within {seconds:g} seconds.",
        rule=rule,
        hint="Send the request again without pauses, or raise the time-out in the settings.",
    )
