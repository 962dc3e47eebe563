"""Reads policy documents from files.

- A path is a JSON document, or a directory whose `*.json` files are read, in the order of their names.
- Another content is recognized without reading: by a file's size, times and identity, and by the names in a
  directory.
- Only regular files are read; nothing is waited for.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from policy.errors import PolicyInvalid
from policy.ranger.parse import MAX_DOCUMENT_SIZE

#: The identity of a file version: device, inode, size, time of change of content and of inode.
Fingerprint: TypeAlias = tuple[int, int, int, int, int]

#: By file name.
Fingerprints: TypeAlias = Mapping[str, Fingerprint]

_ENDING: Final = ".json"


@dataclass(frozen=True, slots=True)
class FileDocuments:
    """Documents as read, by file name, and the identity of each file.

    Attributes:
        policies: policies and roles.
        encryption: rules for encryption.
        fingerprints: of all files.
    """

    policies: Mapping[str, bytes]
    encryption: Mapping[str, bytes]
    fingerprints: Fingerprints


class PolicyFiles:
    """The documents at some paths.

    Args:
        policies: documents of policies and roles, and directories of them.
        encryption: documents of rules for encryption, and directories of them.
    """

    def __init__(self, policies: Sequence[Path], encryption: Sequence[Path] = ()) -> None:
        self._policies = tuple(policies)
        self._encryption = tuple(encryption)

    def read(self) -> FileDocuments:
        """Read all documents.

        Raises:
            PolicyInvalid: one cannot be read.
        """
        policies, of_policies = _read_all(self._policies)
        encryption, of_encryption = _read_all(self._encryption)
        return FileDocuments(policies, encryption, of_policies | of_encryption)

    def fingerprints(self) -> Fingerprints:
        """Return the current identities of the files.

        Raises:
            PolicyInvalid: one cannot be looked at.
        """
        found: dict[str, Fingerprint] = {}
        for path in _files((*self._policies, *self._encryption)):
            try:
                found[str(path)] = _fingerprint(path.stat())
            except OSError as error:
                raise _unreadable(path, error) from error
        return found


def _read_all(paths: Sequence[Path]) -> tuple[dict[str, bytes], dict[str, Fingerprint]]:
    documents: dict[str, bytes] = {}
    fingerprints: dict[str, Fingerprint] = {}
    for path in _files(paths):
        documents[str(path)], fingerprints[str(path)] = _read(path)
    return documents, fingerprints


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        try:
            is_directory = stat.S_ISDIR(path.stat().st_mode)
            names = sorted(entry.name for entry in path.iterdir()) if is_directory else []
        except OSError as error:
            raise _unreadable(path, error) from error
        if is_directory:
            yield from (path / name for name in names if name.endswith(_ENDING))
        else:
            yield path


def _read(path: Path) -> tuple[bytes, Fingerprint]:
    """Read a document, and the identity of the opened file."""
    try:
        # Opening a named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            # One byte more than the limit, so that the parser detects a larger file.
            content = file.read(MAX_DOCUMENT_SIZE + 1) if stat.S_ISREG(status.st_mode) else None
    except OSError as error:
        raise _unreadable(path, error) from error
    if content is None:
        raise PolicyInvalid(
            "The policy document is not a regular file.",
            path=str(path),
            rule="policy-file",
            hint="Give paths of documents, or of directories that contain them.",
        )
    return content, _fingerprint(status)


def _fingerprint(status: os.stat_result) -> Fingerprint:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _unreadable(path: Path, error: OSError) -> PolicyInvalid:
    return PolicyInvalid(
        f"The policy document cannot be read: {error.strerror}.",
        path=str(path),
        rule="policy-file",
        hint="Check the path (`policies` and `encryption_rules` in the settings, or `--rules`), and "
        "its permissions.",
    )
