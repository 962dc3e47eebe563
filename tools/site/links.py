"""Links of pages that leave `docs/`, which the documentation site cannot follow."""

from __future__ import annotations

import re
from pathlib import Path

_DOCS = Path(__file__).parents[2] / "docs"
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+[^)\s]*)\)")


def without_outer_links(text: str, folder: Path) -> str:
    """Text of a page in a folder, where each link to a file outside of `docs/` is the file's path."""

    def shown(link: re.Match[str]) -> str:
        target = (folder / link[2].partition("#")[0]).resolve()
        if target.is_relative_to(_DOCS):
            return link[0]
        path = str(target.relative_to(_DOCS.parent))
        return f"`{path}`" if path in link[1] else f"{link[1]} (`{path}`)"

    return _LINK.sub(shown, text)
