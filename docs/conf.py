"""Settings of the documentation site, which `make docs` builds with Sphinx."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

project = "Lakewarden"
author = "The Lakewarden maintainers"
project_copyright = author
version = release = metadata.version("lakewarden")

extensions = ["myst_parser", "tools.site.extension"]
# Code blocks leave out parts with `…`, which no lexer knows.
suppress_warnings = ["misc.highlighting_failure"]

# Anchors are those of GitHub, so that a link to a heading works in both.
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"Lakewarden {version}"
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["site.css"]
# The theme's default footer links to other hosts.
html_theme_options = {"footer_icons": []}
