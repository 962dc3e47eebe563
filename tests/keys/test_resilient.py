"""Calls to a KMS: bounded, tried again, kept off; counted. Time is moved by hand where nothing hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from catalog.keys.circuits import SUBJECTS
from catalog.keys.kms import CreatedKey, KeyContext, KmsClient
from catalog.keys.kms_calls import KmsCall, Operation, Outcome
from catalog.keys.local_kms import LocalKms
from catalog.keys.resilient import Patience, ResilientKms, guarded
from catalog.keys.secret import SecretBytes
from policy.errors import DecryptionRefused, KeyNotUsable, KmsUnavailable

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


@pytest.fixture
def far() -> Scripted:
    return Scripted()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def careful(far: KmsClient, clock: Clock, **patience: float) -> ResilientKms:
    given: dict[str, float] = {"attempts": 3, "failures": 5, "open_s": OPEN_S, **patience}
    return ResilientKms(far, Patience(**given), clock=clock, sleep=clock.sleep)  # type: ignore[arg-type]


def ask(kms: KmsClient, table: int = 7) -> bytes:
    return kms.get_key(b"wrapped", KeyContext("prod", UUID(int=table))).reveal()


def ending(kms: KmsClient, table: int) -> str:
    """How a call about a table ends: ``ok``, or the rule of the refusal."""
    try:
        return "ok" if ask(kms, table) == KEY else "another key"
    except KmsUnavailable as refusal:
        return str(refusal.rule)


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
        ask(careful(far, clock, first_pause_s=0.2))
        firsts.append(clock.slept[0])
        seconds.append(clock.slept[1])
    assert max(firsts) <= 0.2 < max(seconds) <= 0.4
    assert len(set(firsts)) == 60 and min(firsts) < 0.1


def test_no_attempt_begins_after_the_deadline(far: Scripted, clock: Clock) -> None:
    def slowly() -> None:
        clock.now += 5
        down()

    far.script = [slowly] * 9
    with pytest.raises(KmsUnavailable):
        ask(careful(far, clock, attempts=9, failures=99, deadline_s=12))
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


def test_many_keys_are_wrapped_anew_in_pieces_and_in_order(far: Scripted, clock: Clock) -> None:
    kms = careful(far, clock)
    items = [(str(number).encode(), CONTEXT) for number in range(60)]
    assert kms.rewrap_keys(items) == [b"new" + wrapped for wrapped, _ in items]
    assert kms.rewrap_keys([]) == []
    assert kms.counts() == {KmsCall("far", Operation.REWRAP, Outcome.DONE): 3}


class Opened:
    """A KMS whose circuit has just opened."""

    def __init__(self, far: Scripted, clock: Clock) -> None:
        self.far, self.clock = far, clock
        self.kms = careful(far, clock, attempts=1, failures=3)
        far.script = [down] * 3
        for _ in range(3):
            assert not self.kms.circuit_open
            self.refused("kms-down")
        assert self.kms.circuit_open

    def refused(self, rule: str) -> None:
        with pytest.raises(KmsUnavailable) as refusal:
            ask(self.kms)
        assert refusal.value.rule == rule and refusal.value.__cause__ is None


@pytest.fixture
def opened(far: Scripted, clock: Clock) -> Opened:
    return Opened(far, clock)


def test_an_open_circuit_refuses_without_asking(opened: Opened) -> None:
    for _ in range(50):
        opened.refused("kms-circuit")
    opened.clock.now += OPEN_S - 0.01
    opened.refused("kms-circuit")
    assert opened.far.calls == 3


def test_a_probe_that_succeeds_closes_the_circuit(opened: Opened) -> None:
    opened.clock.now += 2 * OPEN_S
    assert ask(opened.kms) == KEY
    assert not opened.kms.circuit_open
    opened.far.script = [down] * 2
    for _ in range(2):
        opened.refused("kms-down")
    assert ask(opened.kms) == KEY


def test_a_probe_that_is_refused_closes_the_circuit_too(opened: Opened) -> None:
    opened.clock.now += 2 * OPEN_S
    opened.far.script = [refusing]
    with pytest.raises(KeyNotUsable):
        ask(opened.kms)
    assert not opened.kms.circuit_open


def test_a_probe_that_fails_opens_for_longer_up_to_a_bound(opened: Opened) -> None:
    for longest in (10, 20, 30, 30, 30):
        opened.clock.now += 2 * longest
        opened.far.script = [down]
        opened.refused("kms-down")
        assert opened.far.script == []
        opened.clock.now += longest - 0.01
        opened.refused("kms-circuit")


def test_retries_end_when_the_circuit_opens(far: Scripted, clock: Clock) -> None:
    far.script = [down] * 9
    kms = careful(far, clock, attempts=9, failures=2)
    with pytest.raises(KmsUnavailable) as refusal:
        ask(kms)
    assert (far.calls, refusal.value.rule) == (2, "kms-down")


def test_one_caller_probes_and_the_others_are_refused(opened: Opened) -> None:
    gate, entered = threading.Event(), threading.Event()

    def waits() -> None:
        entered.set()
        assert gate.wait(30)

    opened.clock.now += 2 * OPEN_S
    opened.far.script = [waits]
    answers: list[bytes] = []
    prober = threading.Thread(target=lambda: answers.append(ask(opened.kms)))
    prober.start()
    assert entered.wait(30)
    for _ in range(20):
        opened.refused("kms-circuit")
    gate.set()
    prober.join(30)
    assert answers == [KEY] and opened.far.calls == 4
    assert ask(opened.kms) == KEY


def test_what_began_before_the_circuit_opened_does_not_close_it(far: Scripted, clock: Clock) -> None:
    gate, entered = threading.Event(), threading.Event()

    def waits() -> None:
        entered.set()
        assert gate.wait(30)

    kms = careful(far, clock, attempts=1, failures=1)
    far.script = [waits, down]
    early = threading.Thread(target=lambda: ask(kms))
    early.start()
    assert entered.wait(30)
    with pytest.raises(KmsUnavailable):
        ask(kms)
    gate.set()
    early.join(30)
    assert kms.circuit_open


class Broken(Scripted):
    """Tables of which each call fails; all others are served."""

    def __init__(self, *tables: int) -> None:
        super().__init__()
        self.tables = set(tables)
        self.failed = 0

    def get_key(self, wrapped: bytes, context: KeyContext) -> SecretBytes:
        if context.table_uuid.int in self.tables:
            self.failed += 1
            down()
        return super().get_key(wrapped, context)


def test_one_broken_key_is_left_alone_and_no_other_with_it(clock: Clock) -> None:
    far = Broken(1)
    kms = careful(far, clock, attempts=1)
    for round_ in range(200):
        ending(kms, 1)
        if round_ % 10 == 0:
            assert ask(kms, 2 + round_) == KEY
        clock.now += 0.1
    assert far.failed < 10 and ending(kms, 1) == "kms-circuit" and kms.circuit_open
    far.tables.clear()
    clock.now += 60
    assert ask(kms, 1) == KEY and not kms.circuit_open


def test_a_broken_key_alone_never_opens_the_circuit_of_all(clock: Clock) -> None:
    kms = careful(Broken(1), clock, attempts=1)
    for _ in range(100):
        ending(kms, 1)
        clock.now += 60
    assert ask(kms, 2) == KEY


def test_a_master_key_that_fails_is_left_alone_whatever_the_table(far: Scripted, clock: Clock) -> None:
    kms = careful(far, clock, attempts=1)
    far.script = [down] * 5
    for table in range(6):
        with pytest.raises(KmsUnavailable) as refusal:
            kms.create_key("bad", 32, KeyContext("prod", UUID(int=table)))
    assert refusal.value.rule == "kms-circuit"
    assert kms.create_key("lake", 32, CONTEXT).key.reveal() == KEY


def test_failures_of_several_tables_open_the_circuit_of_all(clock: Clock) -> None:
    kms = careful(Broken(*range(9)), clock, attempts=1)
    assert [ending(kms, table) for table in range(6)] == ["kms-down"] * 5 + ["kms-circuit"]
    assert ending(kms, 99) == "kms-circuit"


def test_who_has_not_failed_probes_before_those_who_have(clock: Clock) -> None:
    far = Broken(*range(5))
    kms = careful(far, clock, attempts=1)
    for table in range(5):
        ending(kms, table)
    while True:
        assert [ending(kms, table) for table in range(5)] == ["kms-circuit"] * 5
        if ending(kms, 99) == "ok":
            break
        clock.now += 0.1
    assert far.failed == 5 and ending(kms, 98) == "ok"


def test_tables_that_fail_can_probe_where_there_are_no_others(clock: Clock) -> None:
    far = Broken(*range(5))
    kms = careful(far, clock, attempts=1)
    for table in range(5):
        ending(kms, table)
    far.tables.clear()
    clock.now += 2.5 * OPEN_S
    assert [ending(kms, table) for table in range(5)] == ["ok"] * 5


def test_a_failed_probe_of_the_table_that_failed_last_does_not_double_the_time(clock: Clock) -> None:
    kms = careful(Broken(*range(5)), clock, attempts=1)
    for table in range(5):
        ending(kms, table)
    for _ in range(3):
        clock.now += 2.5 * OPEN_S
        assert ending(kms, 4) == "kms-down"
        assert ending(kms, 99) == "kms-circuit"
    clock.now += 2 * OPEN_S
    assert ask(kms, 99) == KEY


def test_when_the_kms_is_back_nobody_waits_for_a_circuit_of_his_own(clock: Clock) -> None:
    far = Broken(*range(5))
    kms = careful(far, clock, attempts=1)
    for _ in range(4):
        ending(kms, 0)
    for longest in (0, 10, 20):
        clock.now += longest
        assert ending(kms, 0) == "kms-down"
    for table in (1, 2, 3, 4):
        ending(kms, table)
    assert ending(kms, 99) == "kms-circuit"
    far.tables.clear()
    clock.now += 2 * OPEN_S
    assert [ending(kms, table) for table in (99, 0, 1, 2)] == ["ok"] * 4
    assert not any(ending(kms, table) != "ok" for table in range(5)) and not kms.circuit_open


def test_a_flood_of_failing_tables_is_forgotten_from_the_oldest_on(clock: Clock) -> None:
    kms = careful(Broken(*range(3000)), clock, attempts=1, failures=1000)
    for table in range(3000):
        ending(kms, table)
        clock.now += 60
    assert len(kms._circuits._own) == SUBJECTS


@pytest.fixture
def hanging(far: Scripted) -> Iterator[threading.Event]:
    """A KMS of which every call hangs until the event is set."""
    released = threading.Event()
    far.script = [lambda: released.wait(60)] * 99  # type: ignore[list-item]
    yield released
    released.set()


def test_an_attempt_that_hangs_is_left_behind(far: Scripted, hanging: threading.Event) -> None:
    kms = ResilientKms(far, Patience(attempts=1, attempt_s=0.05))
    with pytest.raises(KmsUnavailable) as refusal:
        ask(kms)
    assert refusal.value.rule == "kms-deadline" and refusal.value.hint
    assert kms.counts() == {KmsCall("far", Operation.UNWRAP, Outcome.UNAVAILABLE): 1}


def test_an_attempt_that_hangs_leaves_time_for_another(far: Scripted, hanging: threading.Event) -> None:
    del far.script[1:]
    kms = ResilientKms(far, Patience(attempts=2, attempt_s=0.05, first_pause_s=0.01))
    assert ask(kms) == KEY


def test_an_attempt_with_little_time_is_not_held_against_the_kms(
    far: Scripted, hanging: threading.Event, clock: Clock
) -> None:
    """The first attempt takes most of the time and is answered; the second runs out of what is left."""

    def slowly() -> None:
        clock.now += 0.07
        down()

    kms = careful(far, clock, failures=2, attempts=2, attempt_s=0.1, deadline_s=0.1, first_pause_s=0.001)
    far.script.insert(0, slowly)
    assert ending(kms, 7) == "kms-deadline" and far.calls == 2
    assert not kms.circuit_open
    assert ending(kms, 7) == "kms-deadline" and kms.circuit_open


def test_a_turn_that_comes_at_the_very_deadline_is_not_taken(far: Scripted, clock: Clock) -> None:
    class Late(threading.Semaphore):
        def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
            clock.now += 11.8
            return super().acquire(blocking, timeout)

    kms = careful(far, clock, failures=1, concurrency=1)
    kms._slots = Late(1)
    for _ in range(3):
        assert ending(kms, 7) == "kms-busy"
    assert far.calls == 0 and not kms.circuit_open


def test_who_waited_while_the_circuit_opened_takes_no_place(far: Scripted, clock: Clock) -> None:
    """He is refused; if he was quick, he was let in just before, and had his answer."""
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
    while not kms._slots._cond._waiters:  # type: ignore[attr-defined]
        pass
    gate.set()
    for caller in callers:
        caller.join(30)
    assert "kms-down" in endings and ("kms-circuit" in endings or KEY in endings)
    clock.now += 2.5 * OPEN_S
    assert ask(kms) == KEY


def test_a_kms_that_hangs_does_not_use_up_threads(far: Scripted, hanging: threading.Event) -> None:
    kms = ResilientKms(
        far, Patience(attempts=1, attempt_s=0.05, deadline_s=0.3, concurrency=4, failures=1000)
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


def test_calls_that_the_circuit_refused_are_not_counted(opened: Opened) -> None:
    before = opened.kms.counts()
    opened.refused("kms-circuit")
    assert opened.kms.counts() == before


def test_the_local_kms_is_called_directly_and_counted(kms: LocalKms) -> None:
    calls = guarded(kms, Patience())
    assert not isinstance(calls, ResilientKms) and not calls.circuit_open
    wrapped, key = calls.create_key("lake", 32, CONTEXT)
    assert calls.get_key(wrapped, CONTEXT) == key
    assert sum(calls.counts().values()) == 2
    assert isinstance(guarded(Scripted(), Patience()), ResilientKms)


def test_a_back_end_that_calls_itself_local_is_borne_no_longer_than_others() -> None:
    class Impostor(Scripted):
        identifier = "local"

    assert isinstance(guarded(Impostor(), Patience()), ResilientKms)
