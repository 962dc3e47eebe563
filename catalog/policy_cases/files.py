"""Files of cases, and the documents that they test.

- In a directory, every file whose name ends in `.policy-test.yaml` counts, at any depth; links to directories
  are not followed. A directory without one is an error, and so is a name that only nearly ends like that.
- What a file names is relative to it: documents in JSON, and directories whose `*.json` files are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NoReturn

from catalog.policy_cases import SUFFIX
from policy.errors import RequestInvalid
from policy.ranger.parse import MAX_DOCUMENT_SIZE
from policy.testing import CaseFile, Suite, UnderTest, parse_cases
from policy.testing.strict_yaml import MAX_SIZE

_NEARLY: Final = ("policy-test.yml", "policy-tests.yaml", "policy_test.yaml", "policy.test.yaml")


def case_files(path: Path) -> list[Path]:
    """The files of cases at a path, in the order of their names.

    Raises:
        RequestInvalid: there is none.
    """
    if not path.exists():
        _refuse(path, "the file or directory does not exist.", "Check the path.")
    if not path.is_dir():
        _check_name(path)
        return [path]
    found = []
    for directory, _, names in os.walk(path, onerror=_raise):
        for name in names:
            if name.endswith((SUFFIX, *_NEARLY)):
                _check_name(Path(directory, name))
                found.append(Path(directory, name))
    if not found:
        _refuse(path, f"the directory has no file whose name ends in {SUFFIX}.", "Add a file of test cases.")
    return sorted(found)


class Loader:
    """Reads files of cases with what they test; the same documents are parsed once.

    Args:
        policies: documents of policies, and directories of them, instead of those that the files name.
        encryption_rules: the same for encryption rules.
    """

    def __init__(self, policies: Sequence[Path] = (), encryption_rules: Sequence[Path] = ()) -> None:
        self._policies = tuple(policies)
        self._encryption_rules = tuple(encryption_rules)
        self._tested: dict[tuple[tuple[Path, ...], tuple[Path, ...]], UnderTest] = {}

    def load(self, path: Path) -> Suite:
        """Read a file of cases.

        Raises:
            RequestInvalid: the file has a mistake, or there is nothing that it tests.
            PolicyInvalid: a document that it tests has a mistake.
        """
        file = parse_cases(_name(path.resolve()), _read(path, MAX_SIZE))
        return Suite(file, self._tested_by(file, path.parent))

    def _tested_by(self, file: CaseFile, base: Path) -> UnderTest:
        policies = self._policies or tuple(base / name for name in file.policies)
        encryption = self._encryption_rules or tuple(base / name for name in file.encryption_rules)
        paths = tuple(_documents(policies)), tuple(_documents(encryption))
        if paths not in self._tested:
            self._tested[paths] = UnderTest(
                *({_name(path): _document(path) for path in each} for each in paths)
            )
        return self._tested[paths]


def _documents(paths: Sequence[Path]) -> Iterator[Path]:
    """The documents at some paths, each by its real path."""
    for path in paths:
        if not path.is_dir():
            yield path.resolve()
            continue
        found = sorted(each for each in path.resolve().iterdir() if each.name.endswith(".json"))
        if not found:
            _refuse(path, "the directory has no policy documents.", "Add *.json files.")
        yield from found


def _document(path: Path) -> bytes:
    return _read(path, MAX_DOCUMENT_SIZE)


def _name(path: Path) -> str:
    """How messages call a file: from the working directory on."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _read(path: Path, most: int) -> bytes:
    """A file, and no more than one byte over what is accepted of it."""
    try:
        if not path.is_file():
            _refuse(
                path,
                "the file does not exist or is not a regular file.",
                "Check the path. It is relative to the file that names it.",
            )
        with path.open("rb") as file:
            return file.read(most + 1)
    except OSError as error:
        _refuse(path, f"the file cannot be read: {error.strerror}.", "Check its permissions.")


def _check_name(path: Path) -> None:
    if not path.name.endswith(SUFFIX):
        _refuse(path, f"the name of a test file must end in {SUFFIX}.", "Rename the file.")


def _raise(error: OSError) -> NoReturn:
    _refuse(
        Path(error.filename), f"the directory cannot be read: {error.strerror}.", "Check its permissions."
    )


def _refuse(path: Path, problem: str, hint: str) -> NoReturn:
    raise RequestInvalid(f"{path}: {problem}", rule="policy-test", hint=hint)
