"""The process in which one ORC file is read; `catalog.client.orc` starts it.

PyArrow's reader of ORC, given bytes that somebody chose, can end the process that it runs in, or worse. So it
runs in one that is given no token, key or connection: a descriptor of a copy of the file, and two pipes. That
is no sandbox: it runs as the same user, who can look into the process that started it.

- It imports PyArrow and the standard library alone.
- It says that it runs; then the file's rows, tail and schema, each behind its length; then, told the names of
  columns, these, stripe by stripe, as a stream of Arrow.
- It writes no file, leaves no core, takes no more memory than the machine has, and ends after ten minutes of
  work.
- Where the file has instants that Arrow's nanoseconds have no room for, its exit says so.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import sys
from pathlib import Path

import pyarrow as pa
from pyarrow import orc

_MOST_SECONDS = 600
_ZONES = "/usr/share/zoneinfo"
_LEAST_MEMORY = 4 << 30
#: The exit after an instant before 1677 or after 2262.
_NO_ROOM = 3


def main(descriptor: int) -> None:
    """Read the file under a descriptor."""
    _limit()
    if not (Path(os.environ.get("TZDIR", _ZONES)) / "GMT").exists():
        sys.exit("ORC's reader needs the time zone database.")
    _say(b"running")
    with os.fdopen(descriptor, "rb") as source:
        file = orc.ORCFile(pa.PythonFile(source, mode="r"))
        for part in (str(file.nrows).encode(), file.reader.serialized_file_tail(), file.schema.serialize()):
            _say(part)
        names = json.loads(sys.stdin.buffer.readline())
        try:
            _send(file, names)
        except pa.ArrowInvalid as error:
            sys.exit(_NO_ROOM if "out of range for nanosecond" in str(error) else 1)


def _limit() -> None:
    memory = max(_LEAST_MEMORY, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for kind, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CPU, _MOST_SECONDS),
        (resource.RLIMIT_AS, memory),
    ):
        allowed = resource.getrlimit(kind)[1]
        most = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
        resource.setrlimit(kind, (most, most))


def _say(part: bytes | pa.Buffer) -> None:
    sys.stdout.buffer.write(struct.pack("<Q", len(part)))
    sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()


def _send(file: orc.ORCFile, names: list[str] | None) -> None:
    stream = None
    for number in range(file.nstripes):
        batch = file.read_stripe(number, names)
        stream = stream or pa.ipc.new_stream(sys.stdout.buffer, batch.schema)
        stream.write_batch(batch)
    if stream is not None:
        stream.close()
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
