"""The service of a soak: `lakewarden serve` with a clock that is stepped, and a KMS behind HTTP.

Run as ``python -m tests.soak.server CLOCK_FILE KMS_URL``. Settings come from the environment.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from catalog.http.server import serve
from catalog.service.service_log import configure
from catalog.service.services import Services
from catalog.settings.catalog import Settings
from tests.support.http_kms import HttpKms

_OFFSET = struct.Struct("d")


def write_offset(path: Path, seconds: float) -> None:
    """Step the clock: each process of the soak that reads the file is ahead by these seconds."""
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.write(_OFFSET.pack(seconds))


def stepped_clock(path: Path) -> Callable[[], datetime]:
    """The time of this host, moved by what a file says at each moment."""
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), _OFFSET.size, access=mmap.ACCESS_READ)

    def now() -> datetime:
        return datetime.now(UTC) + timedelta(seconds=_OFFSET.unpack_from(mapped)[0])

    return now


def main() -> None:
    """Serve until a signal."""
    clock, kms_url = sys.argv[1:]
    settings = Settings.load(None, os.environ)
    configure(settings.log)
    with Services.open(settings, HttpKms(kms_url, timeout_s=2.0), now=stepped_clock(Path(clock))) as services:
        serve(settings, services)


if __name__ == "__main__":
    main()
