"""Writes that remove files or rows, by a user who may update the table and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, EqualTo, GreaterThan, LessThan
from pyiceberg.partitioning import PartitionSpec

from catalog.base.errors import ConcurrentModification
from catalog.envelope.data_keys import new_dek
from catalog.envelope.transport import KeyLabel
from catalog.writes.new_files import FileCommit, Isolation, NewFile
from policy.errors import (
    DecryptionRefused,
    EncryptionPolicyViolation,
    LakewardenError,
    LocationNotAllowed,
    NotAuthorized,
    NotSupportedYet,
    RequestInvalid,
)
from tests.support.lake import ALICE, Lake, open_lake, policy, standard_policies, tables
from tests.support.rewrites import make_keys
from tests.support.row_changes import Ledger
from tests.support.tables import ENCRYPTED, Engine, name_of

MALLORY = "mallory"
MINE = {"users": [MALLORY], "accesses": [{"type": "select", "isAllowed": True}]}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A catalog for commits that are all refused."""
    with open_lake(tmp_path_factory.mktemp("lake")) as opened:
        opened.catalog().create_namespace("db")
        yield opened


@pytest.fixture(scope="module")
def plain(lake: Lake) -> Ledger:
    return _filled(Ledger.of(lake))


@pytest.fixture(scope="module")
def vault(lake: Lake) -> Ledger:
    return _filled(Ledger.of(lake, properties=ENCRYPTED, partition_spec=PartitionSpec()))


@pytest.fixture(scope="module")
def keyed(lake: Lake) -> Ledger:
    make_keys(lake, "ids")
    return _filled(Ledger.of(lake, properties={"encryption.columns": "ids:id"}))


def _filled(ledger: Ledger) -> Ledger:
    for part in ("a", "b"):
        ledger.append(0, 9, part)
    return ledger


def refused(
    ledger: Ledger,
    error: type[LakewardenError],
    rule: str,
    make: Callable[[Engine, str], NewFile],
    **given: Any,
) -> None:
    """Commit a delete file for the first data file; it is refused, and nothing changes."""
    before = ledger.head()
    path = min(ledger.paths())
    engine = ledger.engine()
    commit = {"base_snapshot_id": before.snapshot_id, "command": "delete"} | given
    with pytest.raises(error) as refusal:
        engine.commit(FileCommit("delete", (make(engine, path),), **commit))
    assert refusal.value.rule == rule
    assert ledger.head() == before


def part_of(ledger: Ledger, path: str) -> str:
    """The partition of a live file."""
    loaded = ledger.lake.services.loader.load_sealed(name_of(ledger.table))
    reader = ledger.lake.services.reader
    for each in reader.open(loaded, reader.manifests(loaded, ledger.head())):
        for row in each.entries.select(["file_path", "partition"]).to_pylist():
            if row["file_path"] == path:
                return str(row["partition"]["part"])
    raise AssertionError(path)


def honest(ledger: Ledger, engine: Engine, path: str, **given: Any) -> NewFile:
    partitioned = bool(ledger.engine().session.table.metadata.spec().fields)
    partition = {"part": part_of(ledger, path)} if partitioned else {}
    return ledger.deletes(engine, path, **({"partition": partition} | given))


def test_a_delete_file_for_a_file_outside_of_the_table(plain: Ledger, vault: Ledger) -> None:
    foreign = min(vault.paths())
    refused(
        plain,
        RequestInvalid,
        "delete-reference",
        lambda engine, _: plain.deletes(engine, foreign),
    )


def test_a_delete_file_outside_of_the_write(plain: Ledger) -> None:
    for path in ("file:///etc/passwd", f"{plain.table.location()}/data/{'0' * 32}.parquet"):
        refused(
            plain,
            LocationNotAllowed,
            "write-prefix",
            lambda engine, file, path=path: replace(honest(plain, engine, file), path=path),  # type: ignore[misc]
        )


def test_a_delete_file_in_plaintext_in_an_encrypted_table(vault: Ledger, keyed: Ledger) -> None:
    for ledger in (vault, keyed):
        refused(
            ledger,
            EncryptionPolicyViolation,
            "encryption-required",
            lambda engine, path, on=ledger: honest(on, engine, path, keys=()),  # type: ignore[misc]
        )


def test_a_delete_file_with_keys_of_another_file(vault: Ledger) -> None:
    refused(
        vault,
        DecryptionRefused,
        "aead",
        lambda engine, path: honest(vault, engine, path, keys=(engine.key(engine.path()),)),
    )


def test_a_delete_file_with_a_key_of_another_write_or_length(vault: Ledger) -> None:
    other = vault.engine()

    def stolen(engine: Engine, path: str) -> NewFile:
        file = honest(vault, engine, path)
        return replace(file, keys=(other.key(file.path),))

    def short(engine: Engine, path: str) -> NewFile:
        file = honest(vault, engine, path)
        return replace(file, keys=(engine.key(file.path, new_dek(16)),))

    refused(vault, DecryptionRefused, "aead", stolen)
    refused(vault, EncryptionPolicyViolation, "data-key-length", short)


def test_a_delete_file_under_the_key_of_columns(keyed: Ledger) -> None:
    """A holder of that key alone could not read it, and could make others."""
    ids = KeyLabel("ids", (1,))

    def more(engine: Engine, path: str) -> NewFile:
        file = honest(keyed, engine, path)
        return replace(file, keys=(*file.keys, engine.key(file.path, label=ids)))

    def other(engine: Engine, path: str) -> NewFile:
        file = honest(keyed, engine, path)
        return replace(file, keys=(engine.key(file.path, label=KeyLabel("ids")),))

    refused(keyed, RequestInvalid, "delete-file", more)
    refused(keyed, DecryptionRefused, "pek", other)


def test_a_data_file_without_the_keys_of_its_columns(keyed: Ledger) -> None:
    """That is the form of a delete file: what is in it would be under the footer's key."""
    before = keyed.head()
    engine = keyed.engine()
    file = keyed.file(engine, 0, 9)
    bare = replace(file, keys=file.keys[:1], footer_bytes=None, footer_sha256=None)
    with pytest.raises(EncryptionPolicyViolation):
        engine.append(bare)
    assert keyed.head() == before


def test_statistics_of_columns_in_a_delete_file(keyed: Ledger) -> None:
    """They would show values of an encrypted column."""
    for field in ("lower_bounds", "upper_bounds"):
        refused(
            keyed,
            RequestInvalid,
            "delete-file",
            lambda engine, path, told={field: {1: b"secret"}}: honest(keyed, engine, path, **told),  # type: ignore[misc]
        )


def test_a_delete_file_that_would_not_apply(plain: Ledger) -> None:
    refused(
        plain,
        RequestInvalid,
        "delete-partition",
        lambda engine, path: honest(plain, engine, path, partition={"part": "zzz"}),
    )
    refused(
        plain,
        RequestInvalid,
        "delete-file",
        lambda engine, path: plain.deletes(engine, part=part_of(plain, path)),
    )


def test_delete_files_that_are_no_position_deletes(plain: Ledger) -> None:
    refused(
        plain,
        NotSupportedYet,
        "file-format",
        lambda engine, path: honest(plain, engine, path, content=2),
    )
    refused(
        plain,
        NotSupportedYet,
        "file-format",
        lambda engine, path: honest(plain, engine, path, file_format="puffin"),
    )


def test_removal_of_files_that_the_table_does_not_have(plain: Ledger, vault: Ledger) -> None:
    before = plain.head()
    for path in (min(vault.paths()), "file:///etc/passwd", plain.table.location()):
        for command in ("delete", "update"):
            with pytest.raises(ConcurrentModification) as refusal:
                plain.commit(
                    "delete", deleted_paths=(path,), base_snapshot_id=before.snapshot_id, command=command
                )
            assert refusal.value.rule == "removed-files"
    assert plain.head() == before


def test_a_base_of_another_table_or_branch(plain: Ledger, vault: Ledger) -> None:
    before = plain.head()
    for base in (vault.head().snapshot_id, -1, 1):
        with pytest.raises(ConcurrentModification) as refusal:
            plain.commit("delete", delete_filter=EqualTo("part", "a"), base_snapshot_id=base)
        assert refusal.value.rule == "base-snapshot"
    assert plain.head() == before


#: Fields that contradict each other, each of which would decide what is checked.
CONTRADICTIONS: list[tuple[Any, dict[str, Any]]] = [
    ("append", {"deleted_paths": ("x",)}),
    ("append", {"delete_filter": EqualTo("id", 1)}),
    ("append", {"replace_partitions": True}),
    ("overwrite", {"delete_filter": EqualTo("id", 1), "replace_partitions": True}),
    ("overwrite", {"delete_filter": EqualTo("id", 1), "deleted_paths": ("x",)}),
    ("overwrite", {"command": "update", "isolation": Isolation.SNAPSHOT}),
    ("overwrite", {"deleted_paths": ("x",), "isolation": Isolation.NONE}),
    ("replace", {"command": "update"}),
    ("replace", {"delete_filter": EqualTo("id", 1)}),
    ("overwrite", {"summary": {"wap.id": "x"}}),
    ("overwrite", {"summary": {"replace-partitions": "true"}}),
    ("append", {"summary": {"source-snapshot-id": "1"}}),
    ("append", {"summary": {"published-wap-id": "x"}}),
    ("overwrite", {"wap_id": "x"}),
    ("overwrite", {"wap_id": ""}),
]


def test_fields_that_contradict_each_other(plain: Ledger) -> None:
    before = plain.head()
    for operation, given in CONTRADICTIONS:
        with pytest.raises(RequestInvalid) as refusal:
            plain.commit(operation, **given)
        assert refusal.value.rule == "operation", given
    assert plain.head() == before


def test_a_delete_file_in_place_of_a_data_file(plain: Ledger) -> None:
    engine, path = plain.engine(), min(plain.paths())
    delete = honest(plain, engine, path)
    file = replace(plain.file(engine, 0, 9), path=delete.path)
    with pytest.raises(RequestInvalid) as refusal:
        plain.commit("overwrite", [file, delete], engine, base_snapshot_id=plain.head().snapshot_id)
    assert refusal.value.rule == "duplicate-file"


def withheld(how: str) -> dict[str, Any]:
    """A policy that withholds the ids, or rows of all tables, from Mallory."""
    column = tables("*") | {"column": ["id"]}
    if how == "denied":
        return policy(how, column, {}, denyPolicyItems=[MINE])
    if how == "masked":
        items = [MINE | {"dataMaskInfo": {"dataMaskType": "MASK_HASH"}}]
        return policy(how, column, {}, policyType=1, dataMaskPolicyItems=items)
    rows = [MINE | {"rowFilterInfo": {"filterExpr": "part = 'b'"}}]
    table = {"database": ["*"], "table": ["*"]}
    return policy(how, table, {}, policyType=2, rowFilterPolicyItems=rows)


@pytest.mark.parametrize("how", ["denied", "masked", "filtered"])
@pytest.mark.parametrize("table", ["plain", "keyed"])
def test_a_filter_tells_nothing_of_what_the_user_does_not_see(
    lake: Lake, request: pytest.FixtureRequest, table: str, how: str
) -> None:
    """Whether files match, or conflict, would be known by their bounds."""
    ledger: Ledger = request.getfixturevalue(table)
    rights = policy("mallory", tables("*"), {MALLORY: ["select", "update"]})
    keys = policy("mallory-keys", {"key": ["*"]}, {MALLORY: ["release"]})
    lake.set_policies([*standard_policies(), rights, keys, withheld(how)])
    before = ledger.head()
    base = {"base_snapshot_id": before.snapshot_id}
    engine = Engine.begin(lake, name_of(ledger.table), MALLORY)
    for row_filter in (
        LessThan("id", 100),
        And(EqualTo("part", "a"), GreaterThan("id", 1000)),
        LessThan("id", 2**70),  # True for every value, but not for NULL.
    ):
        commits = [
            FileCommit("delete", (), delete_filter=row_filter),
            FileCommit("delete", (), delete_filter=AlwaysFalse(), conflict_filter=row_filter),
            FileCommit("overwrite", (), conflict_filter=row_filter, command="update", **base),
        ]
        for commit in commits:
            with pytest.raises(NotAuthorized):
                engine.commit(commit, MALLORY)
        with pytest.raises(NotAuthorized):
            lake.services.whole_files.can_delete(
                lake.caller(MALLORY), name_of(ledger.table), row_filter, "main", case_sensitive=True
            )
    assert ledger.head() == before
    lake.set_policies(standard_policies())


def test_a_user_under_a_mask_overwrites_no_rows(lake: Lake, plain: Ledger) -> None:
    """The mask would stand in the place of values."""
    rights = policy("mallory", tables("*"), {MALLORY: ["select", "update"]})
    lake.set_policies([*standard_policies(), rights, withheld("masked")])
    before = plain.head()
    engine = Engine.begin(lake, name_of(plain.table), MALLORY)
    file = plain.file(engine, 90, 91)
    for given in ({"delete_filter": AlwaysTrue()}, {"replace_partitions": True}):
        with pytest.raises(NotAuthorized) as refusal:
            engine.commit(FileCommit("overwrite", (file,), isolation=Isolation.NONE, **given), MALLORY)  # type: ignore[arg-type]
        assert refusal.value.rule == "mask"
    assert plain.head() == before
    engine.commit(FileCommit("append", (file,)), MALLORY)
    lake.set_policies(standard_policies())


def test_partitions_are_compared_for_users_who_can_select_them(lake: Lake, plain: Ledger) -> None:
    """Guesses of partition values would be answered, and directories are named by them."""
    rights = policy("mallory", tables("*"), {MALLORY: ["select", "update"]})
    denied = policy("denied", tables("*") | {"column": ["part"]}, {}, denyPolicyItems=[MINE])
    lake.set_policies([*standard_policies(), rights, denied])
    before, path = plain.head(), min(plain.paths())
    engine = Engine.begin(lake, name_of(plain.table), MALLORY)
    base = {"base_snapshot_id": before.parent_snapshot_id, "isolation": Isolation.SERIALIZABLE}
    for commit in (
        FileCommit("delete", (plain.deletes(engine, path, part="zzz"),), **base),
        FileCommit("overwrite", (plain.file(engine, 0, 9, "b"),), replace_partitions=True, **base),
    ):
        with pytest.raises(NotAuthorized):
            engine.commit(commit, MALLORY)
    with pytest.raises(ConcurrentModification) as refusal:
        engine.commit(FileCommit("delete", (), delete_filter=AlwaysTrue(), **base), MALLORY)
    assert refusal.value.path is None
    lake.set_policies(standard_policies())
    with pytest.raises(ConcurrentModification) as refusal:
        plain.commit("delete", delete_filter=AlwaysTrue(), **base)
    assert refusal.value.path in plain.paths()
    assert plain.head() == before


def test_a_removed_delete_file_brings_no_rows_back(lake: Lake) -> None:
    ledger = _filled(Ledger.of(lake))
    first, second = sorted(ledger.paths(), key=lambda path: part_of(ledger, path))
    engine = ledger.engine()
    delete = ledger.deletes(engine, first)
    ledger.commit("delete", [delete], engine, base_snapshot_id=ledger.head().snapshot_id)
    given: dict[str, Any] = {"base_snapshot_id": ledger.head().snapshot_id, "deleted_paths": (delete.path,)}
    for command in ("delete", "update", None):
        engine = ledger.engine()
        for added in ([], [ledger.file(engine, 0, 9)], [ledger.deletes(engine, second, part="b")]):
            with pytest.raises(RequestInvalid) as refusal:
                ledger.commit("overwrite", added, engine, command=command, **given)
            assert refusal.value.rule == "removed-deletes"
    ledger.commit("overwrite", **given | {"deleted_paths": (delete.path, first)})
    assert ledger.paths() == {second} and not ledger.paths(content=1)


def test_a_removed_delete_file_of_several_files_brings_no_rows_back(lake: Lake) -> None:
    """Its entry names the first and the last of them, which both need a successor."""
    ledger = Ledger.of(lake)
    paths = sorted(ledger.append(low, low + 9) for low in (0, 10, 20))
    engine = ledger.engine()
    delete = ledger.deletes(engine, *paths)
    ledger.commit("delete", [delete], engine, base_snapshot_id=ledger.head().snapshot_id)
    given: dict[str, Any] = {"base_snapshot_id": ledger.head().snapshot_id, "deleted_paths": (delete.path,)}
    for left in (paths[0], paths[2]):
        engine = ledger.engine()
        added = [ledger.deletes(engine, *(each for each in paths if each != left))]
        with pytest.raises(RequestInvalid) as refusal:
            ledger.commit("overwrite", added, engine, command="update", **given)
        assert refusal.value.rule == "removed-deletes"
    engine = ledger.engine()
    after = ledger.deletes(engine, *paths[1:])
    ledger.commit("overwrite", [after], engine, **given | {"deleted_paths": (delete.path, paths[0])})
    assert ledger.paths() == set(paths[1:]) and ledger.paths(content=1) == {after.path}


def test_a_right_to_read_is_no_right_to_ask_what_can_be_deleted(lake: Lake, plain: Ledger) -> None:
    rights = policy("mallory", tables("*"), {MALLORY: ["select"]})
    lake.set_policies([*standard_policies(), rights])
    with pytest.raises(NotAuthorized):
        lake.services.whole_files.can_delete(
            lake.caller(MALLORY), name_of(plain.table), EqualTo("part", "a"), "main", case_sensitive=True
        )
    lake.set_policies(standard_policies())
    assert lake.services.whole_files.can_delete(
        lake.caller(ALICE), name_of(plain.table), EqualTo("part", "a"), "main", case_sensitive=True
    )
