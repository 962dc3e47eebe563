"""Ways around the rights: dropped protection, wider lists, borrowed locations, and asking what there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.update import (
    AddSchemaUpdate,
    RemovePropertiesUpdate,
    SetCurrentSchemaUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)
from pyiceberg.types import LongType, NestedField

from catalog.base.identifiers import table_name
from catalog.planning.request import ScanRequest
from catalog.reading.loading import LoadedTable
from catalog.tables.alter import SetProperty
from policy.errors import LakewardenError, LocationNotAllowed, NotAuthorized, PropertyInvalid
from tests.attacks.traps import OpenWatch
from tests.support.attacker import OWN_ROWS, SECRET_ROWS, Attacker, Siege, data_file, entry, lay_siege, local
from tests.support.lake import ALICE, BOB, CAROL, Lake, open_lake, policy, standard_policies, tables

DAVE = "dave"
_ENVELOPE = {"encryption.mechanism": "envelope"}


def storage(user: str, *urls: str) -> dict[str, Any]:
    """RWStorage on locations and what lies below them."""
    found = policy("storage", {"storage-type": ["iceberg"], "storage-url": list(urls)}, {user: ["rwstorage"]})
    found["resources"]["storage-url"]["isRecursive"] = True
    return found


def grant(lake: Lake, *policies: dict[str, Any]) -> None:
    """Put further policies in force."""
    lake.set_policies([*standard_policies(), *policies])


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacker]:
    """An encrypted table that Dave may alter, without `unprotect` or any key; changes are refused."""
    with open_lake(tmp_path_factory.mktemp("vault")) as lake:
        yield make_vault(lake)


@pytest.fixture
def fresh(lake: Lake) -> Attacker:
    """A table like `vault`, for changes that are accepted."""
    return make_vault(lake)


def make_vault(lake: Lake) -> Attacker:
    lake.catalog(ALICE).create_namespace("bobs")
    lake.catalog(ALICE).create_table("bobs.vault", OWN_ROWS.schema, properties=_ENVELOPE)
    lake.kms.create_master_key("another")
    grant(lake, _dave_alters())
    return Attacker(lake, "bobs.vault", DAVE)


def _dave_alters() -> dict[str, Any]:
    return policy("dave", tables("bobs"), {DAVE: ["select", "update", "alter", "create", "drop"]})


def governed(attacker: Attacker) -> Any:
    """What governs the attacker's table."""
    return attacker.loaded().governed


_TO_PLAINTEXT = {
    "set": SetPropertiesUpdate(updates={"encryption.mechanism": "plaintext"}),
    "set as an option": SetPropertiesUpdate(updates={"option.encryption.mechanism": "plaintext"}),
    "removed": RemovePropertiesUpdate(removals=["encryption.mechanism"]),
    "all removed": RemovePropertiesUpdate(
        removals=[
            "encryption.mechanism",
            "encryption.master-key-id",
            "encryption.algorithm",
            "encryption.data-key-length",
            "encryption.footer",
            "encryption.stock-readers",
            "encryption.verify-digest",
        ]
    ),
}


@pytest.mark.parametrize("way", _TO_PLAINTEXT)
def test_protection_dropped_without_unprotect(vault: Attacker, way: str) -> None:
    """Whatever the spelling: the table stays encrypted."""
    before = governed(vault)
    try:
        vault.commit(_TO_PLAINTEXT[way])
    except NotAuthorized as refusal:
        assert "unprotect" in str(refusal)
    assert governed(vault).spec == before.spec
    assert governed(vault).epochs == before.epochs
    assert before.spec.encrypts


_WEAKER = {
    "pages without a tag": {"encryption.algorithm": "AES_GCM_CTR_V1"},
    "as Parquet calls it": {"parquet.encryption.algorithm": "AES_GCM_CTR_V1"},
    "a footer in plaintext": {"encryption.footer": "plaintext"},
    "shorter keys": {"encryption.data-key-length": "16"},
    "some columns": {"encryption.columns": "lakewarden:id,name"},
    "another key": {"encryption.master-key-id": "another"},
    "other readers": {"encryption.stock-readers": "true"},
    "another format": {"write.format.default": "orc"},
}


def _by_commit(attacker: Attacker, properties: dict[str, str]) -> None:
    attacker.commit_properties(properties)


def _by_alter(attacker: Attacker, properties: dict[str, str]) -> None:
    changes = [SetProperty(name, value) for name, value in properties.items()]
    lake, name = attacker.lake, attacker.loaded().record.name
    lake.services.alterer.alter(lake.caller(attacker.user), name, changes)


def _beside_a_column(attacker: Attacker, properties: dict[str, str]) -> None:
    schema = attacker.metadata.schema()
    more = Schema(*schema.fields, NestedField(9, "more", LongType()), schema_id=schema.schema_id + 1)
    attacker.commit(
        AddSchemaUpdate(schema_=more),
        SetCurrentSchemaUpdate(schema_id=-1),
        SetPropertiesUpdate(updates=properties),
    )


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("door", [_by_commit, _by_alter, _beside_a_column])
@pytest.mark.parametrize("way", _WEAKER)
def test_protection_weakened_without_unprotect(
    vault: Attacker, way: str, door: Callable[[Attacker, dict[str, str]], None]
) -> None:
    """A user who can alter the table, and use every key, does not make its new files promise less."""
    grant(vault.lake, _dave_alters(), policy("dave-keys", {"key": ["*"]}, {DAVE: ["use", "release"]}))
    before = governed(vault)
    with pytest.raises(NotAuthorized, match="unprotect"):
        door(vault, _WEAKER[way])
    assert governed(vault) == before


@pytest.mark.parametrize("way", ["set", "set as an option", "all removed"])
def test_protection_dropped_with_unprotect(fresh: Attacker, way: str) -> None:
    """The same change passes with the right, so that it was the right that stopped it."""
    grant(
        fresh.lake,
        policy("dave", tables("bobs"), {DAVE: ["select", "alter", "unprotect"]}),
    )
    fresh.commit(_TO_PLAINTEXT[way])
    assert not governed(fresh).spec.encrypts


@pytest.mark.parametrize(
    "properties",
    [
        {"Encryption.Mechanism": "plaintext"},
        {"ENCRYPTION.MECHANISM": "plaintext"},
        {"encryption.mechanism ": "plaintext"},
        {"encryption-mechanism": "plaintext"},
        {"encryption.mechanizm": "plaintext"},
        {"encryptıon.mechanism": "plaintext"},
        {"Option.encryption.mechanism": "plaintext"},
        {"encryption.mechanism": "envelope", "option.encryption.mechanism": "plaintext"},
        {"encryption.key-id": "lakewarden", "encryption.master-key-id": "another"},
        {"encryption.pek-id": "x"},
        {"Read.Allowed.Data.Paths": "file:///"},
        {"read.allowed.data.path": "file:///"},
    ],
    ids=str,
)
def test_governed_property_in_disguise(vault: Attacker, properties: dict[str, str]) -> None:
    """A confusable is neither governed nor kept beside the real one; a contradiction is refused."""
    owner = Attacker(vault.lake, vault.table, ALICE)
    before = governed(owner)
    with pytest.raises(PropertyInvalid):
        owner.commit_properties(properties)
    assert governed(owner) == before
    assert owner.loaded().governed_copies == []


def test_master_key_changed_without_use_of_it(fresh: Attacker) -> None:
    fresh.lake.kms.create_master_key("weak")
    with pytest.raises(NotAuthorized):
        fresh.commit_properties({"encryption.master-key-id": "weak"})


def test_protected_table_renamed_keeps_its_protection(fresh: Attacker) -> None:
    before = governed(fresh)
    fresh.catalog.rename_table("bobs.vault", "bobs.open")
    assert governed(Attacker(fresh.lake, "bobs.open", DAVE)) == before


@pytest.mark.parametrize("target", ["the victim", "the warehouse", "beside"])
def test_list_widened_without_rwstorage(siege: Siege, watch: OpenWatch, target: str) -> None:
    wider = {
        "the victim": siege.victim.location,
        "the warehouse": f"file://{siege.lake.warehouse}",
        "beside": f"{siege.attacker.location}0",
    }[target]
    before = governed(siege.attacker)
    watch.opened()
    with pytest.raises(NotAuthorized):
        siege.attacker.commit_properties({"read.allowed.data.paths": f"{siege.attacker.location},{wider}"})
    with pytest.raises(NotAuthorized):
        siege.attacker.catalog.create_table(
            "bobs.wide", OWN_ROWS.schema, properties={"read.allowed.data.paths": wider}
        )
    assert governed(siege.attacker) == before
    assert not siege.lake.catalog(ALICE).table_exists("bobs.wide")
    assert watch.opened() == []


def test_list_widened_with_rwstorage(siege: Siege) -> None:
    """All or nothing: one path of two granted is none."""
    extra, other = (f"file://{siege.lake.root}/{name}" for name in ("extra", "other"))
    grant(siege.lake, storage(BOB, extra))
    own = siege.attacker.location
    with pytest.raises(NotAuthorized):
        siege.attacker.commit_properties({"read.allowed.data.paths": f"{own},{extra},{other}"})
    siege.attacker.commit_properties({"read.allowed.data.paths": f"{own},{extra}"})
    assert governed(siege.attacker).allowed.decide(f"{extra}/x.parquet")


def test_narrowed_list_names_the_snapshots_it_breaks(siege: Siege) -> None:
    extra = siege.lake.root / "extra"
    extra.mkdir()
    grant(siege.lake, storage(BOB, f"file://{extra}"))
    attacker, own = siege.attacker, siege.attacker.location
    attacker.commit_properties({"read.allowed.data.paths": f"{own},file://{extra}"})
    far = extra / "far.parquet"
    far.write_bytes(local(attacker.data_paths()[0]).read_bytes())
    attacker.commit(*attacker.appending(entry(data_file(f"file://{far}"))))
    broken = attacker.metadata.current_snapshot_id
    narrow = SetPropertiesUpdate(updates={"read.allowed.data.paths": own})
    with pytest.raises(LocationNotAllowed, match="narrowing") as refusal:
        attacker.commit(narrow)
    assert refusal.value.snapshot == broken
    with pytest.raises(LocationNotAllowed, match="narrowing"):
        attacker.commit(RemovePropertiesUpdate(removals=["read.allowed.data.paths"]))
    lake = siege.lake
    lake.services.committer.commit(lake.caller(BOB), table_name(["bobs"], "mine"), (), (narrow,), force=True)
    with pytest.raises(LocationNotAllowed):
        attacker.plan()


@pytest.fixture(params=["the same", "inside", "around"])
def borrowed(request: pytest.FixtureRequest, siege: Siege) -> str:
    """A location that overlaps the victim's; Bob has RWStorage on all of the warehouse."""
    grant(siege.lake, storage(BOB, f"file://{siege.lake.warehouse}"))
    victim = siege.victim.location
    around = victim.rpartition("/")[0]
    return {"the same": victim, "inside": f"{victim}/data", "around": around}[request.param]


def test_overlap_with_a_live_table(siege: Siege, borrowed: str) -> None:
    with pytest.raises(NotAuthorized):
        siege.attacker.catalog.create_table("bobs.over", OWN_ROWS.schema, location=borrowed)
    with pytest.raises(NotAuthorized):
        siege.attacker.catalog.create_table_transaction("bobs.over", OWN_ROWS.schema, location=borrowed)
    with pytest.raises(NotAuthorized):
        siege.attacker.commit(SetLocationUpdate(location=borrowed))


def test_overlap_with_a_dropped_table(siege: Siege, borrowed: str) -> None:
    """Its files are still there."""
    siege.lake.catalog(ALICE).drop_table("db.victim")
    with pytest.raises(NotAuthorized):
        siege.attacker.catalog.create_table("bobs.over", OWN_ROWS.schema, location=borrowed)
    with pytest.raises(NotAuthorized):
        siege.attacker.commit(SetLocationUpdate(location=borrowed))


def test_overlap_with_a_purged_table_is_none(siege: Siege, borrowed: str) -> None:
    siege.lake.catalog(ALICE).purge_table("db.victim")
    made = siege.attacker.catalog.create_table("bobs.over", OWN_ROWS.schema, location=borrowed)
    assert made.location() == borrowed


def test_overlap_with_alter_on_the_other_table(siege: Siege, borrowed: str) -> None:
    grant(
        siege.lake,
        storage(BOB, f"file://{siege.lake.warehouse}"),
        policy("bob-alters", tables("db"), {BOB: ["alter"]}),
    )
    made = siege.attacker.catalog.create_table("bobs.over", OWN_ROWS.schema, location=borrowed)
    assert made.location() == borrowed


def test_custom_location_is_not_inherited_without_rwstorage(siege: Siege) -> None:
    custom = f"file://{siege.lake.root}/custom"
    bob = siege.attacker.catalog
    with pytest.raises(NotAuthorized):
        bob.create_table("bobs.far", OWN_ROWS.schema, location=custom)
    grant(siege.lake, storage(BOB, custom))
    assert (
        bob.create_table("bobs.far", OWN_ROWS.schema, location=custom).properties["read.allowed.data.paths"]
        == custom
    )


def test_namespace_location_is_no_default(siege: Siege) -> None:
    """Setting it needs RWStorage, and tables do not go there without being told to."""
    elsewhere = {"location": siege.victim.location}
    with pytest.raises(NotAuthorized):
        siege.attacker.catalog.update_namespace_properties("bobs", updates=elsewhere)
    siege.lake.catalog(ALICE).update_namespace_properties("bobs", updates=elsewhere)
    made = siege.attacker.catalog.create_table("bobs.next", OWN_ROWS.schema)
    assert made.location().startswith(f"file://{siege.lake.warehouse}/bobs/next-")


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    """A siege in which every question is refused."""
    with open_lake(tmp_path_factory.mktemp("quiet")) as lake:
        yield lay_siege(lake)


Ask = Callable[[Lake, str], object]


def _commit(lake: Lake, name: str) -> LoadedTable:
    updates: Sequence[TableUpdate] = (SetPropertiesUpdate(updates={"comment": "x"}),)
    return lake.services.committer.commit(lake.caller(BOB), table_name(["db"], name), (), updates)


QUESTIONS: dict[str, Ask] = {
    "load": lambda lake, name: lake.catalog(BOB).load_table(f"db.{name}"),
    "exists": lambda lake, name: lake.catalog(BOB).table_exists(f"db.{name}"),
    "plan": lambda lake, name: lake.services.planner.plan(
        lake.caller(BOB), table_name(["db"], name), ScanRequest()
    ),
    "commit": _commit,
    "begin write": lambda lake, name: lake.services.writes.begin(lake.caller(BOB), table_name(["db"], name)),
    "create": lambda lake, name: lake.catalog(BOB).create_table(f"db.{name}", SECRET_ROWS.schema),
    "stage": lambda lake, name: lake.catalog(BOB).create_table_transaction(f"db.{name}", SECRET_ROWS.schema),
    "rename from": lambda lake, name: lake.catalog(BOB).rename_table(f"db.{name}", "bobs.taken"),
    "rename to": lambda lake, name: lake.catalog(BOB).rename_table("bobs.mine", f"db.{name}"),
    "drop": lambda lake, name: lake.catalog(BOB).drop_table(f"db.{name}"),
    "purge": lambda lake, name: lake.catalog(BOB).purge_table(f"db.{name}"),
    "register": lambda lake, name: lake.catalog(BOB).register_table(
        f"db.{name}", f"file://{lake.warehouse}/x.metadata.json"
    ),
    "adopt": lambda lake, name: lake.services.registration.adopt(lake.caller(BOB), table_name(["db"], name)),
    "reseal": lambda lake, name: lake.services.registration.reseal(
        lake.caller(BOB), table_name(["db"], name)
    ),
    "restore": lambda lake, name: lake.services.registration.restore(
        lake.caller(BOB), table_name(["db"], name)
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_existence_is_not_told_to_those_without_rights(quiet: Siege, question: str) -> None:
    """The answer for a table that is there is the answer for one that is not, but for the name."""
    answers = []
    for name in ("victim", "absent"):
        with pytest.raises(NotAuthorized) as refusal:
            QUESTIONS[question](quiet.lake, name)
        answers.append(str(refusal.value).replace(name, "…"))
    assert answers[0] == answers[1]


def test_lists_show_nothing_to_those_without_rights(siege: Siege) -> None:
    assert ("db",) not in siege.attacker.catalog.list_namespaces()
    with pytest.raises(LakewardenError):
        siege.attacker.catalog.load_namespace_properties("db")


def test_foreign_path_is_not_shown_to_readers(siege: Siege) -> None:
    """Who may only read the table is told that it breaks a rule, not where the victim's files lie."""
    grant(siege.lake, policy("carol-reads-bobs", tables("bobs"), {CAROL: ["select"]}))
    siege.attacker.commit_behind(*siege.attacker.appending(entry(siege.secret_file())))
    for ask in (siege.attacker.plan, siege.attacker.scan):
        with pytest.raises(LocationNotAllowed) as refusal:
            ask(CAROL)
        assert siege.victim.location not in str(refusal.value)
        with pytest.raises(LocationNotAllowed, match="victim"):
            ask(ALICE)
