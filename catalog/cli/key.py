"""`lakewarden key`: manages the keys of tables, and master keys of the local KMS. It never shows key bytes.

Policies decide on keys of tables, for the principal that `--as` names. Each decision is audited. On the
catalog's host, commands on master keys need no policy (`session`).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import typer

from catalog.cli import output, reports
from catalog.cli.arguments import (
    AsJson,
    AsUser,
    KeysOf,
    Table,
    TableOrUuid,
    admin_path,
    duration_of,
    keys_of,
)
from catalog.cli.reports import AsCsv, Form, HtmlFile, one_form
from catalog.cli.session import (
    acting,
    administration,
    calling,
    open_local_kms,
    open_services,
    open_state,
    operating,
    remote_of,
    settings_of,
)

app = typer.Typer(
    help="Manage the keys of tables (PEKs), and master keys of the local KMS.", no_args_is_help=True
)

_FAILED: Final = 3
_WITHIN: Final = timedelta(days=30)
_PEKS: Final = (
    "id",
    "version",
    "master-key-id",
    "kms",
    "state",
    "in-force",
    "destroy-after-ms",
    "invocations",
)

_MasterKeyId = Annotated[str, typer.Argument(metavar="ID", help="ID of the master key.", show_default=False)]
_PekId = Annotated[UUID, typer.Argument(metavar="KEY", help="ID of the key.", show_default=False)]
_Which = Annotated[
    UUID | None, typer.Option("--key", metavar="KEY", help="ID of one key. Default: all keys of the table.")
]
_Version = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="One version of the key. Default: all versions.")
]


@app.command("list", epilog="Example: lakewarden key list sales.orders --as ann")
def list_(
    ctx: typer.Context,
    table: Annotated[
        KeysOf | None,
        typer.Argument(
            parser=keys_of,
            metavar="TABLE",
            help="The table, as NAMESPACE.TABLE, or the UUID of a dropped table. None with --expiring.",
            show_default=False,
        ),
    ] = None,
    expiring: Annotated[
        bool,
        typer.Option("--expiring", help="List the keys of all tables that are to be destroyed or rotated."),
    ] = False,
    within: Annotated[
        timedelta | None,
        typer.Option(
            parser=duration_of, metavar="SPAN", help="With --expiring: how far to look ahead. Default: 30d."
        ),
    ] = None,
    older_than: Annotated[
        timedelta | None,
        typer.Option(
            parser=duration_of,
            metavar="SPAN",
            help="With --expiring: the age at which keys are due for rotation.",
        ),
    ] = None,
    as_user: AsUser = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    html: HtmlFile = None,
) -> None:
    """List the keys (PEKs) of a table with all versions and states, or those of all tables that are due."""
    form = one_form(as_json=as_json, as_csv=as_csv, html=html)
    if expiring == (table is not None):
        raise typer.BadParameter("Give a table, or --expiring for the keys of all tables.")
    if table is None:
        _list_expiring(ctx, within or _WITHIN, older_than, as_user, form)
        return
    if as_csv or any(each is not None for each in (within, older_than, html)):
        raise typer.BadParameter("--within, --older-than, --csv and --html are for --expiring.")
    with administration(ctx, as_user) as admin:
        _print_keys(admin.ask("GET", _keys(table)), as_json)


@app.command(epilog="Example: lakewarden key show sales.orders 0d5e4a60-7f0c-4f6e-8a53-6f2f6f0f5b1e --as ann")
def show(
    ctx: typer.Context, table: TableOrUuid, key: _PekId, as_user: AsUser = None, as_json: AsJson = False
) -> None:
    """Show the versions of a key, and the retained snapshots that need each."""
    with administration(ctx, as_user) as admin:
        found = admin.ask("GET", (*_keys(table), str(key)))
    _warn(found)
    if not as_json:
        for each in found["keys"]:
            each["needed-by-snapshots"] = [_snapshot(use) for use in each["needed-by"]]
    columns = ("version", "state", "in-force", "invocations", "needed-by-snapshots")
    output.answer(found, "keys", columns, as_json=as_json)


@app.command(epilog="Example: lakewarden key create sales.orders pii --as ann")
def create(
    ctx: typer.Context,
    table: Table,
    master_key_id: _MasterKeyId,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Create a key of a table under a master key, before a write needs it."""
    with administration(ctx, as_user) as admin:
        made = admin.ask("POST", admin_path(table, "keys"), {"master-key-id": master_key_id})
    _print_keys(made, as_json)


@app.command(epilog="Example: lakewarden key rotate sales.orders --as ann")
def rotate(ctx: typer.Context, table: Table, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """Rotate the keys of a table: new files use the new versions. Existing files stay readable."""
    with administration(ctx, as_user) as admin:
        rotated = admin.ask("POST", admin_path(table, "keys", "rotate"), {})
    columns = ("id", "master-key-id", "version", "previous-version")
    output.answer(rotated, "keys", columns, as_json=as_json)


@app.command(epilog="Example: lakewarden key rewrap sales.orders --as ann")
def rewrap(ctx: typer.Context, table: Table, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """Rewrap the data keys of a table's files, on all branches, under the latest key versions."""
    with administration(ctx, as_user) as admin:
        done = admin.ask("POST", admin_path(table, "keys", "rewrap"), {})
    columns = ("branch", "snapshot-id", "manifests", "files", "lost")
    output.answer(done, "branches", columns, as_json=as_json)
    for each in done["branches"]:
        if each["lost"]:
            output.note(
                f"Branch {each['branch']}: {each['lost']} manifests list files under a destroyed key. "
                "They were not rewrapped."
            )


@app.command(epilog="Example: lakewarden key disable sales.orders --as ann")
def disable(
    ctx: typer.Context,
    table: TableOrUuid,
    key: _Which = None,
    version: _Version = None,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Disable keys of a table: they are unusable in all processes until you enable them again."""
    with administration(ctx, as_user) as admin:
        _print_keys(admin.ask("POST", (*_keys(table), "disable"), _which(key, version)), as_json)


@app.command(epilog="Example: lakewarden key enable sales.orders --as ann")
def enable(
    ctx: typer.Context,
    table: TableOrUuid,
    key: _Which = None,
    version: _Version = None,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Enable disabled keys again, and cancel a scheduled destruction."""
    with administration(ctx, as_user) as admin:
        _print_keys(admin.ask("POST", (*_keys(table), "enable"), _which(key, version)), as_json)


@app.command(
    epilog="Example: lakewarden key destroy sales.orders --key 0d5e4a60-7f0c-4f6e-8a53-6f2f6f0f5b1e "
    "--version 1 --as ann"
)
def destroy(
    ctx: typer.Context,
    table: TableOrUuid,
    key: _Which = None,
    version: _Version = None,
    confirm: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="TABLE again, to confirm. Without it, the command asks."),
    ] = None,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Schedule the destruction of keys: of one version that nothing needs, or of all versions and their data.

    During the waiting time the keys are disabled. To cancel the destruction, run `lakewarden key enable`.
    """
    if confirm is None:
        what = "a key version" if version else "the keys and all data that is encrypted under them"
        output.note(f"This destroys {what}. You cannot undo it after the waiting time.")
        confirm = typer.prompt(f"Type {table} to continue", err=True)
    if isinstance(table.whose, UUID) and version is not None:
        raise typer.BadParameter("The versions of a key of a dropped table go together. Leave --version out.")
    with administration(ctx, as_user) as admin:
        body = _which(key, version) | {"confirm": confirm}
        _print_keys(admin.ask("POST", (*_keys(table), "destroy"), body), as_json)


@app.command(epilog="Example: lakewarden key masters")
def masters(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the master keys of the local KMS."""
    from catalog.http.key_models import MasterKeyList

    if remote := remote_of(ctx):
        found = remote.ask("GET", ("master-keys",))
    else:
        kms = open_local_kms(settings_of(ctx))
        found = MasterKeyList.of(kms.list_master_keys()).model_dump(mode="json")
    output.answer(found, "master-keys", ("id", "version", "enabled"), as_json=as_json)


@app.command("create-master", epilog="Example: lakewarden key create-master pii")
def create_master(ctx: typer.Context, master_key_id: _MasterKeyId, as_user: AsUser = None) -> None:
    """Create a master key in the local KMS."""
    info = _operate(ctx, "create", master_key_id, as_user)
    output.note(f"Created the master key {info['id']}.")


@app.command("rotate-master", epilog="Example: lakewarden key rotate-master pii")
def rotate_master(ctx: typer.Context, master_key_id: _MasterKeyId, as_user: AsUser = None) -> None:
    """Rotate a master key of the local KMS. Then run `rewrap-master` to rewrap the keys of tables."""
    info = _operate(ctx, "rotate", master_key_id, as_user)
    output.note(f"Rotated the master key {info['id']} to version {info['version']}.")


@app.command("rewrap-master", epilog="Example: lakewarden key rewrap-master pii")
def rewrap_master(
    ctx: typer.Context, master_key_id: _MasterKeyId, as_user: AsUser = None, as_json: AsJson = False
) -> None:
    """Rewrap the keys of all tables under the latest version of a master key, in any KMS."""
    if remote := remote_of(ctx, as_user):
        done = remote.ask("POST", ("master-keys", "rewrap"), {"id": master_key_id})
    else:
        done = _rewrapped(ctx, master_key_id, as_user)
    if as_json:
        output.document(done)
    else:
        output.note(f"Keys rewrapped: {done['rewrapped']}. Keys not rewrapped: {len(done['failed'])}.")
        if not done["rewrapped"] and not done["failed"]:
            output.note(f"No key is wrapped under {master_key_id}.")
        if done["failed"]:
            output.answer(done, "failed", ("id", "version", "reason"), as_json=False)
    if done["failed"]:
        raise typer.Exit(_FAILED)


@app.command("disable-master", epilog="Example: lakewarden key disable-master pii")
def disable_master(ctx: typer.Context, master_key_id: _MasterKeyId, as_user: AsUser = None) -> None:
    """Disable a master key, and with it every key that it wraps, until you enable it again."""
    info = _operate(ctx, "disable", master_key_id, as_user)
    within = "`kms.pek_ttl_s`" if remote_of(ctx) else f"{settings_of(ctx).kms.pek_ttl_s:g} seconds"
    output.note(f"Disabled the master key {info['id']}. A running service stops using it within {within}.")


@app.command("enable-master", epilog="Example: lakewarden key enable-master pii")
def enable_master(ctx: typer.Context, master_key_id: _MasterKeyId, as_user: AsUser = None) -> None:
    """Enable a disabled master key again."""
    info = _operate(ctx, "enable", master_key_id, as_user)
    output.note(f"Enabled the master key {info['id']}.")


def _operate(
    ctx: typer.Context,
    operation: Literal["create", "rotate", "disable", "enable"],
    master_key_id: str,
    as_user: str | None,
) -> dict[str, Any]:
    """Run an operation on a master key, and print the key afterwards."""
    from catalog.http.key_models import MasterKeyAnswer

    if remote := remote_of(ctx, as_user):
        path = ("master-keys",) if operation == "create" else ("master-keys", operation)
        made: dict[str, Any] = remote.ask("POST", path, {"id": master_key_id})
        return made
    settings = settings_of(ctx)
    kms = open_local_kms(settings)
    operations = {
        "create": kms.create_master_key,
        "rotate": kms.rotate_master_key,
        "disable": kms.disable_master_key,
        "enable": kms.enable_master_key,
    }
    with open_state(settings) as engine, operating(engine, calling(as_user)) as begin:
        begin(f"master-key.{operation}", master_key_id)
        return MasterKeyAnswer.model_validate(operations[operation](master_key_id)).model_dump(mode="json")


def _rewrapped(ctx: typer.Context, master_key_id: str, as_user: str | None) -> dict[str, Any]:
    from catalog.http.key_models import MasterRewrapped

    with (
        output.progress(f"Rewrapping keys under {master_key_id}") as tell,
        open_services(ctx) as services,
        operating(services.engine, calling(as_user)) as begin,
    ):
        begin("master-key.rewrap", master_key_id)
        done = services.master_keys.rewrap(master_key_id, tell)
    return MasterRewrapped.of(done).model_dump(mode="json")


def _list_expiring(
    ctx: typer.Context, within: timedelta, older_than: timedelta | None, as_user: str | None, form: Form
) -> None:
    from catalog.http.admin_access import require_service
    from catalog.reports.expiring_keys import Period, expiring_report

    with open_services(ctx) as services, acting(services, as_user, changes=False) as caller:
        require_service(services, caller, "audit.states")
        report = expiring_report(services, Period(datetime.now(UTC), within, older_than))
    reports.show(report, form)


def _keys(table: KeysOf) -> tuple[str, ...]:
    """Return the path of a table's keys, below `/admin/v1`."""
    if isinstance(table.whose, UUID):
        return "dropped-tables", str(table.whose), "keys"
    return admin_path(table.whose, "keys")


def _which(key: UUID | None, version: int | None) -> dict[str, Any]:
    """Build the body that selects keys; members that are left out select all."""
    given = {"id": None if key is None else str(key), "version": version}
    return {name: value for name, value in given.items() if value is not None}


def _print_keys(found: dict[str, Any], as_json: bool) -> None:
    _warn(found)
    output.answer(found, "keys", _PEKS, as_json=as_json)


def _warn(found: dict[str, Any]) -> None:
    for each in found["keys"]:
        if each["in-force"] and each["needs-rotation"]:
            output.note(
                f"Key {each['id']} version {each['version']} has encrypted {each['invocations']:,} times, "
                "at least half of its limit. Rotate the keys with `lakewarden key rotate`."
            )


def _snapshot(use: dict[str, Any]) -> str:
    names = ", ".join(use["names"])
    return f"{use['snapshot-id']} ({names})" if names else str(use["snapshot-id"])
