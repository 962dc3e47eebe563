"""Calls a remote KMS with time-outs, retries, a bulkhead and circuit breakers.

Rules:
- A caller has an answer or a typed error within a deadline, whatever the back end does. Each attempt runs in
  a thread of its own; one that takes too long is left behind and its answer is forgotten.
- Only `KmsUnavailable` is tried again, after a pause that is drawn at random ("full jitter"). A refusal is an
  answer.
- A bulkhead limits the attempts that run at a time, including those left behind, so that a KMS that hangs
  does not use up threads.
- After failures in a row the circuit opens, and callers are told at once; then one of them tries. A table or
  master key that fails by itself has a circuit of its own (`circuit_breakers`).
- An attempt that got its turn when hardly any time was left is not made; one that had much less than the time
  of an attempt says nothing about the KMS if it runs out of it.
- What a back end raises beside the errors of the interface counts as no answer. Its message and its cause are
  dropped, since libraries put what they received into them.
- The local KMS is called directly: a file is not spared by waiting, and once mended it is to be used at once.

Source: M. Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog).
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from catalog.kms.bulkhead import Bulkhead, Slot
from catalog.kms.calls import CountedKms, Operation
from catalog.kms.circuit_breakers import Circuit, Circuits
from catalog.kms.interface import KeyContext, KmsClient
from catalog.kms.local import LocalKms
from catalog.settings.kms import KmsCallSettings
from policy.errors import KmsUnavailable, LakewardenError

T = TypeVar("T")

_LONGEST_OPEN_S: Final = 30.0
_REWRAPPED_AT_ONCE: Final = 25
#: The longest first pause between attempts; it doubles each time.
_FIRST_PAUSE_S: Final = 0.2
#: Fractions of the time of an attempt: with less left, none begins; with less used, running out of it is
#: not a time-out of the KMS.
_LEAST_PART: Final = 0.1
_TELLING_PART: Final = 0.5
_log: Final = logging.getLogger("lakewarden.kms")


def guarded(kms: KmsClient, calls: KmsCallSettings, name: str | None = None) -> CountedKms:
    """The client that a catalog calls: it counts calls, and spares a KMS that is elsewhere.

    Args:
        kms: the back end.
        calls: when to retry, and when to stop calling.
        name: what the catalog calls this KMS; the identifier of its back end by default.
    """
    return CountedKms(kms, name) if isinstance(kms, LocalKms) else ResilientKms(kms, calls, name)


class ResilientKms(CountedKms):
    """A KMS client with the rules of this module; safe for many threads.

    Args:
        kms: the back end.
        calls: when to retry, and when to stop calling.
        name: what the catalog calls this KMS; the identifier of its back end by default.
        clock: monotonic seconds.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        kms: KmsClient,
        calls: KmsCallSettings,
        name: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(kms, name)
        self._calls = calls
        self._clock = clock
        self._sleep = sleep
        self._pause = wait_random_exponential(multiplier=_FIRST_PAUSE_S, max=2)
        self._bulkhead = Bulkhead(calls.concurrency)
        longest_open_s = max(calls.open_s, _LONGEST_OPEN_S)
        self._circuits = Circuits(lambda: Circuit(calls.failures, calls.open_s, longest_open_s, clock))
        self._whole_s = min(calls.attempt_s, calls.deadline_s)

    @property
    def circuit_open(self) -> bool:
        """Return whether a circuit breaker is open, for all calls or for some table or master key."""
        return self._circuits.is_open

    def rewrap_keys(self, items: Sequence[tuple[bytes, KeyContext]]) -> list[bytes]:
        """See `KmsClient.rewrap_keys`; split into small batches, since some KMSs process keys singly."""
        pieces = (
            items[first : first + _REWRAPPED_AT_ONCE] for first in range(0, len(items), _REWRAPPED_AT_ONCE)
        )
        return [each for piece in pieces for each in super(ResilientKms, self).rewrap_keys(piece)]

    def _call(self, operation: Operation, subject: str, ask: Callable[[], T]) -> T:
        until = self._clock() + self._calls.deadline_s
        retrying = Retrying(
            retry=retry_if_exception_type(KmsUnavailable),
            wait=self._pause,
            stop=lambda state: self._is_last(state, subject, until),
            sleep=self._sleep,
            reraise=True,
        )
        return retrying(lambda: self._attempt(operation, subject, ask, until))

    def _is_last(self, state: RetryCallState, subject: str, until: float) -> bool:
        return (
            state.attempt_number >= self._calls.attempts
            or self._circuits.is_open_for(subject)
            or self._is_late(until - state.upcoming_sleep)
        )

    def _is_late(self, until: float) -> bool:
        """Return whether too little time is left for another attempt."""
        return until - self._clock() < self._whole_s * _LEAST_PART

    def _attempt(self, operation: Operation, subject: str, ask: Callable[[], T], until: float) -> T:
        """Make one attempt, if the circuit breakers and the bulkhead permit it before `until`."""
        slot = self._take_slot(subject, until)
        call = self._circuits.enter(subject)
        if call is None:
            slot.leave()
            raise self._told_at_once()
        answered: bool | None = False
        allowed = min(self._calls.attempt_s, until - self._clock())
        try:
            answer = super()._call(operation, subject, lambda: self._in_thread(ask, allowed, slot))
            answered = True
            return answer
        except TimeoutError:
            answered = None if allowed < self._whole_s * _TELLING_PART else False
            raise self._not_in_time(allowed) from None
        except LakewardenError as error:
            answered = not isinstance(error, KmsUnavailable)
            raise
        finally:
            self._circuits.leave(call, answered)

    def _take_slot(self, subject: str, until: float) -> Slot:
        """Wait for a free slot, but not while a circuit of the subject is open."""
        is_open = self._circuits.is_open_for(subject)
        slot = self._bulkhead.take(0.0 if is_open else max(0.0, until - self._clock()))
        if slot is not None:
            if not self._is_late(until):
                return slot
            slot.leave()
        elif is_open:
            raise self._told_at_once()
        raise KmsUnavailable(
            f"All slots for concurrent calls to the KMS {self.identifier!r} are in use.",
            rule="kms-busy",
            hint="Try again later, or raise the limit of concurrent calls in the KMS settings.",
        )

    def _in_thread(self, ask: Callable[[], T], seconds: float, slot: Slot) -> T:
        """Return what `ask` returns within `seconds`; its thread releases the slot when it ends.

        Raises:
            TimeoutError: it took longer; its slot is given up.
        """
        outcome: Future[T] = Future()

        def run() -> None:
            try:
                outcome.set_result(ask())
            except LakewardenError as error:
                outcome.set_exception(error)
            except Exception as error:  # noqa: BLE001 - of a stranger, nothing passes but the type
                outcome.set_exception(self._failed(error))
            finally:
                slot.leave()

        try:
            threading.Thread(target=run, name="lakewarden-kms", daemon=True).start()
        except RuntimeError as error:
            slot.leave()
            raise self._failed(error) from None
        try:
            return outcome.result(seconds)
        except TimeoutError:
            slot.give_up()
            raise

    def _not_in_time(self, seconds: float) -> KmsUnavailable:
        return KmsUnavailable(
            f"The KMS {self.identifier!r} did not respond within {seconds:.1f} s.",
            rule="kms-deadline",
            hint="Check that the KMS is running and reachable, then try again.",
        )

    def _failed(self, error: Exception) -> KmsUnavailable:
        kind, frame = type(error).__name__, traceback.extract_tb(error.__traceback__)[-1]
        _log.error("KMS %s failed: %s at %s:%s", self.identifier, kind, frame.filename, frame.lineno)
        return KmsUnavailable(
            f"The call to the KMS {self.identifier!r} failed with {kind}.",
            rule="kms-failure",
            hint="See the catalog's log for details.",
        )

    def _told_at_once(self) -> KmsUnavailable:
        return KmsUnavailable(
            f"The circuit breaker of the KMS {self.identifier!r} is open: such calls have failed repeatedly.",
            rule="kms-circuit",
            hint="Try again in a few seconds.",
        )
