"""`lakewarden key`: the life of tables' keys, and master keys of the local KMS. No key bytes are ever shown.

What is done to a table's keys is decided by the policies for the principal that `--as` names, and audited.
What an operator does to master keys needs no policy (`session`).
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

app = typer.Typer(help="Keys of tables, and master keys of the local KMS.", no_args_is_help=True)

_FAILED = 3
_COLUMNS = ("id", "version", "master-key-id", "kms", "state", "in-force", "destroyed-from", "invocations")

_MasterKeyId = Annotated[str, typer.Argument(metavar="ID", help="The master key's id.", show_default=False)]
_PekId = Annotated[UUID, typer.Argument(metavar="KEY", help="The key's id.", show_default=False)]
_Which = Annotated[UUID | None, typer.Option("--key", metavar="KEY", help="One key of the table.")]
_Version = Annotated[int | None, typer.Option(min=1, metavar="N", help="One version of that key.")]


@app.command("list")
def list_(ctx: typer.Context, table: TableOrUuid, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """List a table's keys (PEKs) in every version and state."""
    with open_services(ctx) as services, acting(services, as_user, changes=False) as caller:
        _print_keys(services.key_life.keys(caller, table.whose), as_json)


@app.command()
def show(
    ctx: typer.Context, table: TableOrUuid, key: _PekId, as_user: AsUser = None, as_json: AsJson = False
) -> None:
    """Show the versions of a key, and which retained snapshots need each."""
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


@app.command()
def create(
    ctx: typer.Context,
    table: Table,
    master_key_id: _MasterKeyId,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Make a table's key under a master key ahead of its use."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        _print_keys(services.key_life.create(caller, table, master_key_id), as_json)


@app.command()
def rotate(ctx: typer.Context, table: Table, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """Put new files under later versions of a table's keys; files that are there stay readable."""
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


@app.command()
def rewrap(ctx: typer.Context, table: Table, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """Move the data keys of a table's files, on all branches, to the latest versions of its keys."""
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
                f"Branch {each.branch}: {each.lost} manifests list files under a destroyed key; they stay."
            )


@app.command()
def disable(
    ctx: typer.Context,
    table: TableOrUuid,
    key: _Which = None,
    version: _Version = None,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Make keys of a table unusable, everywhere and at once, until they are enabled again."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        _print_keys(services.key_life.disable(caller, table.whose, key, version), as_json)


@app.command()
def enable(
    ctx: typer.Context,
    table: TableOrUuid,
    key: _Which = None,
    version: _Version = None,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Make disabled keys usable again; a destruction that was asked for is called off."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        _print_keys(services.key_life.enable(caller, table.whose, key, version), as_json)


@app.command()
def destroy(
    ctx: typer.Context,
    table: TableOrUuid,
    key: _Which = None,
    version: _Version = None,
    confirm: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="TABLE once more; asked for without it."),
    ] = None,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Destroy keys after a waiting time: one version that nothing needs, or all, with what is under them.

    Until the time is over the keys are disabled, and `enable` calls the destruction off.
    """
    if confirm is None:
        what = "a version of a key" if version else "keys, and with them all that is encrypted under them"
        output.note(f"This destroys {what}. It cannot be undone once the waiting time is over.")
        confirm = typer.prompt(f"Type {table} to go on", err=True)
    with open_services(ctx) as services, acting(services, as_user) as caller:
        destroyed = services.key_life.destroy(caller, table.whose, confirm, key, version)
        _print_keys(destroyed, as_json)


@app.command()
def masters(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the master keys of the local KMS."""
    found = [_shown(info) for info in open_local_kms(settings_of(ctx)).list_master_keys()]
    _print(found, ("id", "version", "enabled"), as_json)


@app.command("create-master")
def create_master(ctx: typer.Context, master_key_id: _MasterKeyId, as_user: AsUser = None) -> None:
    """Create a master key in the local KMS."""
    info = _operate(
        ctx, "master-key.create", master_key_id, as_user, lambda kms: kms.create_master_key(master_key_id)
    )
    output.note(f"The master key {info.id} is created.")


@app.command("rotate-master")
def rotate_master(ctx: typer.Context, master_key_id: _MasterKeyId, as_user: AsUser = None) -> None:
    """Give a master key of the local KMS a new version; `rewrap-master` brings tables' keys under it."""
    info = _operate(
        ctx, "master-key.rotate", master_key_id, as_user, lambda kms: kms.rotate_master_key(master_key_id)
    )
    output.note(f"The master key {info.id} has version {info.version} now.")


@app.command("rewrap-master")
def rewrap_master(
    ctx: typer.Context, master_key_id: _MasterKeyId, as_user: AsUser = None, as_json: AsJson = False
) -> None:
    """Bring every table's key under the newest version of its master key, in whatever KMS that is."""
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
        output.note(f"Keys that were rewrapped: {done.rewrapped}; that were not: {len(failed)}.")
        if not done.rewrapped and not failed:
            output.note(f"No key is under {master_key_id}.")
        if failed:
            output.rows(("id", "version", "reason"), [list(each.values()) for each in failed])
    if failed:
        raise typer.Exit(_FAILED)


@app.command("disable-master")
def disable_master(ctx: typer.Context, master_key_id: _MasterKeyId, as_user: AsUser = None) -> None:
    """Make a master key unusable, and with it every table key that it wraps, until it is enabled again."""
    info = _operate(
        ctx, "master-key.disable", master_key_id, as_user, lambda kms: kms.disable_master_key(master_key_id)
    )
    ttl = settings_of(ctx).kms.pek_ttl_s
    output.note(f"The master key {info.id} is disabled; a running service notices within {ttl:g} seconds.")


@app.command("enable-master")
def enable_master(ctx: typer.Context, master_key_id: _MasterKeyId, as_user: AsUser = None) -> None:
    """Make a master key usable again."""
    info = _operate(
        ctx, "master-key.enable", master_key_id, as_user, lambda kms: kms.enable_master_key(master_key_id)
    )
    output.note(f"The master key {info.id} is enabled.")


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
                "half of what it may or more: rotate the table's keys."
            )


def _yes(value: object) -> str:
    return "yes" if value else ""


def _print(found: list[dict[str, object]], columns: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        output.document(found)
    else:
        output.rows(columns, [[each[name] for name in columns] for each in found])
