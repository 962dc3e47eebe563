"""Reads settings that are secret from files, one for each.

- `LAKEWARDEN_SECRETS_DIRECTORY` names the directory. A file in it is named like the variable of its setting,
  such as `LAKEWARDEN_DATABASE__URL`, and holds the value. A line break at its end does not count.
- So a secret stands in no environment, which child processes inherit and which other tools show.
- Each file is private: of this user or of root, and closed to others. Names that begin with a dot are left
  alone. Any other name is refused, because a secret that is not used is a mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from catalog.crypto.private_files import read_private
from policy.errors import KmsUnavailable, RequestInvalid

#: The variable that names the directory.
SECRETS_DIRECTORY: Final = "LAKEWARDEN_SECRETS_DIRECTORY"
_LONGEST: Final = 64 * 1024


def with_secrets(environ: Mapping[str, str], is_setting: Callable[[str], bool]) -> dict[str, str]:
    """Return the environment variables, with those that files hold.

    Args:
        environ: the environment variables.
        is_setting: whether a variable of this name is a setting.

    Raises:
        RequestInvalid: the directory or a file cannot be read, or a file has another name, or a variable is
            set as well.
    """
    directory = environ.get(SECRETS_DIRECTORY)
    if directory is None:
        return dict(environ)
    if not directory:
        raise _invalid(f"The variable {SECRETS_DIRECTORY} is empty, and names no directory.")
    found = dict(environ)
    for file in _files(Path(directory)):
        if not is_setting(file.name):
            raise _invalid(f"The file {file} has not the name of a setting's variable.")
        if file.name in environ:
            raise _invalid(f"The file {file} and the environment variable of its name are both set.")
        found[file.name] = _value(file)
    return found


def _files(directory: Path) -> list[Path]:
    try:
        return sorted(each for each in directory.iterdir() if not each.name.startswith("."))
    except OSError as error:
        raise _invalid(f"The directory {directory} cannot be read: {error.strerror}.") from error


def _value(file: Path) -> str:
    try:
        return read_private(file, limit=_LONGEST).decode("utf-8").removesuffix("\n").removesuffix("\r")
    except KmsUnavailable as error:
        raise RequestInvalid(error.message, rule="settings", hint=error.hint) from error
    except UnicodeDecodeError:
        # The cause holds bytes of the secret.
        raise _invalid(f"The file {file} is not UTF-8.") from None


def _invalid(message: str) -> RequestInvalid:
    return RequestInvalid(
        message,
        rule="settings",
        hint=f"Correct the directory that {SECRETS_DIRECTORY} names, then try again.",
    )
