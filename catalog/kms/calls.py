"""Counts KMS calls: each attempt once, by back end, operation and outcome."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeVar

from catalog.base.outside_calls import Part, outside_call
from catalog.crypto.secret import SecretBytes
from catalog.kms.interface import CreatedKey, KeyContext, KmsClient
from policy.errors import KmsUnavailable, LakewardenError

T = TypeVar("T")


class Operation(StrEnum):
    """An operation of a KMS."""

    CREATE = "create"
    WRAP = "wrap"
    UNWRAP = "unwrap"
    REWRAP = "rewrap"


class Outcome(StrEnum):
    """How a call ended: success, refusal, or no response."""

    DONE = "done"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"


class KmsCall(NamedTuple):
    """A kind of call.

    Attributes:
        kms: identifier of the back end.
        operation: what was asked for.
        outcome: how it ended.
    """

    kms: str
    operation: Operation
    outcome: Outcome


class CountedKms(KmsClient):
    """A client that passes each call to another client, and counts it; safe for many threads.

    Args:
        kms: the other one.
        name: what the catalog calls this KMS; the identifier of its back end by default.
    """

    def __init__(self, kms: KmsClient, name: str | None = None) -> None:
        self._kms = kms
        self._name = name or kms.identifier
        self._lock = threading.Lock()
        self._counts: Counter[KmsCall] = Counter()

    @property
    def circuit_open(self) -> bool:
        """Return whether a circuit breaker of the KMS is open."""
        return False

    def counts(self) -> Mapping[KmsCall, int]:
        """Return the number of calls of each kind."""
        with self._lock:
            return dict(self._counts)

    @property
    def identifier(self) -> str:
        """Return what the catalog calls this KMS."""
        return self._name

    def create_key(self, master_key_id: str, length: int, context: KeyContext) -> CreatedKey:
        """See `KmsClient.create_key`."""
        return self._call(
            Operation.CREATE,
            f"master key {master_key_id}",
            lambda: self._kms.create_key(master_key_id, length, context),
        )

    def get_key(self, wrapped: bytes, context: KeyContext) -> SecretBytes:
        """See `KmsClient.get_key`."""
        return self._call(
            Operation.UNWRAP, str(context.table_uuid), lambda: self._kms.get_key(wrapped, context)
        )

    def wrap_key(self, master_key_id: str, key: SecretBytes, context: KeyContext) -> bytes:
        """See `KmsClient.wrap_key`."""
        return self._call(
            Operation.WRAP,
            f"master key {master_key_id}",
            lambda: self._kms.wrap_key(master_key_id, key, context),
        )

    def rewrap_keys(self, items: Sequence[tuple[bytes, KeyContext]]) -> list[bytes]:
        """See `KmsClient.rewrap_keys`."""
        first = str(items[0][1].table_uuid) if items else ""
        return self._call(Operation.REWRAP, f"rewrap {first}", lambda: self._kms.rewrap_keys(items))

    def _call(self, operation: Operation, subject: str, ask: Callable[[], T]) -> T:
        """Make one call.

        Args:
            operation: what is asked for.
            subject: what it is about; what fails for one may well succeed for another.
            ask: asks the other client.
        """
        outcome = Outcome.UNAVAILABLE
        try:
            with outside_call(Part.KMS, operation):
                answer = ask()
            outcome = Outcome.DONE
        except LakewardenError as error:
            if not isinstance(error, KmsUnavailable):
                outcome = Outcome.REFUSED
            raise
        finally:
            with self._lock:
                self._counts[KmsCall(self.identifier, operation, outcome)] += 1
        return answer
