"""The Sphinx extension of the documentation site.

- ``{reference}`` inserts a page that is made from the code, such as `errors` or `settings`.
- Links that leave `docs/` name files of the source code, which the site does not have. It shows their paths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from tools.site import (
    command_page,
    error_page,
    privilege_page,
    property_page,
    rest_page,
    settings_page,
)
from tools.site.links import without_outer_links

PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "commands": command_page.page,
    "errors": error_page.page,
    "privileges": privilege_page.page,
    "properties": property_page.page,
    "rest": rest_page.page,
    "settings": settings_page.page,
}


class Reference(SphinxDirective):
    """Inserts a page that is made from the code."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The page's nodes."""
        return self.parse_text_to_nodes(PAGES[self.arguments[0]](), allow_section_headings=True)


def _source_read(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = without_outer_links(source[0], Path(app.env.doc2path(name)).parent)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("reference", Reference)
    app.connect("source-read", _source_read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
