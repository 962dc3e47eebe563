"""`lakewarden key`: manages the keys of tables, and master keys of the local KMS. It never shows key bytes.

Policies decide on keys of tables, for the principal that `--as` names. Each decision is audited.
Commands on master keys need no policy (`session`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson, AsUser, Table, TableOrUuid
from catalog.cli.session import (
    acting,
    calling,
    open_local_kms,
    open_services,
    open_state,
    operating,
    settings_of,
)

if TYPE_CHECKING:
    from catalog.key_management.rewrap import Progress
    from catalog.key_management.states import ShownKey
    from catalog.kms.local import LocalKms, MasterKeyInfo

app = typer.Typer(
    help="Manage the keys of tables (PEKs), and master keys of the local KMS.", no_args_is_help=True
)

_FAILED = 3
_COLUMNS = ("id", "version", "master-key-id", "kms", "state", "in-force", "destroyed-from", "invocations")

_MasterKeyId = Annotated[str, typer.Argument(metavar="ID", help="ID of the master key.", show_default=False)]
_PekId = Annotated[UUID, typer.Argument(metavar="KEY", help="ID of the key.", show_default=False)]
_Which = Annotated[
    UUID | None, typer.Option("--key", metavar="KEY", help="ID of one key. Default: all keys of the table.")
]
_Version = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="One version of the key. Default: all versions.")
]


@app.command("list", epilog="Example: lakewarden key list sales.orders --as ann")
def list_(ctx: typer.Context, table: TableOrUuid, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """List the keys (PEKs) of a table, with all versions and states."""
    with open_services(ctx) as services, acting(services, as_user, changes=False) as caller:
        _print_keys(services.key_life.keys(caller, table.whose), as_json)


@app.command(epilog="Example: lakewarden key show sales.orders 0d5e4a60-7f0c-4f6e-8a53-6f2f6f0f5b1e --as ann")
def show(
    ctx: typer.Context, table: TableOrUuid, key: _PekId, as_user: AsUser = None, as_json: AsJson = False
) -> None:
    """Show the versions of a key, and the retained snapshots that need each."""
    with open_services(ctx) as services, acting(services, as_user, changes=False) as caller:
        keys, uses = services.key_life.show(caller, table.whose, key)
    _warn(keys)
    needed = [uses.get(each.pek.ref, []) for each in keys]
    if as_json:
        snapshots = [
            [{"snapshot-id": use.snapshot_id, "names": list(use.names)} for use in each] for each in needed
        ]
        output.document(
            [_key(each) | {"needed-by": those} for each, those in zip(keys, snapshots, strict=True)]
        )
        return
    output.rows(
        ("version", "state", "in-force", "invocations", "needed-by-snapshots"),
        [
            [
                each.pek.version,
                each.pek.state,
                _yes(each.in_force),
                each.invocations,
                ", ".join(map(str, those)),
            ]
            for each, those in zip(keys, needed, strict=True)
        ],
    )


@app.command(epilog="Example: lakewarden key create sales.orders pii --as ann")
def create(
    ctx: typer.Context,
    table: Table,
    master_key_id: _MasterKeyId,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Create a key of a table under a master key, before a write needs it."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        _print_keys(services.key_life.create(caller, table, master_key_id), as_json)


@app.command(epilog="Example: lakewarden key rotate sales.orders --as ann")
def rotate(ctx: typer.Context, table: Table, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """Rotate the keys of a table: new files use the new versions. Existing files stay readable."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        rotated = services.key_rotation.rotate(caller, table)
    found: list[dict[str, object]] = [
        {
            "id": str(now.pek_id),
            "master-key-id": now.master_key_id,
            "version": now.version,
            "previous-version": before.version,
        }
        for before, now in rotated.versions
    ]
    _print(found, ("id", "master-key-id", "version", "previous-version"), as_json)


@app.command(epilog="Example: lakewarden key rewrap sales.orders --as ann")
def rewrap(ctx: typer.Context, table: Table, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """Rewrap the data keys of a table's files, on all branches, under the latest key versions."""
    with open_services(ctx) as services, acting(services, as_user) as caller, output.progress() as advance:

        def tell(progress: Progress) -> None:
            advance(f"Branch {progress.branch}: manifests", progress.done, progress.total)

        branches = services.key_rewrap.rewrap(caller, table, tell)
    found: list[dict[str, object]] = [
        {
            "branch": each.branch,
            "snapshot-id": each.snapshot_id,
            "manifests": each.manifests,
            "files": each.files,
            "lost": each.lost,
        }
        for each in branches
    ]
    _print(found, ("branch", "snapshot-id", "manifests", "files", "lost"), as_json)
    for each in branches:
        if each.lost:
            output.note(
                f"Branch {each.branch}: {each.lost} manifests list files under a destroyed key. "
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
    with open_services(ctx) as services, acting(services, as_user) as caller:
        _print_keys(services.key_life.disable(caller, table.whose, key, version), as_json)


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
    with open_services(ctx) as services, acting(services, as_user) as caller:
        _print_keys(services.key_life.enable(caller, table.whose, key, version), as_json)


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
    with open_services(ctx) as services, acting(services, as_user) as caller:
        destroyed = services.key_life.destroy(caller, table.whose, confirm, key, version)
        _print_keys(destroyed, as_json)


@app.command(epilog="Example: lakewarden key masters")
def masters(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the master keys of the local KMS."""
    found = [_shown(info) for info in open_local_kms(settings_of(ctx)).list_master_keys()]
    _print(found, ("id", "version", "enabled"), as_json)


@app.command("create-master", epilog="Example: lakewarden key create-master pii")
def create_master(ctx: typer.Context, master_key_id: _MasterKeyId, as_user: AsUser = None) -> None:
    """Create a master key in the local KMS."""
    info = _operate(
        ctx, "master-key.create", master_key_id, as_user, lambda kms: kms.create_master_key(master_key_id)
    )
    output.note(f"Created the master key {info.id}.")


@app.command("rotate-master", epilog="Example: lakewarden key rotate-master pii")
def rotate_master(ctx: typer.Context, master_key_id: _MasterKeyId, as_user: AsUser = None) -> None:
    """Rotate a master key of the local KMS. Then run `rewrap-master` to rewrap the keys of tables."""
    info = _operate(
        ctx, "master-key.rotate", master_key_id, as_user, lambda kms: kms.rotate_master_key(master_key_id)
    )
    output.note(f"Rotated the master key {info.id} to version {info.version}.")


@app.command("rewrap-master", epilog="Example: lakewarden key rewrap-master pii")
def rewrap_master(
    ctx: typer.Context, master_key_id: _MasterKeyId, as_user: AsUser = None, as_json: AsJson = False
) -> None:
    """Rewrap the keys of all tables under the latest version of a master key, in any KMS."""
    caller = calling(as_user)
    with (
        open_services(ctx) as services,
        output.progress() as advance,
        operating(services.engine, caller) as begin,
    ):
        begin("master-key.rewrap", master_key_id)
        done = services.master_keys.rewrap(master_key_id, lambda count: advance("Keys", count, None))
    failed = [
        {"id": str(each.ref.pek_id), "version": each.ref.version, "reason": each.reason}
        for each in done.failed
    ]
    if as_json:
        output.document({"rewrapped": done.rewrapped, "failed": failed})
    else:
        output.note(f"Keys rewrapped: {done.rewrapped}. Keys not rewrapped: {len(failed)}.")
        if not done.rewrapped and not failed:
            output.note(f"No key is wrapped under {master_key_id}.")
        if failed:
            output.rows(("id", "version", "reason"), [list(each.values()) for each in failed])
    if failed:
        raise typer.Exit(_FAILED)


@app.command("disable-master", epilog="Example: lakewarden key disable-master pii")
def disable_master(ctx: typer.Context, master_key_id: _MasterKeyId, as_user: AsUser = None) -> None:
    """Disable a master key, and with it every key that it wraps, until you enable it again."""
    info = _operate(
        ctx, "master-key.disable", master_key_id, as_user, lambda kms: kms.disable_master_key(master_key_id)
    )
    ttl = settings_of(ctx).kms.pek_ttl_s
    output.note(
        f"Disabled the master key {info.id}. A running service stops using it within {ttl:g} seconds."
    )


@app.command("enable-master", epilog="Example: lakewarden key enable-master pii")
def enable_master(ctx: typer.Context, master_key_id: _MasterKeyId, as_user: AsUser = None) -> None:
    """Enable a disabled master key again."""
    info = _operate(
        ctx, "master-key.enable", master_key_id, as_user, lambda kms: kms.enable_master_key(master_key_id)
    )
    output.note(f"Enabled the master key {info.id}.")


def _operate(
    ctx: typer.Context,
    action: str,
    master_key_id: str,
    as_user: str | None,
    operation: Callable[[LocalKms], MasterKeyInfo],
) -> MasterKeyInfo:
    settings = settings_of(ctx)
    kms = open_local_kms(settings)
    with open_state(settings) as engine, operating(engine, calling(as_user)) as begin:
        begin(action, master_key_id)
        return operation(kms)


def _shown(info: MasterKeyInfo) -> dict[str, object]:
    return {"id": info.id, "version": info.version, "enabled": info.enabled}


def _key(shown: ShownKey) -> dict[str, object]:
    pek, at = shown.pek, shown.pek.destroy_after_ms
    return {
        "id": str(pek.id),
        "version": pek.version,
        "master-key-id": pek.master_key_id,
        "kms": pek.kms,
        "state": str(pek.state),
        "in-force": shown.in_force,
        "destroyed-from": None if at is None else output.moment(datetime.fromtimestamp(at / 1000, UTC)),
        "invocations": shown.invocations,
    }


def _print_keys(keys: Sequence[ShownKey], as_json: bool) -> None:
    _warn(keys)
    found = [_key(each) for each in keys]
    if as_json:
        output.document(found)
        return
    lines = [list((each | {"in-force": _yes(each["in-force"])}).values()) for each in found]
    output.rows(_COLUMNS, lines)


def _warn(keys: Sequence[ShownKey]) -> None:
    for each in keys:
        if each.in_force and each.needs_rotation:
            output.note(
                f"Key {each.pek.id} version {each.pek.version} has encrypted {each.invocations:,} times, "
                "at least half of its limit. Rotate the keys with `lakewarden key rotate`."
            )


def _yes(value: object) -> str:
    return "yes" if value else ""


def _print(found: list[dict[str, object]], columns: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        output.document(found)
    else:
        output.rows(columns, [[each[name] for name in columns] for each in found])
