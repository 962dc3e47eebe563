"""Circuit breakers before a KMS: one for all, one for each subject that fails. Time is moved by hand."""

from __future__ import annotations

import threading
from uuid import UUID

import pytest

from catalog.crypto.secret import SecretBytes
from catalog.kms.circuit_breakers import SUBJECTS
from catalog.kms.interface import KeyContext
from policy.errors import KeyNotUsable, KmsUnavailable
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


def test_processes_do_not_come_back_together(clock: Clock) -> None:
    """Circuits that open at once are open for different times."""
    many = [careful(Broken(7), clock, attempts=1, failures=1) for _ in range(10)]
    assert {ending(kms, 7) for kms in many} == {"kms-down"}
    assert len({kms._circuits._common._opened_until for kms in many}) == 10


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
    assert not kms._circuits._own, "they count as tables that have not failed"


@pytest.mark.nightly
def test_a_flood_of_failing_tables_is_forgotten_from_the_oldest_on(clock: Clock) -> None:
    kms = careful(Broken(*range(3000)), clock, attempts=1, failures=1000)
    for table in range(3000):
        ending(kms, table)
        clock.now += 60
    assert len(kms._circuits._own) == SUBJECTS


def test_calls_that_the_circuit_refused_are_not_counted(opened: Opened) -> None:
    before = opened.kms.counts()
    opened.refused("kms-circuit")
    assert opened.kms.counts() == before
