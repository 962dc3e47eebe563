"""`lakewarden policy`: shows which policies are in force, and their sources.

On the catalog's host it needs the database, but neither KMS nor storage.
"""

from __future__ import annotations

from typing import Any, Final

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson
from catalog.cli.policy_sources import source_answers
from catalog.cli.session import policies_in_force, remote_of, settings_of

app = typer.Typer(help="Show, check, test and change policies.", no_args_is_help=True)

DENIED: Final = 3
"""Exit code of a check that is denied."""


@app.command(epilog="Example: lakewarden policy show")
def show(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show the sources and the version of the policies in force. Fails if they cannot be evaluated."""
    remote = remote_of(ctx)
    found = remote.ask("GET", ("policies",)) if remote else _state(ctx)
    if as_json:
        output.document(found)
        return
    sources, problem, ranger = found.pop("sources"), found.pop("problem"), found.pop("ranger")
    output.facts(
        found
        | {f"source {n}": source for n, source in enumerate(sources, start=1)}
        | {f"ranger {each['name']}": each["state"] for each in ranger}
    )
    if problem is not None:
        output.note(f"Newer policies are not in force: {problem}")


def _state(ctx: typer.Context) -> dict[str, Any]:
    from catalog.http.admin_models import PolicyState

    ranger = source_answers(settings_of(ctx))
    return PolicyState.of(policies_in_force(ctx), None, ranger).model_dump(mode="json")
