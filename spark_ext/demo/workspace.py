"""The directory of a demonstration: a new one, or one that a demonstration created earlier."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

from policy.errors import RequestInvalid

_MARK: Final = "made-by-lakewarden-demo"
#: The report of the audit of the whole lake.
REPORT: Final = "audit.html"
_MADE: Final = frozenset({_MARK, REPORT, "input", "lake", "spark", "stock-catalog.db", "stock-encryption"})


def prepare(directory: Path | None) -> Path:
    """An empty directory for a demonstration; what an earlier demonstration left there is removed.

    Args:
        directory: which; by default a new one among the temporary files.

    Raises:
        RequestInvalid: it contains files that no demonstration created, or cannot be written.
    """
    try:
        chosen = _prepared(directory)
        (chosen / _MARK).touch()
    except OSError as failure:
        raise RequestInvalid(
            f"The directory {directory or tempfile.gettempdir()} cannot be used: {failure.strerror}.",
            rule="demo-directory",
            hint="Choose another one with --directory.",
        ) from failure
    return chosen


def remove(directory: Path) -> None:
    """Remove a directory that `prepare` gave out.

    Raises:
        RequestInvalid: it contains other files; then it stays as it is.
    """
    _require_ours(directory)
    _clear(directory)
    directory.rmdir()


def _prepared(directory: Path | None) -> Path:
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="lakewarden-demo-")).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    _require_ours(directory)
    _clear(directory)
    return directory.resolve()


def _require_ours(directory: Path) -> None:
    found = {each.name for each in directory.iterdir()}
    if found and not (_MARK in found and found <= _MADE):
        raise RequestInvalid(
            f"The directory {directory} contains files that no demonstration created.",
            rule="demo-directory",
            hint="Choose a new directory with --directory, or delete this one yourself.",
        )


def _clear(directory: Path) -> None:
    for name in _MADE:
        path = directory / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
