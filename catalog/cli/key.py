"""`lakewarden key`: a table's keys, and the master keys of the local KMS. No key bytes are ever shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson, AsUser, Table
from catalog.cli.session import (
    calling,
    open_local_kms,
    open_state,
    open_warden,
    record_operation,
    settings_of,
)
from catalog.keys.local_kms import LocalKms, MasterKeyInfo

app = typer.Typer(help="Keys of tables, and master keys of the local KMS.", no_args_is_help=True)

_MasterKeyId = Annotated[str, typer.Argument(metavar="ID", help="The master key's id.", show_default=False)]


@app.command("list")
def list_(ctx: typer.Context, table: Table, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """List a table's keys (PEKs), in every state."""
    with open_warden(ctx) as warden:
        record = warden.access.load(calling(as_user), table).record
        peks = warden.keyring.records(record)
    found = [
        {
            "id": str(pek.id),
            "version": pek.version,
            "master-key-id": pek.master_key_id,
            "kms": pek.kms,
            "state": str(pek.state),
        }
        for pek in peks
    ]
    _print(found, ("id", "version", "master-key-id", "kms", "state"), as_json)


@app.command()
def masters(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the master keys of the local KMS."""
    found = [_shown(info) for info in open_local_kms(settings_of(ctx)).list_master_keys()]
    _print(found, ("id", "version", "enabled"), as_json)


@app.command("create-master")
def create_master(ctx: typer.Context, master_key_id: _MasterKeyId, as_user: AsUser = None) -> None:
    """Create a master key in the local KMS."""
    info = _operate(ctx, "master-key.create", master_key_id, as_user, LocalKms.create_master_key)
    output.note(f"The master key {info.id} is created.")


@app.command("disable-master")
def disable_master(ctx: typer.Context, master_key_id: _MasterKeyId, as_user: AsUser = None) -> None:
    """Make a master key unusable, and with it every table key that it wraps, until it is enabled again."""
    info = _operate(ctx, "master-key.disable", master_key_id, as_user, LocalKms.disable_master_key)
    ttl = settings_of(ctx).kms.pek_ttl_s
    output.note(f"The master key {info.id} is disabled; a running service notices within {ttl:g} seconds.")


@app.command("enable-master")
def enable_master(ctx: typer.Context, master_key_id: _MasterKeyId, as_user: AsUser = None) -> None:
    """Make a master key usable again."""
    info = _operate(ctx, "master-key.enable", master_key_id, as_user, LocalKms.enable_master_key)
    output.note(f"The master key {info.id} is enabled.")


def _operate(
    ctx: typer.Context,
    action: str,
    master_key_id: str,
    as_user: str | None,
    operation: Callable[[LocalKms, str], MasterKeyInfo],
) -> MasterKeyInfo:
    settings = settings_of(ctx)
    kms = open_local_kms(settings)
    with open_state(settings) as engine:
        record_operation(engine, calling(as_user), action, master_key_id)
    return operation(kms, master_key_id)


def _shown(info: MasterKeyInfo) -> dict[str, object]:
    return {"id": info.id, "version": info.version, "enabled": info.enabled}


def _print(found: list[dict[str, object]], columns: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        output.document(found)
    else:
        output.rows(columns, [[each[name] for name in columns] for each in found])
