"""`lakewarden lake`: jobs over many tables, on a local Spark.

On the catalog's host, the command serves the catalog to itself. With `--url`, it works on a service.
Exit codes: 0 done without errors; 3 items are left, or something that was found is an error.
"""

from __future__ import annotations

import typer

app = typer.Typer(help="Audit, migrate and maintain many tables.", no_args_is_help=True)
