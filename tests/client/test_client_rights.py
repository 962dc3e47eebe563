"""Who may read what without Spark: the catalog decides before PyArrow sees anything; the process lives on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

import lakewarden
from policy.errors import DecryptionRefused, KeyNotUsable, NotAuthenticated, NotAuthorized
from tests.support.lake import ALICE, BOB, CAROL, policy, standard_policies, tables
from tests.support.service import ENGINE, Service
from tests.support.tables import ENCRYPTED

Make = Callable[..., str]

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "ssn", StringType()))
ROWS = pa.table({"id": [1, 2], "ssn": ["x", "y"]})
KEYED = {"encryption.columns": "pii:ssn"}
RELEASE = policy("carol-keys", {"key": ["*"]}, {CAROL: ["release"]})
NO_SSN = policy(
    "no-ssn",
    {"database": ["db"], "table": ["*"], "column": ["ssn"]},
    {},
    denyPolicyItems=[{"users": [CAROL], "accesses": [{"type": "select", "isAllowed": True}]}],
)
NO_PII = policy("carol-keys", {"key": ["lakewarden"]}, {CAROL: ["release"]})


@pytest.fixture(autouse=True)
def policies_as_they_were(served: Service) -> Iterator[None]:
    yield
    served.lake.set_policies(standard_policies())


@pytest.fixture
def carol(served: Service) -> lakewarden.Connection:
    """Carol's own process; she may read the database `db`."""
    return lakewarden.connect(served.url, served.token(CAROL))


def filled(make: Make, alice: lakewarden.Connection, properties: dict[str, str]) -> str:
    name = make(SCHEMA, properties=properties)
    alice.table(name).append(ROWS)
    return name


def test_without_a_right_nothing_is_read(make: Make, alice: lakewarden.Connection, served: Service) -> None:
    bob = lakewarden.connect(served.url, served.token(BOB))
    with pytest.raises(NotAuthorized) as caught:
        bob.table(filled(make, alice, {})).scan().to_arrow()
    assert caught.value.rule == "policy-no-match"


def test_an_encrypted_table_needs_release_in_ones_own_process(
    make: Make, alice: lakewarden.Connection, carol: lakewarden.Connection, served: Service
) -> None:
    name = filled(make, alice, ENCRYPTED)
    with pytest.raises(NotAuthorized):
        carol.table(name).scan().to_arrow()
    served.lake.set_policies([*standard_policies(), RELEASE])
    assert carol.table(name).scan().to_arrow().equals(ROWS)


def test_an_engine_reads_for_a_user_without_release(
    make: Make, alice: lakewarden.Connection, served: Service
) -> None:
    engine = lakewarden.connect(served.url, served.token(CAROL), engine_token=served.engine_token())
    name = filled(make, alice, ENCRYPTED)
    assert engine.table(name).scan().to_arrow().equals(ROWS)


@pytest.mark.parametrize("denied", [[RELEASE, NO_SSN], [NO_PII]], ids=["the column", "its key"])
def test_a_denied_column_is_refused_and_the_others_read(
    make: Make,
    alice: lakewarden.Connection,
    carol: lakewarden.Connection,
    served: Service,
    denied: list[dict],
) -> None:
    name = filled(make, alice, KEYED)
    served.lake.set_policies([*standard_policies(), *denied])
    for asked in ({}, {"columns": ["ssn"]}, {"columns": ["id"], "filter": "ssn = 'x'"}):
        with pytest.raises(NotAuthorized):
            carol.table(name).scan(**asked).to_arrow()
    assert carol.table(name).scan(columns=["id"]).to_arrow().equals(ROWS.select(["id"]))


@pytest.mark.parametrize("engine", [None, ENGINE], ids=["own process", "engine"])
def test_a_masked_column_is_null_and_is_filtered_as_such(
    make: Make, alice: lakewarden.Connection, served: Service, engine: str | None
) -> None:
    name = filled(make, alice, KEYED | {"encryption.masks": "nullify:ssn"})
    served.lake.set_policies([*standard_policies(), RELEASE, NO_SSN])
    token = served.engine_token() if engine else None
    table = lakewarden.connect(served.url, served.token(CAROL), engine_token=token).table(name)
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "ssn": None}, {"id": 2, "ssn": None}]
    assert table.scan("ssn = 'x'").to_arrow().num_rows == 0
    assert table.scan("ssn is null and id > 1", ["id"]).to_arrow().to_pylist() == [{"id": 2}]
    assert alice.table(name).scan("ssn = 'x'").to_arrow().to_pylist() == [{"id": 1, "ssn": "x"}]


DENIED = """
import sys
import lakewarden
from policy.errors import NotAuthorized

table = lakewarden.connect(sys.argv[1], sys.stdin.readline().strip()).table(sys.argv[2])
for asked in ({}, {"columns": ["ssn"]}, {"filter": "ssn = 'x'"}, {"filter": "ssn is null"}):
    try:
        table.scan(**asked).to_arrow()
    except NotAuthorized:
        print("refused")
print(table.scan("id > 1", ["id"]).to_pandas()["id"].tolist())
"""


def test_a_denied_column_does_not_end_the_process(
    make: Make, alice: lakewarden.Connection, served: Service
) -> None:
    """PyArrow aborts where statistics or filters touch a column whose key is not at hand."""
    name = filled(make, alice, KEYED)
    served.lake.set_policies([*standard_policies(), RELEASE, NO_SSN])
    done = subprocess.run(
        [sys.executable, "-c", DENIED, served.url, name],
        input=served.token(CAROL),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.split("\n")) == (0, ["refused"] * 4 + ["[2]", ""]), done.stderr


def test_what_is_taken_away_between_two_readings_is_gone(
    make: Make, alice: lakewarden.Connection, carol: lakewarden.Connection, served: Service
) -> None:
    scan = carol.table(filled(make, alice, {})).scan()
    assert scan.to_arrow().num_rows == 2
    served.lake.set_policies([each for each in standard_policies() if each["name"] != "carol-reads"])
    with pytest.raises(NotAuthorized):
        scan.to_arrow()


def test_a_reader_that_waited_too_long_asks_again(
    make: Make,
    alice: lakewarden.Connection,
    carol: lakewarden.Connection,
    served: Service,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scan = carol.table(filled(make, alice, {})).scan()
    kept, late = scan.to_reader(), scan.to_reader()
    served.lake.set_policies([each for each in standard_policies() if each["name"] != "carol-reads"])
    assert kept.read_all().num_rows == 2
    monkeypatch.setattr("catalog.client.reading.monotonic", lambda: float("inf"))
    with pytest.raises(NotAuthorized):
        late.read_all()


def test_a_disabled_key_opens_nothing(make: Make, alice: lakewarden.Connection, served: Service) -> None:
    name = filled(make, alice, ENCRYPTED)
    with served.client() as client:
        url = f"/admin/v1/tables/db/{name.removeprefix('db.')}/keys/disable"
        assert client.post(url, json={}).status_code == 200
    with pytest.raises((KeyNotUsable, DecryptionRefused)):
        alice.table(name).scan().to_arrow()


def test_appending_needs_update(make: Make, carol: lakewarden.Connection, served: Service) -> None:
    name = make(SCHEMA)
    with pytest.raises(NotAuthorized):
        carol.table(name).append(ROWS)
    served.lake.set_policies(
        [*standard_policies(), policy("carol-writes", tables("db"), {CAROL: ["select", "update"]})]
    )
    assert carol.table(name).append(ROWS) is not None
    assert carol.table(name).scan().to_arrow().equals(ROWS)


@pytest.mark.parametrize("token", ["", "with space", "line\nend", "lw_unknown"])
def test_a_token_that_is_none_is_refused_and_not_repeated(served: Service, token: str) -> None:
    with pytest.raises(NotAuthenticated) as caught:
        lakewarden.connect(served.url, token).table("db.t").scan().to_arrow()
    assert not token or token not in str(caught.value)


def test_a_token_is_shown_nowhere(served: Service) -> None:
    token, engine = served.token(ALICE), served.engine_token()
    connection = lakewarden.connect(served.url, token, engine_token=engine)
    scan = connection.table("db.none").scan()
    for shown in (repr(connection), repr(connection.table("db.none")), repr(scan), str(vars(connection))):
        assert token not in shown and engine not in shown
