"""`lakewarden db`: manages the catalog's database, and cleans up after unfinished writes."""

from __future__ import annotations

import typer

from catalog.cli import output
from catalog.cli.session import open_services, open_state, settings_of

app = typer.Typer(help="Manage the catalog's database.", no_args_is_help=True)


@app.command(epilog="Example: lakewarden db upgrade")
def upgrade(ctx: typer.Context) -> None:
    """Create the database, or upgrade it to this release's schema."""
    from catalog.db import migrate
    from catalog.db.engine import open_database

    engine = open_database(settings_of(ctx).database.url)
    try:
        with output.progress("Upgrading the database"):
            migrate.upgrade(engine)
        output.note(f"The database has the schema {migrate.current_revision(engine)}.")
    finally:
        engine.dispose()


@app.command(epilog="Example: lakewarden db check")
def check(ctx: typer.Context) -> None:
    """Check that the database answers and has this release's schema."""
    from catalog.db import migrate

    with open_state(settings_of(ctx)) as engine:
        output.note(f"The database has the schema {migrate.current_revision(engine)}.")


@app.command(epilog="Example: lakewarden db clean-up")
def clean_up(ctx: typer.Context) -> None:
    """Delete files of expired writes and purged tables; destroy keys whose waiting time is over."""
    with output.progress("Cleaning up"), open_services(ctx) as services:
        output.note(f"Purges finished: {services.lifecycle.clean_up()}.")
        output.note(f"Expired writes cleaned up: {services.writes.clean_up()}.")
        output.note(f"Keys destroyed: {services.key_life.destroy_due()}.")
