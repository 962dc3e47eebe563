"""A KMS elsewhere that fails on purpose: a user whose key is cached goes on, all others are told in time.

The catalog's service, a back end, the way to the KMS and the KMS talk HTTP to each other over real sockets.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from catalog.base.identifiers import TableName
from catalog.envelope.data_keys import new_dek
from catalog.envelope.file_ids import FileIdentity
from catalog.envelope.transport import KeyLabel, wrap_for_write
from catalog.envelope.write_keys import WrittenKey
from catalog.kms.aws import AwsKms
from catalog.kms.interface import KmsClient
from catalog.service.services import Services
from catalog.writes.new_files import FileCommit
from policy.errors import KmsUnavailable
from tests.support.fault_proxy import AWS_DIALECT, Dialect, Fault, FaultProxy, fault_proxy, listening
from tests.support.http_kms import DIALECT, HttpKms, KmsServer
from tests.support.lake import ALICE, MASTER_KEY, Lake, lake_settings, open_lake
from tests.support.moto_kms import moto_kms
from tests.support.service import ENGINE, Service, running
from tests.support.tables import ENCRYPTED, Engine, append_files, fresh, make, name_of

pytestmark = pytest.mark.nightly

TTL_S = 60.0
MANY = 64
TABLES = 4
#: Everybody who asks has an answer within so many seconds; the bounds are set far below, so that tests end.
PROMISED_S = 30
CALLS = {
    "KMS__CALLS__ATTEMPTS": 2,
    "KMS__CALLS__ATTEMPT_S": 1,
    "KMS__CALLS__DEADLINE_S": 3,
    "KMS__CALLS__FAILURES": 4,
    "KMS__CALLS__CONCURRENCY": 2,
    "KMS__CALLS__OPEN_S": 0.05,
}


@dataclass
class Clock:
    """Monotonic seconds by which keys age, moved by hand; it goes on by itself, too."""

    moved: float = 0.0
    real: Callable[[], float] = field(default=lambda: 0.0)

    def __call__(self) -> float:
        return self.moved + self.real()


@dataclass
class Remote:
    """A served lake whose KMS is elsewhere."""

    service: Service
    proxy: FaultProxy
    clock: Clock
    client: httpx.Client
    standing: TableName = field(default_factory=fresh)

    @property
    def lake(self) -> Lake:
        return self.service.lake

    def table(self) -> TableName:
        """An encrypted table with one file, of which the catalog has no key any more."""
        name = name_of(make(self.lake, properties=ENCRYPTED))
        append_files(self.lake, name)
        self.age()
        return name

    def age(self) -> None:
        """Let every key be too old."""
        self.clock.moved += TTL_S + 1

    def plan(self, name: TableName) -> str:
        """How a plan over HTTP ends: ``ok``, or the type of the refusal."""
        answer = self.client.post(f"/engine/v1/tables/db/{name.name}/plan", json={})
        if answer.status_code == 200:
            return "ok"
        assert answer.status_code == 503, answer.text
        error = answer.json()["error"]
        assert error["hint"], error
        return str(error["lakewarden"])

    def plans(self, *names: TableName, times: int = 1) -> list[str]:
        """As many plans at once, each by a caller of its own."""
        answers: list[str] = []
        callers = [
            threading.Thread(target=lambda name=name: answers.append(self.plan(name)), daemon=True)
            for name in names
            for _ in range(times)
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(PROMISED_S)
        assert len(answers) == len(callers), "a caller was not told in time"
        return answers

    def recovered(self, name: TableName) -> bool:
        """Whether plans are made again, once the circuit has had its time."""
        return any(self.plan(name) == "ok" for _ in range(1000))


@contextmanager
def _served(
    base: Lake,
    kms_url: str,
    dialect: Dialect,
    connect: Callable[[str], KmsClient],
    master_key_id: str = MASTER_KEY,
    calls: Mapping[str, float] = CALLS,
) -> Iterator[Remote]:
    """The lake, served by a process whose KMS is behind a proxy."""
    base.catalog().create_namespace("db")
    settings = lake_settings(base.root, KMS__DEFAULT_MASTER_KEY_ID=master_key_id, **calls)
    with (
        fault_proxy(kms_url, dialect) as (url, proxy),
        Services.open(settings, connect(url)) as services,
        running(Lake(base.root, settings, services, base.kms)) as service,
        service.client(ALICE, ENGINE) as client,
    ):
        clock = Clock(real=services.keyring._cache._clock)
        services.keyring._cache._clock = clock
        client._transport = httpx.HTTPTransport(limits=httpx.Limits(max_connections=MANY))
        remote = Remote(service, proxy, clock, client)
        make(remote.lake, remote.standing, properties=ENCRYPTED)
        _append_file(remote.lake, remote.standing, master_key_id)
        yield remote


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    """A KMS that is as simple as can be."""
    with (
        open_lake(tmp_path_factory.mktemp("remote")) as base,
        listening(KmsServer(base.kms).answer) as kms_url,
        _served(base, kms_url, DIALECT, HttpKms) as found,
    ):
        yield found


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Remote]:
    """A KMS that the catalog waits for: no call has time for a second attempt."""
    waits = CALLS | {"KMS__CALLS__ATTEMPT_S": 14, "KMS__CALLS__DEADLINE_S": 14}
    with (
        open_lake(tmp_path) as base,
        listening(KmsServer(base.kms).answer) as kms_url,
        _served(base, kms_url, DIALECT, HttpKms, calls=waits) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    """AWS KMS, with the client that is used for it."""
    with open_lake(tmp_path_factory.mktemp("aws")) as base, moto_kms() as kms:

        def connect(url: str) -> AwsKms:
            return AwsKms.connect(kms.options(endpoint=url, connect_timeout_s=0.5, request_timeout_s=0.5))

        with _served(base, kms.endpoint, AWS_DIALECT, connect, kms.lake) as found:
            yield found


def _append_file(lake: Lake, name: TableName, master_key_id: str) -> None:
    """A file whose key is under that master key."""
    engine = Engine.begin(lake, name)
    path, label = engine.path(), KeyLabel(master_key_id)
    assert engine.session.transport is not None
    identity = FileIdentity.of(engine.session.table.record.table_uuid, path)
    wrapped = wrap_for_write(engine.session.transport, new_dek(32), identity, label)
    engine.append(engine.file(path, keys=(WrittenKey(label, wrapped),)))


@pytest.fixture(autouse=True)
def mended(remote: Remote) -> None:
    """Each test begins with a KMS that answers, a circuit that is closed, and keys that are too old."""
    remote.age()
    assert remote.recovered(remote.standing)
    remote.age()


def test_many_plans_of_a_cold_table_unwrap_its_key_once(remote: Remote) -> None:
    name = remote.standing
    before = remote.proxy.asked
    assert remote.plans(name, times=MANY) == ["ok"] * MANY
    assert remote.proxy.asked - before == 1
    assert remote.plans(name, times=4) == ["ok"] * 4
    assert remote.proxy.asked - before == 1


@pytest.mark.parametrize("fault", Fault)
def test_reads_go_on_inside_the_ttl_and_fail_closed_after_it(aws: Remote, fault: Fault) -> None:
    name = aws.standing
    aws.age()
    assert aws.recovered(name)
    with aws.proxy.going_wrong(fault):
        assert aws.plans(name, times=2) == ["ok"] * 2
        aws.age()
        assert aws.plans(name, times=2) == [KmsUnavailable.__name__] * 2
    assert aws.recovered(name)


@pytest.mark.parametrize("fault", [Fault.RESET, Fault.HANG, Fault.WRONG_KEY])
def test_writes_fail_closed_and_can_be_committed_later(remote: Remote, fault: Fault) -> None:
    name = remote.standing
    engine = Engine.begin(remote.lake, name)
    files = FileCommit("append", (engine.file(),))
    remote.age()
    with remote.proxy.going_wrong(fault):
        for attempt in (lambda: Engine.begin(remote.lake, name), lambda: engine.commit(files)):
            with pytest.raises(KmsUnavailable):
                attempt()
    assert remote.recovered(name)
    engine.commit(files)
    assert remote.plan(name) == "ok"


@pytest.mark.parametrize("fault", [Fault.RESET, Fault.CUT_SHORT, Fault.GARBAGE, Fault.SHORT_KEY])
def test_no_table_is_made_with_a_key_that_was_not_given(remote: Remote, fault: Fault) -> None:
    name = fresh()
    with remote.proxy.going_wrong(fault), pytest.raises(KmsUnavailable):
        make(remote.lake, name, properties=ENCRYPTED)
    assert remote.recovered(remote.standing)
    make(remote.lake, name, properties=ENCRYPTED)


def test_a_key_that_does_not_belong_to_its_wrapped_form_wraps_nothing(remote: Remote) -> None:
    name = fresh()
    with remote.proxy.going_wrong(Fault.WRONG_KEY):
        make(remote.lake, name, properties=ENCRYPTED)
    with pytest.raises(KmsUnavailable) as refusal:
        Engine.begin(remote.lake, name)
    assert refusal.value.rule == "key-check"


def test_a_wrong_key_is_never_kept(remote: Remote) -> None:
    name = remote.standing
    with remote.proxy.going_wrong(Fault.WRONG_KEY):
        assert remote.plans(name, times=8) == [KmsUnavailable.__name__] * 8
    before = remote.proxy.asked
    assert remote.plan(name) == "ok"
    assert remote.proxy.asked == before + 1


def test_everybody_is_told_when_many_wait_for_a_kms_that_hangs(remote: Remote) -> None:
    names = [remote.table() for _ in range(TABLES)]
    plain = name_of(make(remote.lake))
    before = remote.proxy.asked
    with remote.proxy.going_wrong(Fault.HANG):
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(remote.plans, *names, times=MANY // TABLES)
            assert remote.plan(plain) == "ok"
        assert waiting.result() == [KmsUnavailable.__name__] * MANY
    assert remote.proxy.asked - before < MANY / 2
    assert remote.recovered(names[0])


def test_no_storm_comes_after_an_outage(patient: Remote) -> None:
    names = [patient.table() for _ in range(TABLES)]
    with patient.proxy.going_wrong(Fault.BROKEN):
        patient.plans(*names, times=2)
        assert patient.lake.services.kms_calls.circuit_open
    before, patient.proxy.most = patient.proxy.asked, 0
    assert patient.recovered(names[0])
    assert patient.plans(*names, times=MANY // TABLES) == ["ok"] * MANY
    assert patient.proxy.asked - before == TABLES
    assert patient.proxy.most <= CALLS["KMS__CALLS__CONCURRENCY"]


def test_while_the_circuit_is_open_the_kms_is_left_alone(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [remote.table() for _ in range(TABLES)]
    circuit = remote.lake.services.kms_calls._circuits._common  # type: ignore[attr-defined]
    with remote.proxy.going_wrong(Fault.THROTTLED):
        while not circuit.is_open:
            remote.plans(*names)
        monkeypatch.setattr(circuit, "_opened_until", float("inf"))
        before = remote.proxy.asked
        assert remote.plans(*names, times=MANY // TABLES) == [KmsUnavailable.__name__] * MANY
        assert remote.proxy.asked == before
        metrics = remote.client.get("/metrics").text
        assert "lakewarden_kms_circuit_open 1\n" in metrics
    monkeypatch.setattr(circuit, "_opened_until", 0.0)
    assert all(remote.recovered(name) for name in names)
    assert "lakewarden_kms_circuit_open 0\n" in remote.client.get("/metrics").text


def test_a_revoked_master_key_is_noticed_within_the_ttl_and_is_no_outage(remote: Remote) -> None:
    name = remote.standing
    assert remote.plan(name) == "ok"
    remote.lake.kms.disable_master_key("lakewarden")
    try:
        assert remote.plan(name) == "ok"
        remote.age()
        for _ in range(10):
            answer = remote.client.post(f"/engine/v1/tables/db/{name.name}/plan", json={})
            assert (answer.status_code, answer.json()["error"]["lakewarden"]) == (403, "KeyNotUsable")
        assert not remote.lake.services.kms_calls.circuit_open
    finally:
        remote.lake.kms.enable_master_key("lakewarden")
    assert remote.plan(name) == "ok"


def test_calls_to_the_kms_are_counted_by_outcome(remote: Remote) -> None:
    name = remote.standing

    def unwraps(outcome: str) -> int:
        series = f'lakewarden_kms_calls_total{{kms="http",operation="unwrap",outcome="{outcome}"}} '
        lines = remote.client.get("/metrics").text.splitlines()
        return sum(int(line.removeprefix(series)) for line in lines if line.startswith(series))

    done, unavailable = unwraps("done"), unwraps("unavailable")
    assert remote.plan(name) == "ok"
    assert (unwraps("done"), unwraps("unavailable")) == (done + 1, unavailable)
    remote.age()
    with remote.proxy.going_wrong(Fault.RESET):
        remote.plan(name)
    assert (unwraps("done"), unwraps("unavailable")) == (done + 1, unavailable + 2)
