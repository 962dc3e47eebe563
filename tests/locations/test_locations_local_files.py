"""Links, pipes and special files in the engine: what its own opening of local files lets through."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from tests.support.swapper import Swapper

SECRET = b"another team's table"
OWN = b"own"
SWAPS = 10_000


class LocalFiles:
    """The engine's opening of local files, driven from here."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._jvm = gateway.jvm
        package = self._jvm.org.apache.spark.sql.lakewarden.read
        self._errors = package.ReadErrors("db.t", "file:///t/f", False)
        self._parse = package.Location.of
        self._open = package.LocalFile

    def read(self, path: Path, patience: float = 5) -> bytes:
        """The first bytes of a file.

        Args:
            patience: how long the system may take to open it, in seconds.
        """
        wait = self._jvm.java.time.Duration.ofMillis(int(patience * 1000))
        channel = self._open(self._errors, wait).open(self._parse(f"file://{path}").get())
        buffer = self._jvm.java.nio.ByteBuffer.allocate(64)
        try:
            count = channel.read(buffer)
        finally:
            channel.close()
        return bytes(buffer.array())[: max(count, 0)]

    def waiting(self) -> int:
        """How many threads wait for the system to open a file."""
        traces = self._jvm.java.lang.Thread.getAllStackTraces()
        stacks = [traces[each] for each in traces if each.getName() == "lakewarden-open"]
        return sum(any(frame.getMethodName() == "newByteChannel" for frame in stack) for stack in stacks)


@pytest.fixture(scope="module")
def engine(jvm: JavaGateway) -> LocalFiles:
    return LocalFiles(jvm)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table's directory beside a directory that is none of its business."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "f").write_bytes(SECRET)
    (tmp_path / "table" / "data").mkdir(parents=True)
    (tmp_path / "table" / "data" / "f").write_bytes(OWN)
    return tmp_path / "table"


def refusal(read: Callable[[], bytes]) -> str:
    """What the engine says of a file that it does not read."""
    with pytest.raises(Py4JJavaError) as refused:
        read()
    return str(refused.value.java_exception)


@pytest.mark.nightly
def test_a_file_is_read_by_any_name(engine: LocalFiles, table: Path) -> None:
    for name in ("a b", "p=a%2Fb", "\u6771\u4eac", "a:b", "..x"):
        (table / name).write_bytes(OWN)
        assert engine.read(table / name) == OWN


def test_links_are_refused_wherever_they_stand(engine: LocalFiles, table: Path) -> None:
    (table / "link").symlink_to(table.parent / "other" / "f")
    (table / "inside").symlink_to("data/f")
    (table / "linked").symlink_to(table.parent / "other")
    for path in ("link", "inside", "linked/f"):
        assert "link" in refusal(lambda path=path: engine.read(table / path))


def test_special_files_are_refused_without_waiting(engine: LocalFiles, table: Path) -> None:
    os.mkfifo(table / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(table)
        listener.bind("socket")
        for path in (table / "pipe", table / "socket", table / "data", Path("/dev/null"), Path("/dev/zero")):
            assert "not a regular file" in refusal(lambda path=path: engine.read(path))
    for path in (table / "pipe" / "f", table / "data" / "f" / "x"):
        assert "not a regular file" in refusal(lambda path=path: engine.read(path))
    assert engine.waiting() == 0


def harvest(engine: LocalFiles, path: Path, swapper: Swapper, patience: float = 5) -> tuple[set[bytes], int]:
    """Contents seen, and how many reads were refused, while the swapper does its work."""
    contents: set[bytes] = set()
    reads = refused = 0
    while reads < 500 or swapper.swaps < SWAPS or not (contents and refused):
        reads += 1
        try:
            contents.add(engine.read(path, patience))
        except Py4JJavaError as failure:
            assert "not a regular file" in str(failure.java_exception)
            refused += 1
    return contents, refused


@pytest.mark.nightly
def test_a_file_swapped_for_a_link_leaks_nothing(engine: LocalFiles, table: Path) -> None:
    name, secret = table / "data" / "f", table.parent / "other" / "f"
    with Swapper(name, lambda p: p.write_bytes(OWN), lambda p: p.symlink_to(secret)) as swapper:
        contents, _ = harvest(engine, name, swapper)
    assert contents == {OWN}


@pytest.mark.nightly
def test_a_directory_swapped_for_a_link_leaks_nothing(engine: LocalFiles, table: Path) -> None:
    def honest(path: Path) -> None:
        path.mkdir()
        (path / "f").write_bytes(OWN)

    other = table.parent / "other"
    with Swapper(table / "part", honest, lambda p: p.symlink_to(other)) as swapper:
        contents, _ = harvest(engine, table / "part" / "f", swapper)
    assert contents == {OWN}


@pytest.mark.nightly
def test_a_pipe_put_in_place_between_look_and_open_holds_no_task(engine: LocalFiles, table: Path) -> None:
    name = table / "data" / "f"
    with Swapper(name, lambda p: p.write_bytes(OWN), os.mkfifo) as swapper:
        contents, _ = harvest(engine, name, swapper, patience=0.05)
        while not engine.waiting():  # until the pipe came at just the right moment
            contents |= harvest(engine, name, swapper, patience=0.05)[0]
    assert contents == {OWN}
    pipe = next(each for each in swapper.places() if each.is_fifo())
    while engine.waiting():  # who opens the other end lets go of all that wait
        os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))
