"""`lakewarden table`: manages tables, and repairs states that only an operator can resolve.

Policies decide each command, for the principal that `--as` names. Each decision is audited.
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

app = typer.Typer(help="Show, change, register, repair and drop tables.", no_args_is_help=True)

_Force = Annotated[
    bool, typer.Option("--force", help="Remove allowed locations even if live snapshots need them.")
]


@app.command(epilog="Example: lakewarden table show sales.orders --as ann")
def show(ctx: typer.Context, table: Table, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """Show a table's identity, seal and governed properties."""
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
        output.note(f"metadata.json also holds governed properties, which have no effect: {copies}.")


@app.command(
    "set", epilog="Example: lakewarden table set sales.orders encryption.mechanism=envelope --as ann"
)
def set_(
    ctx: typer.Context,
    table: Table,
    properties: Annotated[
        list[str], typer.Argument(metavar="NAME=VALUE...", help="Properties to set.", show_default=False)
    ],
    force: _Force = False,
    as_user: AsUser = None,
) -> None:
    """Set properties of a table, including governed properties."""
    from pyiceberg.table.update import SetPropertiesUpdate

    pairs = [_pair(text) for text in properties]
    if len(dict(pairs)) != len(pairs):
        raise typer.BadParameter("A property is given more than once. Give each property once.")
    updates = SetPropertiesUpdate(updates=dict(pairs))
    _change(ctx, table, [updates], force, as_user)


@app.command(epilog="Example: lakewarden table unset sales.orders encryption.columns --as ann")
def unset(
    ctx: typer.Context,
    table: Table,
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Properties to remove.", show_default=False)
    ],
    force: _Force = False,
    as_user: AsUser = None,
) -> None:
    """Remove properties of a table. A governed property returns to its default."""
    from pyiceberg.table.update import RemovePropertiesUpdate

    _change(ctx, table, [RemovePropertiesUpdate(removals=names)], force, as_user)


@app.command(
    epilog="Example: lakewarden table register sales.orders s3://lake/orders/v3.metadata.json --as ann"
)
def register(
    ctx: typer.Context,
    table: Table,
    metadata_location: Annotated[
        str, typer.Argument(help="Location of the metadata.json.", show_default=False)
    ],
    as_user: AsUser = None,
) -> None:
    """Register a table from its metadata.json, after checking every file that it names."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        _done("is registered", services.registration.register(caller, table, metadata_location))


@app.command(epilog="Example: lakewarden table adopt sales.orders --as ann")
def adopt(ctx: typer.Context, table: Table, as_user: AsUser = None) -> None:
    """Adopt a table that another catalog created in the same pointer store."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        _done("is adopted", services.registration.adopt(caller, table))


@app.command(epilog="Example: lakewarden table reseal sales.orders --as ann")
def reseal(ctx: typer.Context, table: Table, as_user: AsUser = None) -> None:
    """Check metadata that was not committed through the catalog, and seal it."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        _done("is sealed", services.registration.reseal(caller, table))


@app.command(epilog="Example: lakewarden table restore sales.orders --as ann")
def restore(ctx: typer.Context, table: Table, as_user: AsUser = None) -> None:
    """Restore a table to the metadata that was sealed last."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        _done("is restored", services.registration.restore(caller, table))


@app.command(epilog="Example: lakewarden table epochs sales.orders --as ann")
def epochs(ctx: typer.Context, table: Table, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """Count the files of earlier encryption epochs, on branches and in retained snapshots."""
    with open_services(ctx) as services, acting(services, as_user, changes=False) as caller:
        _print_epochs(services.old_epochs.report(caller, table), as_json)


@app.command("forbid-old-epochs", epilog="Example: lakewarden table forbid-old-epochs sales.orders --as ann")
def forbid_old_epochs(
    ctx: typer.Context, table: Table, as_user: AsUser = None, as_json: AsJson = False
) -> None:
    """Forbid files of earlier encryption epochs. Refused while a retained snapshot has one."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        _print_epochs(services.old_epochs.forbid(caller, table), as_json)


@app.command(epilog="Example: lakewarden table drop sales.orders --purge --as ann")
def drop(
    ctx: typer.Context,
    table: Table,
    purge: Annotated[bool, typer.Option("--purge", help="Also delete the table's files and keys.")] = False,
    as_user: AsUser = None,
) -> None:
    """Drop a table. Without --purge its files stay."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        if not purge:
            services.lifecycle.drop(caller, table)
            output.note(f"Dropped the table {table}. Its files stay.")
            return
        left = services.lifecycle.purge(caller, table)
    output.note(f"Dropped the table {table} and deleted its files. Files that were kept elsewhere: {left}.")


@app.command("clean-up", epilog="Example: lakewarden table clean-up sales.orders --remove --as ann")
def clean_up(
    ctx: typer.Context,
    table: Table,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the files. Without it, the command only lists them.")
    ] = False,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """List, or remove, files in a table's directory that nothing names and that are three days old."""
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
    left = "are refused" if report.forbidden else "can be read while their snapshots are retained"
    output.note(f"Files of earlier encryption epochs {left}.")


def _counts(files: EpochFiles) -> tuple[int, int, int, int]:
    return files.files, files.bytes, files.old_files, files.old_bytes


def _change(
    ctx: typer.Context, table: TableName, updates: Sequence[TableUpdate], force: bool, as_user: str | None
) -> None:
    from pyiceberg.table.update import AssertTableUUID

    with open_services(ctx) as services, acting(services, as_user) as caller:
        # The table that was loaded, not another one that got its name in between.
        same = AssertTableUUID(uuid=services.access.load(caller, table).record.table_uuid)
        changed = services.committer.commit(caller, table, [same], updates, force=force)
    output.facts(changed.governed.to_properties())


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{text!r} is not a property. Give NAME=VALUE.")
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
