"""The back end of one's own that `docs/kms.md` shows, run as it stands there."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.kms_backends import Backend

PAGE = (Path(__file__).parents[2] / "docs" / "kms.md").read_text("utf-8")


def code() -> str:
    """The page's one piece of Python."""
    return PAGE.partition("```python\n")[2].partition("```")[0]


@contextmanager
def documented(directory: Path) -> Iterator[Backend]:
    """A directory of master keys."""
    module: dict[str, Any] = {"__name__": "directory_kms"}
    exec(compile(code(), "docs/kms.md", "exec"), module)
    keys = directory / "keys"

    def rotate(name: str) -> None:
        folder = keys / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(len(list(folder.iterdir())) + 1)).write_bytes(secrets.token_bytes(32))

    rotate("lake")
    rotate("pii")

    def again() -> Any:
        return module["make"]({"directory": str(keys)})

    yield Backend(
        again(),
        "lake",
        "pii",
        again=again,
        disable=lambda name: (keys / name).rename(directory / name),
        enable=lambda name: (directory / name).rename(keys / name),
        rotate=rotate,
        version_of=lambda wrapped: wrapped[0],
        stop=lambda: keys.rename(directory / "gone"),
    )
