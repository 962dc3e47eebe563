"""Calls to a KMS: bounded, tried again; counted. Time is moved by hand where nothing hangs."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from catalog.kms.bulkhead import Bulkhead, Slot
from catalog.kms.calls import KmsCall, Operation, Outcome
from catalog.kms.local import LocalKms
from catalog.kms.resilient import ResilientKms, guarded
from catalog.settings.kms import KmsCallSettings
from policy.errors import DecryptionRefused, KeyNotUsable, KmsUnavailable
from tests.support.scripted_kms import (
    CONTEXT,
    KEY,
    OPEN_S,
    Clock,
    Scripted,
    ask,
    careful,
    down,
    ending,
    refusing,
)


def test_a_failure_that_passes_is_not_noticed(far: Scripted, clock: Clock) -> None:
    far.script = [down, down]
    assert ask(careful(far, clock)) == KEY
    assert far.calls == 3


def test_attempts_are_bounded_and_the_last_failure_is_told(far: Scripted, clock: Clock) -> None:
    far.script = [down] * 9
    with pytest.raises(KmsUnavailable) as refusal:
        ask(careful(far, clock))
    assert (far.calls, refusal.value.rule) == (3, "kms-down")


def test_pauses_are_drawn_from_a_window_that_doubles(far: Scripted, clock: Clock) -> None:
    firsts, seconds = [], []
    for _ in range(60):
        far.script = [down, down]
        clock.slept.clear()
        ask(careful(far, clock))
        firsts.append(clock.slept[0])
        seconds.append(clock.slept[1])
    assert max(firsts) <= 0.2 < max(seconds) <= 0.4
    assert len(set(firsts)) == 60 and min(firsts) < 0.1


def test_no_attempt_begins_after_the_deadline(far: Scripted, clock: Clock) -> None:
    def slowly() -> None:
        clock.now += 5
        down()

    far.script = [slowly] * 9
    assert ending(careful(far, clock, attempts=9, failures=99, deadline_s=12), 7) == "kms-down"
    assert far.calls == 3


@pytest.mark.parametrize("refusal", [KeyNotUsable, DecryptionRefused])
def test_a_refusal_is_an_answer(far: Scripted, clock: Clock, refusal: type[Exception]) -> None:
    def refuses() -> None:
        raise refusal("No.")

    kms = careful(far, clock)
    for _ in range(9):
        far.script = [refuses]
        with pytest.raises(refusal):
            ask(kms)
    assert far.calls == 9 and not kms.circuit_open


def test_all_operations_are_tried_again(far: Scripted, clock: Clock) -> None:
    kms = careful(far, clock)
    far.script = [down]
    assert kms.create_key("lake", 32, CONTEXT).key.reveal() == KEY
    assert kms.rewrap_keys([(b"a", CONTEXT), (b"b", CONTEXT)]) == [b"newa", b"newb"]
    assert kms.identifier == "far"


def test_many_keys_are_rewrapped_in_pieces_and_in_order(far: Scripted, clock: Clock) -> None:
    kms = careful(far, clock)
    items = [(str(number).encode(), CONTEXT) for number in range(60)]
    assert kms.rewrap_keys(items) == [b"new" + wrapped for wrapped, _ in items]
    assert kms.rewrap_keys([]) == []
    assert kms.counts() == {KmsCall("far", Operation.REWRAP, Outcome.DONE): 3}


@pytest.fixture
def hanging(far: Scripted) -> Iterator[threading.Event]:
    """A KMS of which every call hangs until the event is set."""
    released = threading.Event()
    far.script = [lambda: released.wait(60)] * 99  # type: ignore[list-item]
    yield released
    released.set()


def test_an_attempt_that_hangs_is_left_behind(far: Scripted, hanging: threading.Event) -> None:
    kms = ResilientKms(far, KmsCallSettings(attempts=1, attempt_s=0.05))
    with pytest.raises(KmsUnavailable) as refusal:
        ask(kms)
    assert refusal.value.rule == "kms-deadline" and refusal.value.hint
    assert kms.counts() == {KmsCall("far", Operation.UNWRAP, Outcome.UNAVAILABLE): 1}


def test_an_attempt_that_hangs_leaves_time_for_another(far: Scripted, hanging: threading.Event) -> None:
    del far.script[1:]
    kms = ResilientKms(far, KmsCallSettings(attempts=2, attempt_s=1))
    assert ask(kms) == KEY


def test_an_attempt_with_little_time_is_not_checked_against_the_kms(
    far: Scripted, hanging: threading.Event, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt takes most of the time and is answered; the second runs out of what is left."""

    def slowly() -> None:
        clock.now += 0.07
        down()

    monkeypatch.setattr("catalog.kms.resilient._FIRST_PAUSE_S", 0.001)
    kms = careful(far, clock, failures=2, attempts=2, attempt_s=0.1, deadline_s=0.1)
    far.script.insert(0, slowly)
    assert ending(kms, 7) == "kms-deadline" and far.calls == 2
    assert not kms.circuit_open
    assert ending(kms, 7) == "kms-deadline" and kms.circuit_open


def test_a_turn_that_comes_at_the_very_deadline_is_not_taken(far: Scripted, clock: Clock) -> None:
    class Late(Bulkhead):
        def take(self, seconds: float) -> Slot | None:
            clock.now += 11.8
            return super().take(seconds)

    kms = careful(far, clock, failures=1, concurrency=1)
    kms._bulkhead = Late(1)
    for _ in range(3):
        assert ending(kms, 7) == "kms-busy"
    assert far.calls == 0 and not kms.circuit_open


def test_who_waited_while_the_circuit_opened_takes_no_place(far: Scripted, clock: Clock) -> None:
    """The caller is refused, or was quick: let in just before, with an answer."""
    gate, entered = threading.Event(), threading.Event()

    def waits() -> None:
        entered.set()
        assert gate.wait(30)
        down()

    far.script = [waits]
    kms = careful(far, clock, attempts=1, failures=1, concurrency=1)
    endings: list[object] = []

    def call() -> None:
        try:
            endings.append(ask(kms))
        except KmsUnavailable as refusal:
            endings.append(refusal.rule)

    callers = [threading.Thread(target=call) for _ in range(2)]
    callers[0].start()
    assert entered.wait(30)
    callers[1].start()
    while not kms._bulkhead._free._cond._waiters:  # type: ignore[attr-defined]
        pass
    gate.set()
    for caller in callers:
        caller.join(30)
    assert "kms-down" in endings and ("kms-circuit" in endings or KEY in endings)
    clock.now += 2.5 * OPEN_S
    assert ask(kms) == KEY


def test_a_kms_that_hangs_does_not_use_up_threads(far: Scripted, hanging: threading.Event) -> None:
    kms = ResilientKms(
        far, KmsCallSettings(attempts=1, attempt_s=0.5, deadline_s=1, concurrency=4, failures=1000)
    )
    rules: list[str | None] = []

    def call() -> None:
        with pytest.raises(KmsUnavailable) as refusal:
            ask(kms)
        rules.append(refusal.value.rule)

    callers = [threading.Thread(target=call) for _ in range(64)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(30)
    assert len(rules) == 64 and set(rules) == {"kms-deadline", "kms-busy"}
    assert far.calls == 4
    hanging.set()
    far.script.clear()
    while threading.active_count() > 1 and any(t.name == "lakewarden-kms" for t in threading.enumerate()):
        pass
    assert ask(kms) == KEY


@pytest.fixture
def expiries(monkeypatch: pytest.MonkeyPatch) -> list[threading.Timer]:
    """The timers that were started; none ends by itself."""
    started: list[threading.Timer] = []
    monkeypatch.setattr(threading.Timer, "start", lambda timer: started.append(timer))
    return started


def test_the_place_of_an_attempt_that_was_given_up_is_not_kept_for_ever(
    far: Scripted, hanging: threading.Event, clock: Clock, expiries: list[threading.Timer]
) -> None:
    del far.script[1:]
    kms = careful(far, clock, attempts=1, attempt_s=1, deadline_s=1, concurrency=1)
    assert ending(kms, 1) == "kms-deadline"
    assert ending(kms, 2) == "kms-busy" and far.calls == 1
    (expiry,) = expiries
    assert (expiry.interval, expiry.daemon) == (30, True)
    expiry.function()
    assert ending(kms, 2) == "ok"


def test_nobody_waits_for_a_place_while_the_circuit_is_open(
    far: Scripted, hanging: threading.Event, clock: Clock, expiries: list[threading.Timer]
) -> None:
    waits: list[float] = []

    class Watched(Bulkhead):
        def take(self, seconds: float) -> Slot | None:
            waits.append(seconds)
            return super().take(0)

    kms = careful(far, clock, attempts=1, attempt_s=0.1, failures=1)
    kms._bulkhead = Watched(1)
    assert ending(kms, 1) == "kms-deadline" and kms.circuit_open
    assert ending(kms, 2) == "kms-circuit"
    clock.now += 2.5 * OPEN_S
    assert ending(kms, 2) == "kms-circuit"
    assert waits == [5, 0, 0]


def test_who_waits_has_the_place_when_it_is_not_kept_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catalog.kms.bulkhead._KEPT_S", 0.05)
    bulkhead = Bulkhead(1)
    given_up = bulkhead.take(0)
    assert given_up is not None and bulkhead.take(0.01) is None
    given_up.give_up()
    assert bulkhead.take(60) is not None


def test_a_call_that_ends_after_its_place_was_lost_frees_no_other(expiries: list[threading.Timer]) -> None:
    bulkhead = Bulkhead(1)
    late = bulkhead.take(0)
    assert late is not None
    late.give_up()
    expiries[0].function()
    other = bulkhead.take(0)
    assert other is not None
    late.leave()
    assert bulkhead.take(0) is None
    other.leave()
    assert bulkhead.take(0) is not None and bulkhead.take(0) is None


def test_a_call_that_ends_before_it_is_given_up_leaves_once() -> None:
    bulkhead = Bulkhead(1)
    ended = bulkhead.take(0)
    assert ended is not None
    ended.leave()
    ended.give_up()
    ended._expiry.join()
    assert bulkhead.take(0) is not None and bulkhead.take(0) is None


def test_a_place_is_not_kept_by_a_process_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: threading.Timer) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Timer, "start", fails)
    bulkhead = Bulkhead(1)
    given_up = bulkhead.take(0)
    assert given_up is not None
    given_up.give_up()
    assert bulkhead.take(0) is not None


def test_what_a_back_end_should_not_raise_is_no_answer_and_shows_nothing(
    far: Scripted, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks() -> None:
        raise ValueError(f"cannot parse {KEY.hex()}")

    far.script = [breaks]
    with pytest.raises(KmsUnavailable) as refusal:
        ask(careful(far, clock, attempts=1))
    assert refusal.value.rule == "kms-failure" and "ValueError" in str(refusal.value)
    assert refusal.value.__cause__ is None and refusal.value.__context__ is None
    assert KEY.hex() not in caplog.text and "test_resilient.py" in caplog.text


def test_every_attempt_is_counted_once_by_its_outcome(far: Scripted, clock: Clock) -> None:
    kms = careful(far, clock)
    far.script = [down, refusing]
    with pytest.raises(KeyNotUsable):
        ask(kms)
    ask(kms)
    kms.create_key("lake", 32, CONTEXT)
    assert kms.counts() == {
        KmsCall("far", Operation.UNWRAP, Outcome.UNAVAILABLE): 1,
        KmsCall("far", Operation.UNWRAP, Outcome.REFUSED): 1,
        KmsCall("far", Operation.UNWRAP, Outcome.DONE): 1,
        KmsCall("far", Operation.CREATE, Outcome.DONE): 1,
    }


def test_the_local_kms_is_called_directly_and_counted(kms: LocalKms) -> None:
    calls = guarded(kms, KmsCallSettings())
    assert not isinstance(calls, ResilientKms) and not calls.circuit_open
    wrapped, key = calls.create_key("lake", 32, CONTEXT)
    assert calls.get_key(wrapped, CONTEXT) == key
    assert sum(calls.counts().values()) == 2
    assert isinstance(guarded(Scripted(), KmsCallSettings()), ResilientKms)


def test_a_back_end_that_calls_itself_local_is_borne_no_longer_than_others() -> None:
    class Impostor(Scripted):
        identifier = "local"

    assert isinstance(guarded(Impostor(), KmsCallSettings()), ResilientKms)
