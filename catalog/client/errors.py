"""Errors of the client, and the catalog's error responses as exceptions.

- An answer in the error model comes back as the class that it names; a class that this release does not know,
  as the nearest known one of its status.
- What answers, but is not the catalog, is `CatalogUnavailable`.

The types defined here hang in the tree of `policy.errors`:

    InvalidInput
    ├── DataFileDamaged      a data file that is not what the table says
    ├── DataFileMissing      a data file that is not there
    └── TableChanged         the table was changed while it was asked about
    Unavailable
    └── CatalogUnavailable   the catalog does not answer

Source: docs/rest-api.md, "Errors".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from catalog.base import errors as catalog_errors
from policy import errors as policy_errors
from policy.errors import (
    CommitStateUnknown,
    InvalidInput,
    LakewardenError,
    NotAuthenticated,
    Refused,
    RequestInvalid,
    Unavailable,
)

RESTORE: Final = "Restore the original file, and find out who changed it."
"""What to do about a file that is not what the table says."""

_BY_STATUS: Final[Mapping[int, type[LakewardenError]]] = {
    401: NotAuthenticated,
    403: Refused,
    404: RequestInvalid,
    409: catalog_errors.CommitConflict,
    503: Unavailable,
}


class DataFileDamaged(InvalidInput):
    """A data file that cannot be read as a part of its table."""


class DataFileMissing(InvalidInput):
    """A data file of the table is not there."""


class TableChanged(InvalidInput):
    """The table was changed while it was asked about; ask again."""


class CatalogUnavailable(Unavailable):
    """The catalog does not answer, or what answers is not the catalog."""


def damaged(problem: str, rule: str) -> DataFileDamaged:
    """The refusal of a file that the table cannot have; its caller names table and path."""
    return DataFileDamaged(problem, rule=rule, hint=RESTORE)


def miscounted(found: int, expected: int) -> DataFileDamaged:
    """The refusal of a file or row group with missing or extra rows; see `damaged`."""
    return damaged(f"The file has {found} rows where the table's metadata lists {expected}.", "record-count")


def missized(found: int, expected: int) -> DataFileDamaged:
    """The refusal of a file that was cut or extended; see `damaged`."""
    return damaged(f"The file has {found} bytes, but its manifest lists {expected}.", "file-size")


def not_the_catalog(found: str = "") -> CatalogUnavailable:
    """The error for a response that no Lakewarden catalog sends.

    Args:
        found: what is wrong with the response.
    """
    about = f" ({found})" if found else ""
    return CatalogUnavailable(
        f"The response is not from a Lakewarden catalog{about}.",
        rule="catalog",
        hint="Check the catalog's address.",
    )


def refusal(status: int, document: object) -> LakewardenError:
    """The error that an answer stands for.

    Args:
        status: the HTTP status.
        document: the body, parsed; None if it is no JSON.
    """
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("lakewarden"), str):
        return not_the_catalog(f"HTTP status {status}")
    said = str(error.get("message", ""))
    if error["lakewarden"] == "InternalError":
        return CommitStateUnknown(said, rule="internal-error")
    known = _known(error)
    message, path = _parts(said, known)
    return _class(error["lakewarden"], status)(message, path=path, **known)


def _known(error: Mapping[str, Any]) -> dict[str, Any]:
    """What an answer says beside its message, where it is of the type that it has to be."""
    texts = {name: error.get(name) for name in ("table", "rule", "hint")}
    known: dict[str, Any] = {name: value for name, value in texts.items() if isinstance(value, str)}
    snapshot = error.get("snapshot")
    return known | ({"snapshot": snapshot} if isinstance(snapshot, int) else {})


def _parts(said: str, known: Mapping[str, Any]) -> tuple[str, str | None]:
    """The message without what `LakewardenError` puts behind it, and the path in that."""
    text = said.removesuffix(f" {known['hint']}") if "hint" in known else said
    about = [re.escape(f"{name}={known[name]}") for name in ("table", "snapshot") if name in known]
    rule = [re.escape(f"rule={known['rule']}")] if "rule" in known else []
    for path in (["path=(?P<path>.*)"], []):
        shown = ", ".join([*about, *path, *rule])
        found = re.fullmatch(rf"(?P<message>.*?) \[{shown}\]", text, re.DOTALL)
        if found is not None:
            return found["message"], found["path"] if path else None
    return text, None


def _class(name: str, status: int) -> type[LakewardenError]:
    known = {each.__name__: each for each in _classes()}
    nearest = _BY_STATUS.get(status, RequestInvalid if status < 500 else Unavailable)
    return known.get(name, nearest)


def _classes() -> Iterator[type[LakewardenError]]:
    for module in (policy_errors, catalog_errors):
        for each in vars(module).values():
            if isinstance(each, type) and issubclass(each, LakewardenError):
                yield each
