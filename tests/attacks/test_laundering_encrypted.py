"""Commits to encrypted tables: plaintext files, transplanted keys, bounds in plaintext, changed epochs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from pyiceberg.table.update import SetPropertiesUpdate, SetStatisticsUpdate

from catalog.base.errors import CommitConflict
from catalog.base.identifiers import table_name
from catalog.envelope.file_ids import file_id_of, new_file_name
from catalog.planning.plan import Plan
from catalog.writes.new_files import FileCommit, NewFile
from policy.errors import (
    DecryptionRefused,
    EncryptionPolicyViolation,
    LocationNotAllowed,
    MetadataTampered,
    MetadataUnsealed,
    NotAuthorized,
    RequestInvalid,
)
from tests.attacks.traps import OpenWatch, no_key_released
from tests.support.attacker import (
    ADDED,
    EXISTING,
    OWN_ROWS,
    Attacker,
    Siege,
    again,
    data_file,
    encrypted_file,
    entry,
    local,
    new_id,
    refused,
    updates,
)
from tests.support.lake import ALICE, ALLOWS_UNSEALED, Lake, open_lake

_ENVELOPE = {"encryption.mechanism": "envelope"}
_OTHER_KEY = "another-key"


@dataclass
class Vaults:
    """Two encrypted tables of one owner, each with one file."""

    one: Attacker
    two: Attacker


def make_vault(lake: Lake, name: str, **properties: str) -> Attacker:
    """An encrypted table with one file."""
    lake.catalog(ALICE).create_table(name, OWN_ROWS.schema, properties=_ENVELOPE | properties)
    vault = Attacker(lake, name, ALICE)
    vault.write_encrypted()
    return vault


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A catalog for commits that are all refused."""
    with open_lake(tmp_path_factory.mktemp("encrypted")) as lake:
        lake.catalog(ALICE).create_namespace("db")
        yield lake


@pytest.fixture(scope="module")
def vaults(shared: Lake) -> Vaults:
    return Vaults(make_vault(shared, "db.one"), make_vault(shared, "db.two"))


@pytest.fixture
def vault(lake: Lake) -> Attacker:
    """An encrypted table for changes that are accepted."""
    lake.catalog(ALICE).create_namespace("db")
    return make_vault(lake, "db.one")


@pytest.fixture(scope="module")
def migrated(shared: Lake) -> Attacker:
    """A table that was plaintext with one file of sequence number 1, and is encrypted since."""
    return migrate(shared)


@pytest.fixture
def moved(lake: Lake) -> Attacker:
    """A table like `migrated`, for changes that are accepted."""
    lake.catalog(ALICE).create_namespace("db", ALLOWS_UNSEALED)
    return migrate(lake)


def migrate(lake: Lake) -> Attacker:
    """Encrypt a table that has a plaintext file."""
    alice = lake.catalog(ALICE)
    alice.create_table("db.moved", OWN_ROWS.schema).append(OWN_ROWS)
    moved = Attacker(lake, "db.moved", ALICE)
    moved.commit_properties(_ENVELOPE)
    return moved


def own_path(attacker: Attacker) -> str:
    """Where a new file with a file id could lie."""
    return f"{attacker.location}/data/{new_file_name('part', 'parquet')}"


def with_keys(path: str, known: DataFile, **changes: Any) -> DataFile:
    """A file under the key metadata of another."""
    return data_file(path, key_metadata=known.key_metadata, **changes)


def keys_of(plan: Plan) -> list[int]:
    """How many keys each file of a plan has."""
    return [len(keys or ()) for keys in plan.files["keys"].to_pylist()]


def test_plaintext_file_into_an_encrypted_table(vaults: Vaults) -> None:
    planted = vaults.one.appending(entry(data_file(own_path(vaults.one))))
    refused(vaults.one, EncryptionPolicyViolation, "encryption-required", *planted)


def test_stock_append_into_an_encrypted_table(vaults: Vaults) -> None:
    """pyiceberg knows nothing of encryption; what it wrote is not accepted."""
    with pytest.raises(EncryptionPolicyViolation, match="encryption-required"):
        vaults.one.catalog.load_table("db.one").append(OWN_ROWS)


def test_plaintext_file_through_a_write_session(vaults: Vaults) -> None:
    writes, caller = vaults.one.lake.services.writes, vaults.one.lake.caller(ALICE)
    session = writes.begin(caller, table_name(["db"], "one"))
    file = NewFile(session.prefix.child(new_file_name("part", "parquet")).canonical, "parquet", 1, 100)
    with pytest.raises((EncryptionPolicyViolation, DecryptionRefused)):
        writes.commit(caller, session.id, FileCommit("append", (file,)))


def test_plaintext_delete_file_into_an_encrypted_table(vaults: Vaults) -> None:
    file = data_file(own_path(vaults.one), content=DataFileContent.POSITION_DELETES)
    planted = vaults.one.appending(entry(file), deletes=True)
    refused(vaults.one, EncryptionPolicyViolation, "encryption-required", *planted)


def test_key_metadata_of_another_file(vaults: Vaults) -> None:
    known = vaults.one.entries()[0].data_file
    planted = vaults.one.appending(entry(with_keys(own_path(vaults.one), known)))
    before = vaults.one.pointer()
    with pytest.raises(DecryptionRefused):
        vaults.one.commit(*planted)
    assert vaults.one.pointer() == before


@pytest.mark.parametrize("name", ["part-1-{}.parquet", "below/{}.parquet", "part-{}.zstd.parquet"])
def test_a_second_file_under_the_id_of_a_live_one(vaults: Vaults, name: str) -> None:
    """Keys are bound to table and id: they would open for it, and either file in the other's place."""
    known = vaults.one.entries()[0].data_file
    path = f"{vaults.one.location}/data/{name.format(file_id_of(known.file_path).hex())}"
    planted = vaults.one.appending(entry(with_keys(path, known)))
    with OpenWatch(local(vaults.one.location) / "data") as watch:
        refused(vaults.one, RequestInvalid, "duplicate-file", *planted)
        assert watch.opened() == []


def test_two_files_of_one_write_under_one_id(vaults: Vaults) -> None:
    writes, caller = vaults.one.lake.services.writes, vaults.one.lake.caller(ALICE)
    session = writes.begin(caller, table_name(["db"], "one"))
    name = new_file_name("part-0", "parquet")
    files = tuple(encrypted_file(session, each) for each in (name, name.replace("part-0", "part-1")))
    before = vaults.one.pointer()
    with pytest.raises(RequestInvalid) as refusal:
        writes.commit(caller, session.id, FileCommit("append", files))
    assert refusal.value.rule == "duplicate-file" and vaults.one.pointer() == before


@pytest.mark.parametrize("same_name", [True, False])
def test_key_metadata_of_another_table(vaults: Vaults, same_name: bool) -> None:
    """Even under the file's own name: the key belongs to the table."""
    known = vaults.two.entries()[0].data_file
    name = known.file_path.rpartition("/")[2]
    path = f"{vaults.one.location}/data/{name}" if same_name else own_path(vaults.one)
    with no_key_released(vaults.one.lake):
        refused(
            vaults.one,
            DecryptionRefused,
            "pek",
            *vaults.one.appending(entry(with_keys(path, known))),
        )


def test_another_tables_encrypted_file(vaults: Vaults) -> None:
    """Path and key metadata together: the path is refused before anything is said of the key."""
    known = vaults.two.entries()[0].data_file
    with no_key_released(vaults.one.lake):
        planted = vaults.one.appending(entry(with_keys(known.file_path, known)))
        refused(vaults.one, LocationNotAllowed, "allowed-paths", *planted)


def test_written_keys_of_another_write(vaults: Vaults) -> None:
    """A data key wrapped for one write does not open in another, not even by the same user."""
    writes, caller = vaults.one.lake.services.writes, vaults.one.lake.caller(ALICE)
    first, second = (writes.begin(caller, table_name(["db"], name)) for name in ("one", "two"))
    stolen = encrypted_file(first, new_file_name("part", "parquet"))
    path = second.prefix.child(stolen.path.rpartition("/")[2]).canonical
    file = NewFile(path, "parquet", 2, 1000, keys=stolen.keys)
    with pytest.raises(DecryptionRefused):
        writes.commit(caller, second.id, FileCommit("append", (file,)))


@pytest.mark.parametrize("forged", [b"", b"\x01", b"\x02", b"\xff" * 64, b"\x02" * 100_000], ids=len)
def test_malformed_key_metadata(vaults: Vaults, forged: bytes) -> None:
    planted = vaults.one.appending(entry(data_file(own_path(vaults.one), key_metadata=forged)))
    with pytest.raises((DecryptionRefused, EncryptionPolicyViolation)):
        vaults.one.commit(*planted)


def test_key_metadata_with_a_bit_changed(vaults: Vaults) -> None:
    """The file itself is listed again, by the manifest that replaces its own."""
    known = vaults.one.entries()[0].data_file
    assert known.key_metadata is not None
    changed = known.key_metadata[:-1] + bytes([known.key_metadata[-1] ^ 1])
    planted = vaults.one.replacing(entry(data_file(known.file_path, key_metadata=changed)))
    with pytest.raises(DecryptionRefused):
        vaults.one.commit(*planted)


def test_key_metadata_in_a_plaintext_table(siege: Siege) -> None:
    vault = make_vault(siege.lake, "db.one")
    known = vault.entries()[0].data_file
    planted = siege.attacker.appending(entry(with_keys(own_path(siege.attacker), known)))
    refused(siege.attacker, EncryptionPolicyViolation, "plaintext-required", *planted)


def test_bounds_of_encrypted_columns_on_a_new_file(vaults: Vaults) -> None:
    known = vaults.one.entries()[0].data_file
    shown = with_keys(known.file_path, known, lower_bounds={1: b"\x01" + bytes(7)})
    refused(vaults.one, EncryptionPolicyViolation, "plaintext-bounds", *vaults.one.replacing(entry(shown)))


@pytest.mark.parametrize("count", ["column_sizes", "value_counts", "null_value_counts", "nan_value_counts"])
def test_counts_and_sizes_of_encrypted_columns(vaults: Vaults, count: str) -> None:
    """How many rows of a column are null is something about what it hides."""
    known = vaults.one.entries()[0].data_file
    shown = with_keys(known.file_path, known, **{count: {2: 7}})
    refused(vaults.one, EncryptionPolicyViolation, "plaintext-bounds", *vaults.one.replacing(entry(shown)))


@pytest.mark.parametrize("bound", ["lower_bounds", "upper_bounds"])
def test_bounds_of_encrypted_columns_on_a_file_carried_over(vaults: Vaults, bound: str) -> None:
    [known] = vaults.one.entries()
    shown = with_keys(known.data_file.file_path, known.data_file, **{bound: {1: b"\x01" + bytes(7)}})
    numbers = {"sequence_number": known.sequence_number, "file_sequence_number": known.file_sequence_number}
    planted = entry(shown, EXISTING, snapshot_id=known.snapshot_id, **numbers)
    refused(vaults.one, EncryptionPolicyViolation, "plaintext-bounds", *vaults.one.replacing(planted))


def test_bounds_through_a_write_session_are_left_out(vault: Attacker) -> None:
    writes, caller = vault.lake.services.writes, vault.lake.caller(ALICE)
    session = writes.begin(caller, table_name(["db"], "one"))
    plain = encrypted_file(session, new_file_name("part", "parquet"))
    bound = {1: b"\x01" + bytes(7)}
    shown = NewFile(plain.path, "parquet", 2, 1000, keys=plain.keys, lower_bounds=bound, upper_bounds=bound)
    writes.commit(caller, session.id, FileCommit("append", (shown,)))
    assert not any(each.data_file.lower_bounds or each.data_file.upper_bounds for each in vault.entries())


def test_statistics_file_of_an_encrypted_table(vaults: Vaults) -> None:
    file = StatisticsFile(
        snapshot_id=vaults.one.metadata.current_snapshot_id,
        statistics_path=f"{vaults.one.location}/metadata/x.puffin",
        file_size_in_bytes=100,
        file_footer_size_in_bytes=10,
        blob_metadata=[],
    )
    refused(
        vaults.one, EncryptionPolicyViolation, "plaintext-statistics", SetStatisticsUpdate(statistics=file)
    )


def test_statistics_file_of_before_described_again(siege: Siege) -> None:
    """Of a statistics file that a table had as plaintext, too, no more is told once it encrypts."""
    attacker = siege.attacker
    attacker.user = ALICE
    file = StatisticsFile(
        snapshot_id=attacker.metadata.current_snapshot_id,
        statistics_path=f"{attacker.location}/metadata/x.puffin",
        file_size_in_bytes=100,
        file_footer_size_in_bytes=10,
        blob_metadata=[],
    )
    attacker.commit(SetStatisticsUpdate(statistics=file))
    attacker.commit_properties({"encryption.mechanism": "envelope"})
    assert attacker.metadata.statistics == [file]
    shown = BlobMetadata(
        type="apache-datasketches-theta-v1",
        snapshot_id=file.snapshot_id,
        sequence_number=1,
        fields=[2],
        properties={"ndv": "2"},
    )
    told = SetStatisticsUpdate(statistics=file.model_copy(update={"blob_metadata": [shown]}))
    refused(attacker, EncryptionPolicyViolation, "plaintext-statistics", told)


def test_no_transport_key_in_the_answer_to_a_refused_plan(vault: Attacker) -> None:
    """The other table's file, straight to the pointer store: no plan, no key, and nothing unwrapped."""
    known = make_vault(vault.lake, "db.two").entries()[0].data_file
    vault.commit_behind(*vault.appending(entry(with_keys(known.file_path, known))))
    with no_key_released(vault.lake), pytest.raises(MetadataUnsealed):
        vault.plan(engine="spark")


def test_encrypted_file_of_another_table_in_a_plaintext_table(siege: Siege, watch: OpenWatch) -> None:
    """The table is plaintext, so unsealed metadata is looked at: the path is refused, no key is asked for."""
    vault = make_vault(siege.lake, "db.one")
    known = vault.entries()[0].data_file
    siege.attacker.commit_behind(*siege.attacker.appending(entry(with_keys(known.file_path, known))))
    with no_key_released(siege.lake), pytest.raises(LocationNotAllowed):
        siege.attacker.plan(ALICE, engine="spark")


def test_foreign_key_metadata_on_an_own_path_gets_no_key(siege: Siege) -> None:
    """A copy of the other table's encrypted file in one's own directory, with its key metadata."""
    vault = make_vault(siege.lake, "db.one")
    known = vault.entries()[0].data_file
    copied = f"{siege.attacker.location}/data/{known.file_path.rpartition('/')[2]}"
    siege.attacker.commit_behind(*siege.attacker.appending(entry(with_keys(copied, known))))
    with no_key_released(siege.lake), pytest.raises(EncryptionPolicyViolation):
        siege.attacker.plan(ALICE, engine="spark")


def test_old_plaintext_files_of_an_encrypted_table_are_read(moved: Attacker) -> None:
    moved.write_encrypted()
    plan = moved.plan()
    assert sorted(zip(plan.files["file_sequence_number"].to_pylist(), keys_of(plan), strict=True)) == [
        (1, 0),
        (2, 1),
    ]


def test_new_plaintext_file_after_migration(migrated: Attacker) -> None:
    planted = migrated.appending(entry(data_file(own_path(migrated))))
    refused(migrated, EncryptionPolicyViolation, "encryption-required", *planted)


@pytest.mark.parametrize(
    "forged", [{"sequence_number": 1, "file_sequence_number": 1}, {"file_sequence_number": 1}], ids=str
)
def test_plaintext_file_smuggled_with_an_old_sequence_number(
    migrated: Attacker, forged: dict[str, int]
) -> None:
    smuggled = data_file(own_path(migrated))
    refused(migrated, MetadataTampered, "new-file", *migrated.appending(entry(smuggled, ADDED, **forged)))


def test_plaintext_file_smuggled_as_a_file_carried_over(migrated: Attacker) -> None:
    [known] = migrated.entries()
    smuggled = entry(
        data_file(own_path(migrated)),
        EXISTING,
        snapshot_id=known.snapshot_id,
        sequence_number=1,
        file_sequence_number=1,
    )
    planted = migrated.replacing(again(known, EXISTING), smuggled)
    refused(migrated, MetadataTampered, "carried-file", *planted)


@pytest.mark.parametrize("parent", ["none", "current"])
def test_plaintext_file_smuggled_in_a_snapshot_of_the_past(migrated: Attacker, parent: str) -> None:
    changes: dict[str, Any] = {"sequence_number": 1}
    if parent == "none":
        changes["parent_snapshot_id"] = None
    planted = migrated.replacing(entry(data_file(own_path(migrated))), **changes)
    with pytest.raises(CommitConflict, match="sequence-number"):
        migrated.commit(*planted)


def test_plaintext_file_smuggled_in_a_manifest_of_the_past(migrated: Attacker) -> None:
    """A new manifest that claims the old snapshot and its sequence number."""
    [known] = migrated.manifests()
    old = known.added_snapshot_id
    manifest = migrated.manifest([entry(data_file(own_path(migrated)))], old)
    manifest.sequence_number = manifest.min_sequence_number = 1
    planted = updates(migrated.snapshot([known, manifest], new_id()))
    refused(migrated, MetadataTampered, "new-manifest", *planted)


def test_plaintext_file_smuggled_through_the_pointer_store(moved: Attacker) -> None:
    smuggled = entry(data_file(own_path(moved)), ADDED, sequence_number=1, file_sequence_number=1)
    moved.commit_behind(*moved.appending(smuggled))
    with no_key_released(moved.lake), pytest.raises(MetadataUnsealed, match="unsealed-encrypted"):
        moved.plan(engine="spark")


def test_old_plaintext_files_may_be_carried_over(moved: Attacker) -> None:
    """An honest merge of manifests after migration, with the bounds that the old files always had."""
    [known] = moved.entries()
    assert known.data_file.lower_bounds
    moved.commit(*moved.replacing(again(known, EXISTING)))
    assert keys_of(moved.plan()) == [0]


def test_mixing_governed_properties_with_a_snapshot(migrated: Attacker) -> None:
    """Protection cannot be dropped and a plaintext file be added in one step."""
    planted = migrated.appending(entry(data_file(own_path(migrated))))
    change = SetPropertiesUpdate(updates={"encryption.mechanism": "plaintext"})
    refused(migrated, RequestInvalid, "mixed-commit", change, *planted)


def test_encrypted_files_are_read_after_protection_was_dropped(vault: Attacker) -> None:
    """They stay what the epoch of their sequence number says; new ones are plaintext, and only that."""
    known = vault.entries()[0]
    vault.commit_properties({"encryption.mechanism": "plaintext"})
    assert keys_of(vault.plan()) == [1]
    fresh = data_file(known.data_file.file_path, key_metadata=known.data_file.key_metadata)
    refused(vault, EncryptionPolicyViolation, "plaintext-required", *vault.replacing(entry(fresh)))


def test_file_under_the_former_master_key(vault: Attacker) -> None:
    """After a change of keys, old files are read under the old key and new files may not be under it."""
    lake = vault.lake
    lake.kms.create_master_key(_OTHER_KEY)
    vault.commit_properties({"encryption.master-key-id": _OTHER_KEY})
    assert keys_of(vault.plan()) == [1]
    known = vault.entries()[0].data_file
    planted = vault.replacing(entry(with_keys(known.file_path, known)))
    refused(vault, DecryptionRefused, "pek", *planted)


def test_reader_without_release_gets_no_key(siege: Siege) -> None:
    """Bob owns the table's database but has no right on the key: neither plan nor transport key."""
    make_vault(siege.lake, "bobs.vault")
    vault = Attacker(siege.lake, "bobs.vault")
    with no_key_released(siege.lake), pytest.raises(NotAuthorized):
        vault.plan()


def test_trap_sees_a_key_that_is_released(vault: Attacker) -> None:
    """What the other tests rely on: an honest plan in a catalog that holds no key asks the KMS for one."""
    with pytest.raises(AssertionError), no_key_released(vault.lake):
        assert keys_of(vault.plan()) == [1]
