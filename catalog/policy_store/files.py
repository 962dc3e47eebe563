"""Reads the files whose policy documents are applied to the catalog's database.

- A path is a JSON document, or a directory whose `*.json` files are read, in the order of their names.
- The file `sales.json` becomes the document `files.sales`. Policies and attributes of users are told apart by
  their form. A document of such a name whose file is gone is removed. Documents of other names, and kinds for
  which no path is given, are left alone.
- Another content is recognized without reading: by a file's size, times and identity, and by the names in a
  directory.
- Only regular files are read; nothing is waited for.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from catalog.base.file_versions import FileVersion, file_version
from catalog.policy_store.documents import DocumentId, Edit, StoredSet
from catalog.policy_store.kinds import MAX_STORED_SIZE, OF_POLICIES, Kind
from policy.errors import PolicyInvalid, RequestInvalid
from policy.ranger.parse import kind_of

_PREFIX: Final = "files."
_ENDING: Final = ".json"


class PolicyFiles:
    """The documents at some paths.

    Args:
        policies: documents of policies and roles, or of attributes of users, and directories of them.
        encryption: documents of rules for encryption, and directories of them.
    """

    def __init__(self, policies: Sequence[Path], encryption: Sequence[Path] = ()) -> None:
        given: Mapping[tuple[Kind, ...], tuple[Path, ...]] = {
            OF_POLICIES: tuple(policies),
            (Kind.ENCRYPTION,): tuple(encryption),
        }
        self._paths: dict[tuple[Kind, ...], tuple[Path, ...]] = {
            kinds: paths for kinds, paths in given.items() if paths
        }

    def edits(self, stored: StoredSet) -> tuple[Edit, ...]:
        """Return the changes after which the database says what the files say.

        Args:
            stored: the documents in the database.

        Raises:
            PolicyInvalid: a file cannot be read, or its name is not that of a document.
        """
        wanted = {edit.id: edit for kinds in self._paths for edit in self._edits(kinds, stored)}
        edits = list(wanted.values())
        edits += [
            Edit(each, None, _revision(stored, each))
            for each in stored.documents
            if any(each.kind in kinds for kinds in self._paths)
            and each.name.startswith(_PREFIX)
            and each not in wanted
        ]
        return tuple(each for each in edits if not stored.says(each))

    def fingerprints(self) -> Mapping[Path, FileVersion]:
        """Return the current versions of the files.

        Raises:
            PolicyInvalid: one cannot be looked at.
        """
        found: dict[Path, FileVersion] = {}
        for path in _files([path for paths in self._paths.values() for path in paths]):
            try:
                found[path] = file_version(path)
            except OSError as error:
                raise _unreadable(path, error) from error
        return found

    def _edits(self, kinds: tuple[Kind, ...], stored: StoredSet) -> Iterator[Edit]:
        seen: dict[str, Path] = {}
        for path in _files(self._paths[kinds]):
            name, content = _PREFIX + path.name.removesuffix(_ENDING), _read(path)
            kind = Kind(kind_of(str(path), content)) if len(kinds) > 1 else kinds[0]
            try:
                document = DocumentId(kind, name)
            except RequestInvalid as error:
                raise _invalid(path, f"The file name cannot name a document. {error.message}") from error
            if name in seen:
                raise _invalid(path, f"{seen[name]} is a file of the same name.")
            seen[name] = path
            yield Edit(document, content, _revision(stored, document), str(path))


def read_documents(paths: Sequence[Path]) -> dict[str, bytes]:
    """Return the documents at some paths, by file name.

    Raises:
        PolicyInvalid: one cannot be read.
    """
    return {str(path): _read(path) for path in _files(paths)}


def _revision(stored: StoredSet, document: DocumentId) -> int | None:
    there = stored.documents.get(document)
    return None if there is None else there.change.revision


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


def _read(path: Path) -> bytes:
    try:
        # Opening a named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            content = file.read(MAX_STORED_SIZE + 1) if is_regular else b""
    except OSError as error:
        raise _unreadable(path, error) from error
    if not is_regular:
        raise _invalid(path, "The policy document is not a regular file.")
    if len(content) > MAX_STORED_SIZE:
        raise _invalid(path, f"The policy document is larger than {MAX_STORED_SIZE} bytes.")
    return content


def _invalid(path: Path, problem: str) -> PolicyInvalid:
    return PolicyInvalid(
        problem,
        path=str(path),
        rule="policy-file",
        hint="Give paths of documents of different names, or of directories that contain them.",
    )


def _unreadable(path: Path, error: OSError) -> PolicyInvalid:
    return PolicyInvalid(
        f"The policy document cannot be read: {error.strerror}.",
        path=str(path),
        rule="policy-file",
        hint="Check the path and its permissions.",
    )
