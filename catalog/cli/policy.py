"""`lakewarden policy`: shows which policies are in force, and their sources.

It reads the policy files and the catalog's own policies, as the service would. It needs its database, and
neither KMS nor storage.
"""

from __future__ import annotations

from typing import Final

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson
from catalog.cli.session import policies_in_force, settings_of

app = typer.Typer(help="Show, check, test and change policies.", no_args_is_help=True)

DENIED: Final = 3
"""Exit code of a check that is denied."""


@app.command(epilog="Example: lakewarden policy show")
def show(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show the sources and the version of the policies in force. Fails if they cannot be evaluated."""
    settings, found = settings_of(ctx), policies_in_force(ctx)
    sources = [str(path) for path in (*settings.policies, *settings.encryption_rules)]
    shown = {
        "version": found.policies.version,
        "encryption-version": found.encryption.version,
        "revision": found.stored.version.revision,
    }
    if as_json:
        output.document(shown | {"sources": sources})
    else:
        output.facts(shown | {f"source {n}": source for n, source in enumerate(sources, start=1)})
