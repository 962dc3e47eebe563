"""PEKs: asked of the KMS once a while, revoked in time, never taken for one another."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from catalog.crypto.secret import SecretBytes
from catalog.envelope.peks import WAIT_TIMEOUT_S, PekCache, PekRecord, PekState, create_pek, key_check
from catalog.kms.interface import CreatedKey, KeyContext, KmsClient
from catalog.kms.local import LocalKms
from catalog.settings.kms import KmsCallSettings
from policy.errors import DecryptionRefused, KeyNotUsable, KmsUnavailable
from tests.support.clock import Clock

TABLE = UUID(int=7)


class Counting(KmsClient):
    """The local KMS behind a counter, with an outage that can be switched on and a gate to wait at."""

    identifier = "local"

    def __init__(self, kms: LocalKms) -> None:
        self.kms = kms
        self.calls = 0
        self.down = False
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def create_key(self, master_key_id: str, length: int, context: KeyContext) -> CreatedKey:
        return self.kms.create_key(master_key_id, length, context)

    def get_key(self, wrapped: bytes, context: KeyContext) -> SecretBytes:
        self.calls += 1
        self.entered.set()
        assert self.gate.wait(30)
        if self.down:
            raise KmsUnavailable("The KMS does not answer.")
        return self.kms.get_key(wrapped, context)

    def rewrap_keys(self, items: Sequence[tuple[bytes, KeyContext]]) -> list[bytes]:
        return self.kms.rewrap_keys(items)


@pytest.fixture
def counting(kms) -> Counting:
    return Counting(kms)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(counting, clock) -> PekCache:
    return PekCache({"local": counting}, catalog="prod", ttl=60, clock=clock)


@pytest.fixture
def record(kms) -> PekRecord:
    return create_pek(kms, catalog="prod", table_id="t1", table_uuid=TABLE, master_key_id="lake")


def test_one_unwrap_a_pek_and_ttl(cache, counting, clock, record):
    first = cache.get(record)
    clock.now += 59.9
    assert cache.get(record) is first
    assert counting.calls == 1
    clock.now += 0.1
    assert cache.get(record) is not first
    assert counting.calls == 2


def test_ttl_counts_from_before_the_kms_was_asked(cache, counting, clock, record):
    answer = counting.kms.get_key

    def slow(wrapped, context):
        clock.now += 50
        return answer(wrapped, context)

    counting.kms.get_key = slow
    cache.get(record)
    clock.now += 10
    cache.get(record)
    assert counting.calls == 2


def test_cached_pek_survives_an_outage_until_the_ttl_then_fails_closed(cache, counting, clock, record):
    cache.get(record)
    counting.down = True
    clock.now += 59
    cache.get(record)
    clock.now += 1
    with pytest.raises(KmsUnavailable):
        cache.get(record)


def test_failures_are_never_cached(cache, counting, record):
    counting.down = True
    for _ in range(2):
        with pytest.raises(KmsUnavailable):
            cache.get(record)
    counting.down = False
    assert cache.get(record).ref == record.ref
    assert counting.calls == 3


def test_disabled_master_key_revokes_within_the_ttl(cache, kms, clock, record):
    cache.get(record)
    kms.disable_master_key("lake")
    clock.now += 60
    with pytest.raises(KeyNotUsable):
        cache.get(record)


def test_forget_revokes_at_once_and_leaves_others(cache, counting, kms, record):
    other = create_pek(kms, catalog="prod", table_id="t1", table_uuid=TABLE, master_key_id="pii")
    cache.get(record)
    cache.get(other)
    cache.forget(record.id)
    cache.get(other)
    assert counting.calls == 2
    cache.get(record)
    assert counting.calls == 3


def in_flight(cache, counting, record, callers: int):
    """Callers that all wait for one unwrap; returns their outcomes and how to let it finish."""
    counting.gate.clear()
    counting.entered.clear()
    outcomes: list[object] = []

    def call():
        try:
            outcomes.append(cache.get(record))
        except KmsUnavailable as failure:
            outcomes.append(failure)

    threads = [threading.Thread(target=call) for _ in range(callers)]
    threads[0].start()
    assert counting.entered.wait(30)
    for thread in threads[1:]:
        thread.start()

    def finish():
        counting.gate.set()
        for thread in threads:
            thread.join(30)

    return outcomes, finish


def test_callers_at_once_share_one_unwrap(cache, counting, record):
    outcomes, finish = in_flight(cache, counting, record, 8)
    finish()
    assert counting.calls == 1
    assert len(outcomes) == 8 and len({id(pek) for pek in outcomes}) == 1


def test_unwrap_forgotten_under_way_is_not_kept(cache, counting, record):
    outcomes, finish = in_flight(cache, counting, record, 1)
    cache.forget(record.id)
    finish()
    assert len(outcomes) == 1
    cache.get(record)
    assert counting.calls == 2


def test_interrupt_of_one_thread_is_not_passed_to_those_who_waited(cache, counting, record, monkeypatch):
    def interrupted(wrapped: bytes, context: KeyContext) -> SecretBytes:
        counting.entered.set()
        assert counting.gate.wait(30)
        raise KeyboardInterrupt

    monkeypatch.setattr(counting, "get_key", interrupted)
    counting.gate.clear()
    endings: list[type[BaseException]] = []

    def call() -> None:
        try:
            cache.get(record)
        except (KeyboardInterrupt, KmsUnavailable) as failure:
            endings.append(type(failure))

    threads = [threading.Thread(target=call) for _ in range(8)]
    threads[0].start()
    assert counting.entered.wait(30)
    for thread in threads[1:]:
        thread.start()
    (flight,) = cache._flights.values()
    while len(flight._condition._waiters) < 7:
        pass
    counting.gate.set()
    for thread in threads:
        thread.join(30)
    assert sorted(each.__name__ for each in endings) == ["KeyboardInterrupt"] + ["KmsUnavailable"] * 7


def test_outage_is_shared_by_those_who_waited(cache, counting, record):
    counting.down = True
    first, finish = in_flight(cache, counting, record, 1)
    (flight,) = cache._flights.values()
    waiting, await_result = threading.Event(), flight.result

    def signalling(timeout=None):
        waiting.set()
        return await_result(timeout)

    flight.result = signalling
    second: list[BaseException | None] = []

    def call():
        with pytest.raises(KmsUnavailable) as caught:
            cache.get(record)
        second.append(caught.value)

    waiter = threading.Thread(target=call)
    waiter.start()
    assert waiting.wait(30)
    finish()
    waiter.join(30)
    assert counting.calls == 1
    assert second == first and isinstance(first[0], KmsUnavailable)


@pytest.mark.parametrize("state", [PekState.DISABLED, PekState.DESTROYED])
def test_state_of_the_record_is_obeyed_although_the_pek_is_cached(cache, record, state):
    cache.get(record)
    with pytest.raises(KeyNotUsable):
        cache.get(replace(record, state=state))


def test_decrypt_only_pek_wraps_no_new_keys(cache, record):
    retired = replace(record, state=PekState.DECRYPT_ONLY)
    assert cache.get(retired).ref == record.ref
    assert cache.get(record, for_writing=True).ref == record.ref
    with pytest.raises(KeyNotUsable):
        cache.get(retired, for_writing=True)


@pytest.mark.parametrize("changed", [{"table_uuid": UUID(int=8)}, {"wrapped": b"\x01"}])
def test_record_that_differs_is_never_served_the_cached_pek(cache, record, changed):
    cache.get(record)
    with pytest.raises(DecryptionRefused):
        cache.get(replace(record, **changed))


def test_pek_of_another_catalog_does_not_open(counting, clock, record):
    with pytest.raises(DecryptionRefused):
        PekCache({"local": counting}, catalog="test", clock=clock).get(record)


def test_pek_of_a_kms_that_is_not_configured_is_not_usable(cache, record):
    with pytest.raises(KeyNotUsable, match="not configured"):
        cache.get(replace(record, kms="vault"))


def test_key_of_another_length_is_not_a_pek(cache, kms, record):
    short = kms.create_key("lake", 16, KeyContext("prod", TABLE))
    with pytest.raises(KmsUnavailable):
        cache.get(replace(record, id=uuid4(), wrapped=short.wrapped))


def test_new_pek_has_its_own_id_and_masks_itself(kms, cache, record):
    again = create_pek(kms, catalog="prod", table_id="t1", table_uuid=TABLE, master_key_id="lake")
    assert again.id != record.id and again.version == 1 and again.kms == "local"
    assert record.wrapped.hex() not in repr(record)
    assert "aead=" not in repr(cache.get(record))


def test_pek_for_an_unknown_master_key_is_refused(kms):
    with pytest.raises(KeyNotUsable):
        create_pek(kms, catalog="prod", table_id="t1", table_uuid=TABLE, master_key_id="absent")


class Lying(Counting):
    """Answers with keys of its own making."""

    def __init__(self, kms: LocalKms, key: bytes) -> None:
        super().__init__(kms)
        self.key: bytes | None = key

    def get_key(self, wrapped: bytes, context: KeyContext) -> SecretBytes:
        real = super().get_key(wrapped, context)
        return real if self.key is None else SecretBytes(self.key)


@pytest.fixture
def lying(kms) -> Lying:
    return Lying(kms, b"w" * 32)


def test_another_key_than_the_one_made_is_refused_and_not_kept(lying, clock, record):
    cache = PekCache({"local": lying}, catalog="prod", clock=clock)
    for _ in range(2):
        with pytest.raises(KmsUnavailable) as refusal:
            cache.get(record, for_writing=True)
        assert refusal.value.rule == "key-check" and refusal.value.hint
    assert lying.calls == 2
    lying.key = None
    assert cache.get(record).ref == record.ref


def test_a_record_from_before_check_values_opens_as_it_did(cache, record):
    assert cache.get(replace(record, check=None)).ref == record.ref


@pytest.mark.parametrize("changed", [{"table_uuid": UUID(int=8)}, {"id": UUID(int=9)}, {"version": 2}])
def test_a_check_value_is_of_one_table_pek_and_version(kms, record, changed):
    key = kms.get_key(record.wrapped, KeyContext("prod", TABLE))
    other = replace(record, **changed)
    assert key_check(key, record.table_uuid, record.ref) == record.check
    assert key_check(key, other.table_uuid, other.ref) != record.check
    assert len(record.check) == 16 and record.check.hex() not in repr(record)


def test_a_check_value_is_as_written_down(record):
    """Computed by RFC 5869 in its own words, with HMAC alone."""
    key, ref = SecretBytes(bytes(range(32))), record.ref
    info = b"lakewarden/pek-check/1\0" + TABLE.bytes + ref.pek_id.bytes + b"\0\0\0\1"
    extracted = hmac.digest(bytes(32), key.reveal(), "sha256")
    assert key_check(key, TABLE, ref) == hmac.digest(extracted, info + b"\1", "sha256")[:16]


def test_a_new_version_keeps_the_id_and_has_a_check_value_of_its_own(kms, cache, record):
    newer = create_pek(
        kms,
        catalog="prod",
        table_id="t1",
        table_uuid=TABLE,
        master_key_id="lake",
        pek_id=record.id,
        version=2,
    )
    assert (newer.id, newer.version) == (record.id, 2) and newer.check != record.check
    assert set(cache.get_all([record, newer])) == {record.ref, newer.ref}


def test_keys_of_one_plan_are_waited_for_together(cache, counting, kms, clock, record):
    others = [
        create_pek(kms, catalog="prod", table_id="t1", table_uuid=TABLE, master_key_id="pii")
        for _ in range(3)
    ]
    answer = counting.kms.get_key

    def slow(wrapped, context):
        clock.now += WAIT_TIMEOUT_S / 2
        return answer(wrapped, context)

    counting.kms.get_key = slow
    with pytest.raises(KmsUnavailable) as refusal:
        cache.get_all([record, *others])
    assert refusal.value.rule == "kms-deadline" and counting.calls == 2


def test_who_waits_for_another_callers_unwrap_waits_within_bounds(counting, clock, record):
    cache = PekCache({"local": counting}, catalog="prod", wait_timeout_s=0.05, clock=clock)
    outcomes, finish = in_flight(cache, counting, record, 1)
    with pytest.raises(KmsUnavailable) as refusal:
        cache.get(record)
    assert refusal.value.rule == "kms-deadline"
    finish()
    assert len(outcomes) == 1 and counting.calls == 1
    assert cache.get(record) is outcomes[0]


def test_the_wait_for_keys_and_the_last_call_stay_below_half_a_minute():
    deadline = KmsCallSettings.model_fields["deadline_s"]
    longest = next(each.le for each in deadline.metadata if hasattr(each, "le"))
    assert deadline.default == WAIT_TIMEOUT_S == 5 and 2 * longest < 30
