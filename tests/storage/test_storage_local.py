"""Links, special files, swaps and faults on the local file system."""

from __future__ import annotations

import errno
import os
import resource
import socket
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from catalog.storage import tree
from catalog.storage.errors import ObjectMissing, ObjectTooLarge, translated
from catalog.storage.local import LocalStorage
from policy.errors import (
    LakewardenError,
    LocationInvalid,
    LocationNotAllowed,
    StorageUnavailable,
)
from policy.location.location import Location
from tests.support.swapper import Swapper
from tests.support.vectors import each_row

SECRET = b"another team's table"
OWN = b"own"
SWAPS = 10_000
STORAGE = LocalStorage()
USES: list[Callable[[Location], object]] = [
    lambda where: STORAGE.read(where, limit=100),
    lambda where: STORAGE.open_input(where).read(100),
    STORAGE.size,
]


def at(path: Path) -> Location:
    return Location.parse(f"file://{path}")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table's directory beside a directory that is none of its business."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "secret").write_bytes(SECRET)
    (tmp_path / "table" / "data").mkdir(parents=True)
    (tmp_path / "table" / "data" / "own").write_bytes(OWN)
    return tmp_path / "table"


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("use", USES)
def test_a_link_in_the_last_place_is_refused(table: Path, use: Callable[[Location], object]) -> None:
    (table / "data" / "link").symlink_to(table.parent / "other" / "secret")
    (table / "data" / "inside").symlink_to("own")
    (table / "data" / "dangling").symlink_to("nowhere")
    for name in ("link", "inside", "dangling"):
        with pytest.raises(LocationNotAllowed) as refusal:
            use(at(table / "data" / name))
        assert refusal.value.rule == "no-links"
        assert refusal.value.hint


@pytest.mark.parametrize("use", USES)
def test_a_link_in_the_middle_is_refused(table: Path, use: Callable[[Location], object]) -> None:
    (table / "linked").symlink_to(table.parent / "other")
    with pytest.raises(LocationNotAllowed) as refusal:
        use(at(table / "linked" / "secret"))
    assert refusal.value.rule == "no-links"


def test_nothing_is_created_deleted_or_listed_through_a_link(table: Path) -> None:
    (table / "linked").symlink_to(table.parent / "other")
    uses: list[Callable[[], object]] = [
        lambda: STORAGE.create(at(table / "linked" / "new"), b"x"),
        lambda: STORAGE.create(at(table / "linked" / "deeper" / "new"), b"x"),
        lambda: STORAGE.delete(at(table / "linked" / "secret")),
        lambda: STORAGE.exists(at(table / "linked" / "secret")),
        lambda: list(STORAGE.list_prefix(at(table / "linked"))),
        lambda: STORAGE.delete_prefix(at(table / "linked")),
        lambda: STORAGE.delete_prefix(at(table / "linked" / "deeper")),
    ]
    for use in uses:
        with pytest.raises(LocationNotAllowed) as refusal:
            use()
        assert refusal.value.rule == "no-links"
    assert os.listdir(table.parent / "other") == ["secret"]


def test_create_does_not_write_through_a_link_in_the_last_place(table: Path) -> None:
    (table / "data" / "link").symlink_to(table.parent / "other" / "new")
    with pytest.raises(LakewardenError) as refusal:
        STORAGE.create(at(table / "data" / "link"), b"x")
    assert refusal.value.rule == "exclusive-create"
    assert not (table.parent / "other" / "new").exists()


def test_delete_removes_a_link_and_not_what_it_names(table: Path) -> None:
    (table / "data" / "link").symlink_to(table.parent / "other" / "secret")
    assert not STORAGE.exists(at(table / "data" / "link"))
    STORAGE.delete(at(table / "data" / "link"))
    assert not (table / "data" / "link").is_symlink()
    assert (table.parent / "other" / "secret").read_bytes() == SECRET


def test_delete_prefix_does_not_follow_links(table: Path) -> None:
    (table / "data" / "linked").symlink_to(table.parent / "other")
    (table / "file").symlink_to(table.parent / "other" / "secret")
    os.mkfifo(table / "pipe")
    STORAGE.delete_prefix(at(table))
    assert not table.exists()
    assert (table.parent / "other" / "secret").read_bytes() == SECRET


def test_list_prefix_leaves_out_links_and_special_files(table: Path) -> None:
    (table / "data" / "linked").symlink_to(table.parent / "other")
    (table / "data" / "link").symlink_to(table.parent / "other" / "secret")
    os.mkfifo(table / "data" / "pipe")
    assert [found.location for found in STORAGE.list_prefix(at(table))] == [at(table / "data" / "own")]


@pytest.mark.parametrize("use", USES)
def test_special_files_are_refused_at_once(table: Path, use: Callable[[Location], object]) -> None:
    os.mkfifo(table / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(table)
        listener.bind("socket")
        for path in (table / "pipe", table / "socket", table / "data", Path("/dev/null"), Path("/dev/zero")):
            with pytest.raises(LocationNotAllowed) as refusal:
                use(at(path))
            assert refusal.value.rule == "regular-file"


def test_a_file_in_the_middle_is_refused(table: Path) -> None:
    os.mkfifo(table / "pipe")
    for path in (table / "data" / "own" / "x", table / "pipe" / "x"):
        for use in (*USES, lambda where: STORAGE.create(where, b"x")):
            with pytest.raises(LocationNotAllowed) as refusal:
                use(at(path))
            assert refusal.value.rule == "regular-file"


def test_delete_refuses_a_directory(table: Path) -> None:
    with pytest.raises(LocationNotAllowed) as refusal:
        STORAGE.delete(at(table / "data"))
    assert refusal.value.rule == "regular-file"
    assert (table / "data" / "own").exists()


def harvest(where: Location, swapper: Swapper, refusal_rule: str) -> tuple[set[bytes], set[str | None]]:
    """Contents seen and rules met while the swapper does its work, and until both kinds of answer came."""
    contents: set[bytes] = set()
    rules: set[str | None] = set()
    reads = 0
    while reads < 1000 or swapper.swaps < SWAPS or not (contents and refusal_rule in rules):
        reads += 1
        try:
            contents.add(STORAGE.read(where, limit=100))
            contents.add(STORAGE.open_input(where).read(100))
        except (LocationNotAllowed, ObjectMissing) as refusal:
            rules.add(refusal.rule)
    return contents, rules


def test_a_file_swapped_for_a_link_leaks_nothing(table: Path) -> None:
    name = table / "data" / "f"
    secret = table.parent / "other" / "secret"
    with Swapper(name, lambda p: _write(p, OWN), lambda p: p.symlink_to(secret)) as swapper:
        contents, rules = harvest(at(name), swapper, "no-links")
    assert contents == {OWN}
    assert rules <= {"no-links", "object-missing"}


def test_a_directory_swapped_for_a_link_leaks_nothing(table: Path) -> None:
    (table.parent / "other" / "f").write_bytes(SECRET)
    name = table / "part"

    def honest(path: Path) -> None:
        path.mkdir()
        (path / "f").write_bytes(OWN)

    with Swapper(name, honest, lambda p: p.symlink_to(table.parent / "other")) as swapper:
        contents, rules = harvest(at(name / "f"), swapper, "no-links")
    assert contents == {OWN}
    assert rules <= {"no-links", "object-missing", "regular-file"}


def test_a_file_swapped_for_a_pipe_is_read_or_refused_and_never_waited_for(table: Path) -> None:
    name = table / "data" / "f"
    with Swapper(name, lambda p: _write(p, OWN), os.mkfifo) as swapper:
        contents, rules = harvest(at(name), swapper, "regular-file")
    assert contents == {OWN}
    assert rules <= {"regular-file", "object-missing"}


def test_delete_prefix_of_a_swapped_directory_removes_nothing_elsewhere(table: Path) -> None:
    other = table.parent / "other"
    removed = 0
    with Swapper(table / "part", lambda p: p.mkdir(), lambda p: p.symlink_to(other)):
        for _ in range(500):
            table.mkdir(exist_ok=True)
            try:
                STORAGE.delete_prefix(at(table))
                removed += 1
            except LakewardenError:
                continue  # it was swapped between being listed and being removed
    assert removed > 0
    assert (other / "secret").read_bytes() == SECRET


@pytest.mark.parametrize("walk", [STORAGE.delete_prefix, lambda where: list(STORAGE.list_prefix(where))])
def test_a_directory_swapped_between_look_and_entry_is_not_entered(
    table: Path, walk: Callable[[Location], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The swap happens in the worst moment: right after the walk was told that it is a directory."""
    (table / "part").mkdir()
    look = os.stat

    def look_then_swap(name: object, **options: object) -> os.stat_result:
        found = look(name, **options)  # type: ignore[call-overload]
        if name == b"part" and stat.S_ISDIR(found.st_mode):
            (table / "part").rmdir()
            (table / "part").symlink_to(table.parent / "other")
        return found

    monkeypatch.setattr(tree.os, "stat", look_then_swap)
    with pytest.raises(LakewardenError):
        walk(at(table))
    assert (table.parent / "other" / "secret").read_bytes() == SECRET


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def test_the_checked_descriptor_is_the_one_that_is_read(table: Path) -> None:
    stream = STORAGE.open_input(at(table / "data" / "own"))
    (table / "data" / "own").unlink()
    (table / "data" / "own").symlink_to(table.parent / "other" / "secret")
    assert stream.read(100) == OWN


def test_a_file_that_grows_while_it_is_read_stays_within_the_limit(table: Path) -> None:
    """Files of /proc say they are empty, and then give as much as one cares to read."""
    with pytest.raises(ObjectTooLarge):
        STORAGE.read(at(Path("/proc/cpuinfo")), limit=10)


def test_a_name_outside_utf8_stops_a_listing_but_not_a_removal(table: Path) -> None:
    (Path(os.fsdecode(os.fsencode(table) + b"/\xff\xfe"))).write_bytes(b"x")
    with pytest.raises(LocationInvalid):
        list(STORAGE.list_prefix(at(table)))
    STORAGE.delete_prefix(at(table))
    assert not table.exists()


def test_a_tree_too_deep_is_refused(tmp_path: Path) -> None:
    deep = tmp_path / "deep"
    for _ in range(tree.MAX_DEPTH + 1):
        deep = deep / "d"
    deep.mkdir(parents=True)
    for use in (lambda where: list(STORAGE.list_prefix(where)), STORAGE.delete_prefix):
        with pytest.raises(LocationNotAllowed) as refusal:
            use(at(tmp_path / "deep"))
        assert refusal.value.rule == "tree-depth"


def test_no_descriptor_is_left_open(table: Path) -> None:
    (table / "data" / "link").symlink_to("own")
    before = open_descriptors()
    STORAGE.create(at(table / "made" / "here"), b"x")
    STORAGE.read(at(table / "data" / "own"), limit=9)
    list(STORAGE.list_prefix(at(table)))
    for path in ("data/link", "data/none", "none/none", "data", "data/link/x"):
        with pytest.raises(LakewardenError):
            STORAGE.read(at(table / path), limit=9)
    with pytest.raises(LakewardenError):
        STORAGE.create(at(table / "made" / "here"), b"x")
    STORAGE.delete_prefix(at(table))
    assert open_descriptors() == before


def test_permissions_follow_the_umask(table: Path) -> None:
    old = os.umask(0o027)
    try:
        STORAGE.create(at(table / "new" / "f"), b"x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((table / "new" / "f").stat().st_mode) == 0o640
    assert stat.S_IMODE((table / "new").stat().st_mode) == 0o750


@pytest.mark.nightly
def test_a_full_disk_is_typed_and_leaves_no_half_object(table: Path) -> None:
    """A limit on file sizes stands in for a full disk; the system reports both on write."""
    program = """
        import resource, signal, sys
        from pathlib import Path
        from catalog.storage.local import LocalStorage
        from policy.errors import StorageUnavailable
        from policy.location.location import Location
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            LocalStorage().create(Location.parse(sys.argv[1]), b"x" * 100_000)
        except StorageUnavailable as error:
            print(error.rule, error.hint)
    """
    where = at(table / "data" / "large")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), where.canonical],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("storage-full Free space")
    assert not STORAGE.exists(where)


@pytest.mark.nightly
def test_denied_access_is_typed(table: Path) -> None:
    (table / "data" / "own").chmod(0)
    program = """
        import os, sys
        from catalog.storage.local import LocalStorage
        from policy.errors import StorageUnavailable
        from policy.location.location import Location
        storage, where = LocalStorage(), Location.parse(sys.argv[1])
        if os.geteuid() == 0:
            os.setresuid(65534, 65534, 65534)
        for use in (lambda: storage.read(where, limit=9), lambda: storage.create(where.child("..x"), b"")):
            try:
                use()
            except StorageUnavailable as error:
                print(error.rule)
            except Exception as error:
                print(type(error).__name__)
    """
    for directory in (table, *table.parents[:4]):
        directory.chmod(directory.stat().st_mode | 0o055)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), at(table / "data" / "own").canonical],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["storage-access", "LocationNotAllowed"]


def test_running_out_of_descriptors_is_typed(table: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.open("/", os.O_RDONLY)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        with pytest.raises(StorageUnavailable) as fault:
            STORAGE.read(at(table / "data" / "own"), limit=9)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert fault.value.rule == "storage-fault"


@each_row(
    ("number", "kind", "rule"),
    [
        (errno.ENOENT, ObjectMissing, "object-missing"),
        (errno.EEXIST, LakewardenError, "exclusive-create"),
        (errno.EACCES, StorageUnavailable, "storage-access"),
        (errno.EROFS, StorageUnavailable, "storage-access"),
        (errno.ENOSPC, StorageUnavailable, "storage-full"),
        (errno.EDQUOT, StorageUnavailable, "storage-full"),
        (errno.ETIMEDOUT, StorageUnavailable, "storage-down"),
        (errno.ESTALE, StorageUnavailable, "storage-down"),
        (errno.EIO, StorageUnavailable, "storage-fault"),
        (errno.ENAMETOOLONG, LocationInvalid, "name-length"),
    ],
)
def test_every_system_error_is_translated(number: int, kind: type[LakewardenError], rule: str) -> None:
    with pytest.raises(kind) as fault, translated(Location.parse("file:///a/b")):
        raise OSError(number, os.strerror(number), "/elsewhere/password")
    assert fault.value.rule == rule
    assert fault.value.hint
    assert "password" not in str(fault.value)
    assert fault.value.path == "file:///a/b"


def test_no_system_error_escapes_untranslated() -> None:
    for number in errno.errorcode:
        with pytest.raises(LakewardenError), translated(Location.parse("file:///a/b")):
            raise OSError(number, os.strerror(number))
