"""Bounds of encrypted columns: they spare files as plaintext ones would, and tell nothing to other users."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    IsNull,
    LessThan,
    Not,
    NotNull,
    Or,
    StartsWith,
)
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, LongType

from catalog.crypto.aead import Aead
from catalog.keyring.keyring import Keyring
from catalog.planning.plan import Plan
from catalog.planning.request import ScanRequest
from catalog.tables.alter import RemoveProperty, SetProperty
from catalog.tables.schema_changes import RenameColumn
from policy.errors import KmsUnavailable, LakewardenError, NotAuthorized
from tests.support.lake import ALICE, CAROL, Lake, policy
from tests.support.made_up_files import COLUMNS, SCHEMA, a_file, a_filter
from tests.support.table_keys import rewrap, rotate
from tests.support.tables import ENCRYPTED, Engine, make, name_of, records

Policies = Callable[..., None]
UNIFORM = ENCRYPTED
GROUPS = {"encryption.columns": "pii:name,score;hr:at"}
ID, NAME, SCORE = 1, 2, 3
LEAST = 100


def append(lake: Lake, tables: list[Table], given: list[dict[str, Any]]) -> None:
    """The same files to each table; a file is known by its size, beyond the least that one has."""
    for table in tables:
        engine = Engine.begin(lake, name_of(table))
        sizes = ({"file_size_in_bytes": LEAST + each.get("file_size_in_bytes", 0)} for each in given)
        engine.append(*(engine.file(**each | size) for each, size in zip(given, sizes, strict=True)))


def made_up(rng: random.Random, table: Table, first: int, count: int = 8) -> list[dict[str, Any]]:
    return [a_file(rng, table) | {"file_size_in_bytes": first + number} for number in range(count)]


def plan(lake: Lake, table: Table, row_filter: BooleanExpression, user: str = ALICE, **asked: Any) -> Plan:
    request = ScanRequest(filter=row_filter, **asked)
    return lake.services.planner.plan(lake.caller(user, "spark"), name_of(table), request)


def kept(lake: Lake, table: Table, row_filter: BooleanExpression, **asked: Any) -> list[int]:
    """The files that are planned, by their sizes."""
    files = plan(lake, table, row_filter, **asked).files
    return sorted(size - LEAST for size in files["file_size_in_bytes"].to_pylist())


def agree(lake: Lake, clear: Table, others: list[Table], seed: int, count: int = 12) -> None:
    rng, spared = random.Random(seed), 0
    everything = len(kept(lake, clear, AlwaysTrue()))
    for _ in range(count):
        row_filter = a_filter(rng, SCHEMA)
        wanted = kept(lake, clear, row_filter)
        for other in others:
            assert kept(lake, other, row_filter) == wanted, row_filter
        spared += everything - len(wanted)
    assert spared > 0


@pytest.mark.nightly
def test_the_same_files_are_spared_as_if_the_bounds_stood_in_plaintext(lake: Lake) -> None:
    clear, *encrypted = [make(lake, schema=SCHEMA, properties=each) for each in ({}, UNIFORM, GROUPS)]
    rng = random.Random(1)
    for number in range(3):
        append(lake, [clear, *encrypted], made_up(rng, clear, 1000 + 100 * number))
    agree(lake, clear, encrypted, seed=2)


def alter(lake: Lake, table: Table, *changes: Any) -> None:
    lake.services.alterer.alter(lake.caller(ALICE), name_of(table), changes)


STEPS: list[Callable[[Lake, Table], object]] = [
    lambda lake, table: alter(lake, table, SetProperty("encryption.mechanism", "envelope")),
    lambda lake, table: rotate(lake, name_of(table)),
    lambda lake, table: rewrap(lake, name_of(table)),
    lambda lake, table: alter(lake, table, SetProperty("encryption.columns", "pii:name,score;hr:at")),
    lambda lake, table: lake.services.key_rotation.rotate(lake.caller(ALICE), name_of(table)),
    lambda lake, table: lake.services.key_rewrap.rewrap(lake.caller(ALICE), name_of(table)),
    lambda lake, table: alter(lake, table, SetProperty("encryption.columns", "hr:name;pii:id,score")),
    lambda lake, table: alter(lake, table, RemoveProperty("encryption.columns")),
]


@pytest.mark.nightly
def test_every_epoch_of_a_table_spares_its_own_files(lake: Lake) -> None:
    clear, table = make(lake, schema=SCHEMA), make(lake, schema=SCHEMA)
    rng = random.Random(3)
    for number, step in enumerate([lambda *_: None, *STEPS]):
        step(lake, table)
        append(lake, [clear, table], made_up(rng, clear, 1000 + 100 * number, 4))
        agree(lake, clear, [table], seed=4 + number, count=4)
    agree(lake, clear, [table], seed=40)


def described(lower: Any, upper: Any, **more: Any) -> dict[str, Any]:
    """A file with ids between two values and ten rows, none of them null."""
    number = LongType()
    return {
        "lower_bounds": {ID: to_bytes(number, lower)},
        "upper_bounds": {ID: to_bytes(number, upper)},
        "value_counts": {ID: 10},
        "null_value_counts": {ID: 0},
    } | more


@pytest.mark.nightly
@pytest.mark.parametrize("properties", [UNIFORM, {"encryption.columns": "pii:id"}], ids=["uniform", "column"])
def test_files_beside_a_value_are_not_planned(lake: Lake, properties: dict[str, str]) -> None:
    table = make(lake, schema=SCHEMA, properties=properties)
    append(lake, [table], [described(n, n + 9) | {"file_size_in_bytes": n} for n in range(0, 100, 10)])
    assert kept(lake, table, EqualTo("id", 42)) == [40]
    assert kept(lake, table, LessThan("id", 25)) == [0, 10, 20]
    assert kept(lake, table, Or(LessThan("id", 5), GreaterThan("id", 94))) == [0, 90]
    assert kept(lake, table, IsNull("id")) == []
    assert len(kept(lake, table, NotNull("id"))) == 10


def test_bounds_follow_their_column_to_another_name(lake: Lake) -> None:
    table = make(lake, schema=SCHEMA, properties=UNIFORM)
    append(lake, [table], [described(n, n + 9) | {"file_size_in_bytes": n} for n in (0, 10)])
    alter(lake, table, RenameColumn(("id",), "key"))
    assert kept(lake, table, EqualTo("key", 12)) == [10]


def test_files_without_bounds_are_planned(lake: Lake) -> None:
    table = make(lake, schema=SCHEMA, properties=UNIFORM)
    append(lake, [table], [{"file_size_in_bytes": 1}, described(0, 9) | {"file_size_in_bytes": 2}])
    assert kept(lake, table, EqualTo("id", 42)) == [1]


@contextmanager
def counted() -> Iterator[list[int]]:
    """How many sealed values are opened meanwhile, for each key of each form."""
    found: list[int] = []
    real = Aead.open_all

    def counting(self: Aead, sealed: Any, opened: list[bytes]) -> None:
        try:
            real(self, sealed, opened)
        finally:
            found.append(len(opened))

    with patch.object(Aead, "open_all", counting):
        yield found


def test_bounds_are_opened_once_a_file_and_only_for_a_filter_on_an_encrypted_column(lake: Lake) -> None:
    table = make(lake, schema=SCHEMA, properties=GROUPS)
    rng = random.Random(5)
    full = [a_file(rng, table) for _ in range(6)]
    described_all = [each for each in full if each["value_counts"] or each["lower_bounds"]]
    append(lake, [table], described_all)
    for row_filter, opened in (
        (AlwaysTrue(), []),
        (GreaterThan("id", -1000), []),
        (NotNull("at"), 1),
        (And(NotNull("name"), NotNull("score")), 1),
    ):
        with counted() as found:
            plan(lake, table, row_filter)
        assert (found == []) == (opened == [])
        assert sum(found) <= len(described_all)


def test_bounds_of_files_that_a_clear_column_spares_stay_closed(lake: Lake) -> None:
    table = make(lake, schema=SCHEMA, properties={"encryption.columns": "pii:name"})
    names = {"lower_bounds": {NAME: b"a"}, "upper_bounds": {NAME: b"b"}}
    files = [described(n, n + 9) for n in range(0, 100, 10)]
    for each in files:
        each["lower_bounds"] |= names["lower_bounds"]
        each["upper_bounds"] |= names["upper_bounds"]
    append(lake, [table], files)
    with counted() as found:
        assert plan(lake, table, And(EqualTo("id", 42), EqualTo("name", "aa"))).files.num_rows == 1
    assert found == [1]


def test_without_the_kms_nothing_is_pruned_by_guessing(lake: Lake) -> None:
    table = make(lake, schema=SCHEMA, properties=UNIFORM)
    append(lake, [table], [described(0, 9)])

    def gone(*_: Any, **__: Any) -> Any:
        raise KmsUnavailable("The KMS does not answer.", rule="kms")

    with patch.object(Keyring, "open_peks", gone), pytest.raises(KmsUnavailable):
        plan(lake, table, EqualTo("id", 42))


# Those who may not select a column.


def about(column: str) -> dict[str, Any]:
    return {"database": ["db"], "table": ["*"], "column": [column]}


def deny(column: str) -> dict[str, Any]:
    items = [{"users": [CAROL], "accesses": [{"type": "select", "isAllowed": True}]}]
    return policy(f"no {column}", about(column), {}, denyPolicyItems=items)


def masked(column: str) -> dict[str, Any]:
    items = [
        {
            "users": [CAROL],
            "accesses": [{"type": "select", "isAllowed": True}],
            "dataMaskInfo": {"dataMaskType": "MASK_HASH"},
        }
    ]
    return policy(f"mask {column}", about(column), {}, policyType=1, dataMaskPolicyItems=items)


def told(lake: Lake, table: Table, row_filter: BooleanExpression, *columns: str) -> Any:
    """All that Carol is told of a plan, or of its refusal; and what is recorded of it."""
    caller = lake.caller(CAROL, "spark")
    request = ScanRequest(filter=row_filter, columns=columns or ("id",))
    answer: Any
    try:
        made = lake.services.planner.plan(caller, name_of(table), request)
        rows = made.files.drop_columns(["file_path", "keys"])
        keys = [
            [(key["key_name"], key["field_ids"], len(key["wrapped"])) for key in each or []]
            for each in made.files["keys"].to_pylist()
        ]
        answer = (rows.to_pylist(), keys)
    except LakewardenError as refusal:
        answer = (type(refusal), refusal.message, refusal.rule, refusal.hint, refusal.path)
    recorded = [(each.action, each.allowed, each.reasons) for each in records(lake, caller)]
    return str((answer, recorded)).replace(table.name()[-1], "TABLE")


@pytest.mark.parametrize(
    "properties", [UNIFORM, {"encryption.columns": "pii:score"}], ids=["uniform", "column"]
)
@pytest.mark.parametrize("restrict", [deny, masked])
def test_bisecting_as_a_denied_user_tells_two_different_tables_apart_by_nothing(
    lake: Lake, policies: Policies, properties: dict[str, str], restrict: Any
) -> None:
    """Two tables that differ in the values of one column alone answer every question alike."""
    low, high = (make(lake, schema=SCHEMA, properties=properties) for _ in range(2))
    double = DoubleType()
    for table, value in ((low, 10.0), (high, 1e9)):
        files = [described(n, n + 9) for n in range(0, 50, 10)]
        for number, each in enumerate(files):
            each["lower_bounds"][SCORE] = to_bytes(double, value + number)
            each["upper_bounds"][SCORE] = to_bytes(double, value + number + 0.5)
            each["value_counts"][SCORE], each["null_value_counts"][SCORE] = 10, int(value) % 10
        append(lake, [table], files)
    policies(restrict("score"))
    open_columns = [GreaterThan("id", 25), AlwaysTrue(), StartsWith("name", "a")]
    for row_filter in open_columns:
        assert told(lake, low, row_filter) == told(lake, high, row_filter)
    for compare, bound in ((LessThan, 1e12), (LessThan, 1e6), (GreaterThan, 1e6), (EqualTo, 10.25)):
        asked = compare("score", bound)
        for row_filter in (asked, Or(asked, EqualTo("id", 7))):
            answers = {told(lake, each, row_filter) for each in (low, high)}
            assert len(answers) == 1
            assert "NotAuthorized" in answers.pop()
    assert told(lake, low, AlwaysTrue(), "score") == told(lake, high, AlwaysTrue(), "score")


def test_a_filter_on_a_column_that_is_shown_through_a_mask_spares_no_file(
    lake: Lake, policies: Policies
) -> None:
    properties = {"encryption.columns": "pii:id", "encryption.masks": "nullify:id"}
    table = make(lake, schema=SCHEMA, properties=properties)
    append(lake, [table], [described(n, n + 9) | {"file_size_in_bytes": n} for n in range(0, 50, 10)])
    policies(deny("id"))
    for row_filter in (EqualTo("id", 42), EqualTo("id", 1000), IsNull("id"), Not(NotNull("id"))):
        with counted() as opened:
            assert len(kept(lake, table, row_filter, user=CAROL, columns=("id", "score"))) == 5
        assert opened == []
    assert kept(lake, table, EqualTo("id", 42), columns=("id", "score")) == [40]


def test_a_user_who_may_select_the_column_prunes_by_it_and_another_does_not_profit(
    lake: Lake, policies: Policies
) -> None:
    table = make(lake, schema=SCHEMA, properties={"encryption.columns": "pii:id;hr:name"})
    append(lake, [table], [described(n, n + 9) | {"file_size_in_bytes": n} for n in range(0, 50, 10)])
    assert kept(lake, table, EqualTo("id", 42), user=CAROL, columns=("id",)) == [40]
    policies(deny("id"))
    with pytest.raises(NotAuthorized):
        kept(lake, table, EqualTo("id", 42), user=CAROL, columns=("score",))
    assert len(kept(lake, table, AlwaysTrue(), user=CAROL, columns=("score",))) == 5


def test_what_is_compared_is_what_the_columns_are() -> None:
    """The tests above speak of columns by their ids."""
    assert [*COLUMNS][ID - 1 : SCORE] == ["id", "name", "score"]


@pytest.mark.nightly
@pytest.mark.parametrize("field_id", [-1, 99, 2**31, 10**12])
def test_statistics_of_fields_that_the_table_has_not_are_passed_over(lake: Lake, field_id: int) -> None:
    table = make(lake, schema=SCHEMA, properties=UNIFORM)
    odd = described(0, 9)
    odd["value_counts"] = odd["value_counts"] | {field_id: 10}
    append(lake, [table], [odd | {"file_size_in_bytes": 1}])
    assert kept(lake, table, EqualTo("id", 42)) == []
