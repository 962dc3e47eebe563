"""Compares metadata files and their records with their seals: the digests that the catalog keeps."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from catalog.iceberg.manifests.manifest_list import ManifestListEntry
from policy.errors import MetadataTampered


class FileKind(StrEnum):
    """The kind of a sealed file."""

    MANIFEST_LIST = "manifest-list"
    MANIFEST = "manifest"


@dataclass(frozen=True, slots=True)
class Digest:
    """The digest of sealed bytes: SHA-256 in hexadecimal, and length in bytes."""

    sha256: str
    length: int

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Return the digest of `data`."""
        return cls(hashlib.sha256(data).hexdigest(), len(data))


@dataclass(frozen=True, slots=True)
class SealedFile:
    """The digest of a manifest list or manifest, with its record in the parent.

    For a manifest list, `sequence_number` is its snapshot's, and spec and content are -1; `verified` says
    whether the snapshot was compared with its parent when it was committed.
    """

    path: str
    kind: FileKind
    digest: Digest
    snapshot_id: int
    sequence_number: int
    partition_spec_id: int = -1
    content: int = -1
    verified: bool = field(default=True, compare=False)


def check_digest(data: bytes, digest: Digest, *, what: str, path: str, table: str) -> Digest:
    """Compare bytes with their seal.

    Returns:
        the digest of the bytes, which is the sealed one.

    Raises:
        MetadataTampered: the bytes differ from the sealed ones.
    """
    if Digest.of(data) != digest:
        raise MetadataTampered(
            f"The {what} does not match its seal: its bytes were changed after the commit.",
            table=table,
            path=path,
            rule="seal",
            hint="Restore the file from a backup, or have an administrator examine and reseal the "
            "table (`lakewarden table reseal`).",
        )
    return digest


def check_carried_record(entry: ManifestListEntry, known: SealedFile, table: str) -> None:
    """Compare a manifest list's record of a sealed manifest with the sealed record.

    Raises:
        MetadataTampered: it says something else.
    """
    said = (entry.sequence_number, entry.partition_spec_id, int(entry.content), entry.added_snapshot_id)
    was = (known.sequence_number, known.partition_spec_id, known.content, known.snapshot_id)
    if said != was or entry.manifest_length != known.digest.length:
        raise MetadataTampered(
            "The manifest list describes a manifest differently than when the manifest was sealed.",
            table=table,
            path=entry.manifest_path,
            rule="carried-manifest",
        )
