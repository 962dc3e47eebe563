"""`lakewarden access`: reports on who can do what.

They are made on the catalog's host, from the database, for users who can read the settings.
"""

from __future__ import annotations

import typer

app = typer.Typer(help="Report who can access what, and what policies would change.", no_args_is_help=True)
