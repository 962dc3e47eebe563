"""A KMS elsewhere that ends each call as it was told to, and seconds that are moved by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from catalog.crypto.secret import SecretBytes
from catalog.kms.interface import CreatedKey, KeyContext, KmsClient
from catalog.kms.resilient import ResilientKms
from catalog.settings.kms import KmsCallSettings
from policy.errors import KeyNotUsable, KmsUnavailable

CONTEXT = KeyContext("prod", UUID(int=7))
KEY = bytes(range(32))
OPEN_S = 5.0


@dataclass
class Clock:
    """Seconds that pass while something sleeps."""

    now: float = 100.0
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Scripted(KmsClient):
    """Ends each call as it was told to; a call that was not foreseen succeeds."""

    identifier = "far"

    def __init__(self) -> None:
        self.script: list[Callable[[], object]] = []
        self.calls = 0
        self._lock = threading.Lock()

    def create_key(self, master_key_id: str, length: int, context: KeyContext) -> CreatedKey:
        return CreatedKey(b"wrapped", self.get_key(b"", context))

    def get_key(self, wrapped: bytes, context: KeyContext) -> SecretBytes:
        with self._lock:
            self.calls += 1
            ending = self.script.pop(0) if self.script else None
        if ending is not None:
            ending()
        return SecretBytes(KEY)

    def rewrap_keys(self, items: Sequence[tuple[bytes, KeyContext]]) -> list[bytes]:
        return [b"new" + wrapped for wrapped, _ in items]


def down() -> None:
    raise KmsUnavailable("It does not answer.", rule="kms-down")


def refusing() -> None:
    raise KeyNotUsable("The master key is disabled.", rule="master-key")


def careful(far: KmsClient, clock: Clock, **policy: float) -> ResilientKms:
    given: dict[str, float] = {"attempts": 3, "failures": 5, "open_s": OPEN_S, **policy}
    return ResilientKms(far, KmsCallSettings(**given), clock=clock, sleep=clock.sleep)  # type: ignore[arg-type]


def ask(kms: KmsClient, table: int = 7) -> bytes:
    return kms.get_key(b"wrapped", KeyContext("prod", UUID(int=table))).reveal()


def ending(kms: KmsClient, table: int) -> str:
    """How a call about a table ends: ``ok``, or the rule of the refusal."""
    try:
        return "ok" if ask(kms, table) == KEY else "another key"
    except KmsUnavailable as refusal:
        return str(refusal.rule)
