"""Calls to a KMS that is somewhere else: bounded, tried again, and kept off while it does not answer.

Rules:
- A caller has an answer or a typed error within a deadline, whatever the back end does. Each attempt runs in
  a thread of its own; one that takes too long is left behind and its answer is forgotten.
- Only `KmsUnavailable` is tried again, after a pause that is drawn at random ("full jitter"). A refusal is an
  answer.
- So many attempts run at a time, those left behind included: a KMS that hangs does not use up threads.
- After failures in a row the circuit opens, and callers are told at once; then one of them tries.
- What a back end raises beside the errors of the interface counts as no answer. Its message and its cause are
  dropped, since libraries put what they received into them.
- The local KMS is called directly: a file is not spared by waiting, and once mended it is to be used at once.

Sources: M. Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog); `circuit`.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from catalog.keys.circuit import Circuit, CircuitOpen
from catalog.keys.kms import KeyContext, KmsClient
from catalog.keys.kms_calls import CountedKms, Operation
from catalog.keys.local_kms import LocalKms
from policy.errors import KmsUnavailable, LakewardenError

T = TypeVar("T")

_LONGEST_OPEN_S: Final = 30.0
_REWRAPPED_AT_ONCE: Final = 25
_log: Final = logging.getLogger("lakewarden.kms")


@dataclass(frozen=True, slots=True)
class Patience:
    """How much is borne of a KMS.

    Attributes:
        attempts: how often one call is tried.
        attempt_s: how long one attempt may take, in seconds.
        deadline_s: how long all attempts of one call may take, in seconds.
        concurrency: how many attempts run at a time.
        failures: after how many failures in a row the circuit opens.
        open_s: for how long it opens at first, in seconds.
        first_pause_s: the longest first pause between attempts, in seconds; it doubles each time.
    """

    attempts: int = 3
    attempt_s: float = 5.0
    deadline_s: float = 12.0
    concurrency: int = 16
    failures: int = 5
    open_s: float = 5.0
    first_pause_s: float = 0.2


def guarded(kms: KmsClient, patience: Patience) -> CountedKms:
    """The client that a catalog calls: it counts calls, and spares a KMS that is elsewhere."""
    return CountedKms(kms) if kms.identifier == LocalKms.identifier else ResilientKms(kms, patience)


class ResilientKms(CountedKms):
    """A KMS behind the rules of this module; safe for many threads.

    Args:
        kms: the back end.
        patience: how much is borne of it.
        clock: monotonic seconds.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        kms: KmsClient,
        patience: Patience,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(kms)
        self._patience = patience
        self._clock = clock
        self._sleep = sleep
        self._pause = wait_random_exponential(multiplier=patience.first_pause_s, max=2)
        self._slots = threading.Semaphore(patience.concurrency)
        self._circuit = Circuit(
            patience.failures, patience.open_s, max(patience.open_s, _LONGEST_OPEN_S), clock
        )

    @property
    def circuit_open(self) -> bool:
        """Whether calls are kept from the KMS because it did not answer."""
        return self._circuit.is_open

    def rewrap_keys(self, items: Sequence[tuple[bytes, KeyContext]]) -> list[bytes]:
        """See `KmsClient.rewrap_keys`; a few at a time, since some KMSs take them singly."""
        pieces = (
            items[first : first + _REWRAPPED_AT_ONCE] for first in range(0, len(items), _REWRAPPED_AT_ONCE)
        )
        return [each for piece in pieces for each in super(ResilientKms, self).rewrap_keys(piece)]

    def _call(self, operation: Operation, ask: Callable[[], T]) -> T:
        until = self._clock() + self._patience.deadline_s
        retrying = Retrying(
            retry=retry_if_exception_type(KmsUnavailable),
            wait=self._pause,
            stop=lambda state: self._is_last(state, until),
            sleep=self._sleep,
            reraise=True,
        )
        return retrying(lambda: self._attempt(operation, ask, until))

    def _is_last(self, state: RetryCallState, until: float) -> bool:
        return (
            state.attempt_number >= self._patience.attempts
            or self._circuit.is_open
            or self._clock() + state.upcoming_sleep >= until
        )

    def _attempt(self, operation: Operation, ask: Callable[[], T], until: float) -> T:
        """One attempt, if the circuit and the number of those that run let it begin before `until`."""
        try:
            self._circuit.check()
            self._take_slot(until)
            try:
                probe = self._circuit.enter()
            except CircuitOpen:
                self._slots.release()
                raise
        except CircuitOpen:
            raise self._told_at_once() from None
        answered = False
        try:
            allowed = min(self._patience.attempt_s, until - self._clock())
            answer = super()._call(operation, lambda: self._in_thread(ask, allowed))
            answered = True
        except LakewardenError as error:
            answered = not isinstance(error, KmsUnavailable)
            raise
        finally:
            self._circuit.leave(probe, answered)
        return answer

    def _take_slot(self, until: float) -> None:
        """Wait for one of those that run to end, but not while the KMS is known not to answer."""
        left = 0.0 if self._circuit.is_open else max(0.0, until - self._clock())
        if not self._slots.acquire(timeout=left):
            raise KmsUnavailable(
                f"Too many calls to the KMS {self.identifier!r} are under way.",
                rule="kms-busy",
                hint="Try again later.",
            )

    def _in_thread(self, ask: Callable[[], T], seconds: float) -> T:
        """What `ask` returns or raises within so many seconds; the slot is given back when it ends."""
        outcome: Future[T] = Future()

        def run() -> None:
            try:
                outcome.set_result(ask())
            except LakewardenError as error:
                outcome.set_exception(error)
            except Exception as error:  # noqa: BLE001 - of a stranger, nothing passes but the type
                outcome.set_exception(self._failed(error))
            finally:
                self._slots.release()

        try:
            threading.Thread(target=run, name="lakewarden-kms", daemon=True).start()
        except RuntimeError as error:
            self._slots.release()
            raise self._failed(error) from None
        try:
            return outcome.result(seconds)
        except TimeoutError:
            raise KmsUnavailable(
                f"The KMS {self.identifier!r} did not answer within {seconds:.1f} s.",
                rule="kms-deadline",
                hint="Try again when it answers.",
            ) from None

    def _failed(self, error: Exception) -> KmsUnavailable:
        kind, frame = type(error).__name__, traceback.extract_tb(error.__traceback__)[-1]
        _log.error("KMS %s failed: %s at %s:%s", self.identifier, kind, frame.filename, frame.lineno)
        return KmsUnavailable(
            f"The KMS {self.identifier!r} failed with a {kind}.",
            rule="kms-failure",
            hint="The catalog's log says where.",
        )

    def _told_at_once(self) -> KmsUnavailable:
        return KmsUnavailable(
            f"The KMS {self.identifier!r} has not answered for a while, and is not asked again yet.",
            rule="kms-circuit",
            hint="Try again in some seconds.",
        )
