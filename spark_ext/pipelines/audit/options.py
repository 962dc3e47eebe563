"""What an audit looks at, and how executors reach storage."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache

from catalog.storage.base import Storage, StorageRouter
from catalog.storage.local import LocalStorage
from catalog.storage.s3 import S3Options, S3Storage


@dataclass(frozen=True, slots=True)
class Looking:
    """Options that executors need. Their credentials are those of their own environment.

    Attributes:
        footers: the share of files whose footers are opened, from 0 to 1.
        verify: the share of files whose bytes are compared with their digests.
        endpoint: the S3 endpoint; None for Amazon's.
        region: its region.
        together: how many entries of manifests a task opens together. A table of more is spread over tasks.
    """

    footers: float = 1.0
    verify: float = 0.0
    endpoint: str | None = None
    region: str | None = None
    together: int = 20_000

    @property
    def storage(self) -> Storage:
        """The storage of this process."""
        return _storage(self.endpoint, self.region)


def chosen(path: str, share: float) -> bool:
    """Return whether a file is in a share of all files; the answer for a path is always the same."""
    return zlib.crc32(path.encode()) < share * 2**32


@lru_cache(maxsize=1)
def _storage(endpoint: str | None, region: str | None) -> Storage:
    s3 = S3Storage(S3Options(endpoint=endpoint, region=region))
    return StorageRouter({"file": LocalStorage(), "s3": s3})
