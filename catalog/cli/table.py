"""`lakewarden table`: what governs a table, and the states that only an operator resolves.

Every command is decided by the policies for the principal that `--as` names, and audited.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson, AsUser, Table
from catalog.cli.session import acting, open_services

if TYPE_CHECKING:
    from pyiceberg.table.update import TableUpdate

    from catalog.base.identifiers import TableName
    from catalog.maintenance.census import EpochFiles
    from catalog.maintenance.garbage import Garbage
    from catalog.maintenance.old_epochs import EpochReport
    from catalog.reading.loading import LoadedTable

app = typer.Typer(help="Governed properties and the life of tables.", no_args_is_help=True)

_Force = Annotated[
    bool, typer.Option("--force", help="Narrow the allowed paths although live snapshots need the others.")
]


@app.command()
def show(ctx: typer.Context, table: Table, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """Show a table's identity, its seal, and what governs it."""
    with open_services(ctx) as services, acting(services, as_user, changes=False) as caller:
        loaded = services.access.load(caller, table)
        admits = services.loader.admits_standard_clients(loaded.record.name, loaded.governed.spec)
    facts = _facts(loaded) | {"standard-clients": "load" if admits else "refuse"}
    if as_json:
        governed = {"governed": loaded.governed.to_properties(), "ignored-copies": loaded.governed_copies}
        output.document(facts | governed)
        return
    output.facts(facts | loaded.governed.to_properties())
    if loaded.governed_copies:
        copies = ", ".join(loaded.governed_copies)
        output.note(f"metadata.json also holds governed properties, which count for nothing: {copies}.")


@app.command("set")
def set_(
    ctx: typer.Context,
    table: Table,
    properties: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", show_default=False)],
    force: _Force = False,
    as_user: AsUser = None,
) -> None:
    """Set properties of a table, governed ones included."""
    from pyiceberg.table.update import SetPropertiesUpdate

    pairs = [_pair(text) for text in properties]
    if len(dict(pairs)) != len(pairs):
        raise typer.BadParameter("name each property once")
    updates = SetPropertiesUpdate(updates=dict(pairs))
    _change(ctx, table, [updates], force, as_user)


@app.command()
def unset(
    ctx: typer.Context,
    table: Table,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", show_default=False)],
    force: _Force = False,
    as_user: AsUser = None,
) -> None:
    """Remove properties of a table; a governed one goes back to its default."""
    from pyiceberg.table.update import RemovePropertiesUpdate

    _change(ctx, table, [RemovePropertiesUpdate(removals=names)], force, as_user)


@app.command()
def register(
    ctx: typer.Context,
    table: Table,
    metadata_location: Annotated[str, typer.Argument(help="The metadata.json.", show_default=False)],
    as_user: AsUser = None,
) -> None:
    """Take over a table from its metadata.json, after checking all that it names."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        _done("is registered", services.registration.register(caller, table, metadata_location))


@app.command()
def adopt(ctx: typer.Context, table: Table, as_user: AsUser = None) -> None:
    """Take over a table that another catalog made in the same pointer store."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        _done("is adopted", services.registration.adopt(caller, table))


@app.command()
def reseal(ctx: typer.Context, table: Table, as_user: AsUser = None) -> None:
    """Check metadata that came past the catalog as a whole, and seal it."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        _done("is sealed", services.registration.reseal(caller, table))


@app.command()
def restore(ctx: typer.Context, table: Table, as_user: AsUser = None) -> None:
    """Put the pointer back on the metadata that was sealed last."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        _done("is restored", services.registration.restore(caller, table))


@app.command()
def epochs(ctx: typer.Context, table: Table, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """Count the files of a table's earlier encryption: on branches, and in retained snapshots."""
    with open_services(ctx) as services, acting(services, as_user, changes=False) as caller:
        _print_epochs(services.old_epochs.report(caller, table), as_json)


@app.command("forbid-old-epochs")
def forbid_old_epochs(
    ctx: typer.Context, table: Table, as_user: AsUser = None, as_json: AsJson = False
) -> None:
    """Let no file of an earlier encryption be read any more, if none is left."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        _print_epochs(services.old_epochs.forbid(caller, table), as_json)


@app.command()
def drop(
    ctx: typer.Context,
    table: Table,
    purge: Annotated[bool, typer.Option("--purge", help="Delete the table's files too.")] = False,
    as_user: AsUser = None,
) -> None:
    """Drop a table; without --purge its files stay."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        if not purge:
            services.lifecycle.drop(caller, table)
            output.note(f"The table {table} is dropped; its files stay.")
            return
        left = services.lifecycle.purge(caller, table)
    output.note(f"The table {table} is dropped and its files are deleted; files left elsewhere: {left}.")


@app.command("clean-up")
def clean_up(
    ctx: typer.Context,
    table: Table,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the files; without it they are listed.")
    ] = False,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """List files in a table's directory that nothing names and that are three days old, or remove them."""
    from catalog.http.admin_models import CleanUpAnswer

    with (
        open_services(ctx) as services,
        acting(services, as_user, changes=remove) as caller,
        output.progress() as advance,
    ):
        garbage = services.garbage.collect(caller, table, remove=remove, progress=advance)
    if as_json:
        answer = CleanUpAnswer.of(garbage, len(garbage.files))
        output.document(answer.model_dump(mode="json", by_alias=True))
        return
    output.rows(
        ("modified", "bytes", "path"),
        [(output.moment(each.modified), each.size, each.location.canonical) for each in garbage.files],
    )
    output.note(_clean_up_summary(garbage, remove=remove))


def _clean_up_summary(garbage: Garbage, *, remove: bool) -> str:
    if not garbage.files:
        return "Found no garbage."
    found = f"Found {len(garbage.files)} files ({garbage.bytes} bytes) that nothing names."
    if remove:
        return f"{found} Removed {garbage.removed} of them."
    return f"{found} Removed none. To remove them, repeat the command with --remove."


def _print_epochs(report: EpochReport, as_json: bool) -> None:
    from catalog.http.rewrite_models import EpochsAnswer

    if as_json:
        output.document(EpochsAnswer.of(report).model_dump(mode="json", by_alias=True))
        return
    output.rows(
        ("branch", "from-sequence-number", "encryption", "files", "bytes", "old-files", "old-bytes"),
        [
            (each.branch, each.epoch.from_sequence_number, each.epoch.spec.mechanism, *_counts(each))
            for each in report.branches
        ],
    )
    output.rows(
        ("snapshot-with-old-files", "branches-and-tags", "old-files"),
        [[each.use.snapshot_id, ", ".join(each.use.names), each.files] for each in report.snapshots],
    )
    left = "are refused" if report.forbidden else "are read as long as their snapshots are retained"
    output.note(f"Files of an earlier encryption {left}.")


def _counts(files: EpochFiles) -> tuple[int, int, int, int]:
    return files.files, files.bytes, files.old_files, files.old_bytes


def _change(
    ctx: typer.Context, table: TableName, updates: Sequence[TableUpdate], force: bool, as_user: str | None
) -> None:
    from pyiceberg.table.update import AssertTableUUID

    with open_services(ctx) as services, acting(services, as_user) as caller:
        # The table that was looked at, and no other one that gets its name in between.
        same = AssertTableUUID(uuid=services.access.load(caller, table).record.table_uuid)
        changed = services.committer.commit(caller, table, [same], updates, force=force)
    output.facts(changed.governed.to_properties())


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter("give properties as NAME=VALUE")
    return name, value


def _done(what: str, table: LoadedTable) -> None:
    output.note(f"The table {table.name} {what} at {table.metadata_location}.")


def _facts(table: LoadedTable) -> dict[str, object]:
    return {
        "table": table.name,
        "uuid": str(table.record.table_uuid),
        "owner": table.record.owner,
        "location": table.record.location.canonical,
        "metadata-location": table.metadata_location,
        "sealed": table.seal is not None,
        "format-version": table.metadata.format_version,
        "current-snapshot-id": table.metadata.current_snapshot_id,
        "governed-version": table.governed.version,
    }
