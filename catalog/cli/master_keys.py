"""Commands that move keys to other master keys and KMSs, and list what still needs one.

They need `admin` on the service, also on the catalog's host; to assign and to move, also `rotate` on the
master key.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from catalog.base.progress import Tell
from catalog.cli import output
from catalog.cli.arguments import AsJson, AsUser
from catalog.cli.session import Administration, administration

_LEFT: Final = 3

_Id = Annotated[
    str, typer.Argument(metavar="ID", help="ID of the master key, as tables name it.", show_default=False)
]
_KmsKey = Annotated[
    str | None, typer.Option("--kms-key", metavar="KEY", help="ID of the master key in the KMS.")
]


def kms_keys(ctx: typer.Context, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """List the master keys that tables use, and the key of which KMS each stands for."""
    with administration(ctx, as_user) as admin:
        found = admin.ask("GET", ("master-keys", "kms-keys"))
    output.answer(found, "master-keys", ("id", "kms", "kms-key-id"), as_json=as_json)


def assign_master(
    ctx: typer.Context,
    master_key_id: _Id,
    kms: Annotated[str, typer.Option(metavar="NAME", help="The KMS, as the settings name it.")],
    kms_key: _KmsKey = None,
    as_user: AsUser = None,
) -> None:
    """Let a master key stand for a key of another KMS, or for another key. Then run `move-master`."""
    body = {"id": master_key_id, "kms": kms} | ({} if kms_key is None else {"kms-key-id": kms_key})
    with administration(ctx, as_user) as admin:
        done = admin.ask("POST", ("master-keys", "assign"), body)
    output.note(
        f"New keys under {done['id']} are made by {done['kms-key-id']} in the KMS {done['kms']}. "
        f"Before: {done['previous-kms-key-id']} in the KMS {done['previous-kms']}."
    )


def move_master(
    ctx: typer.Context, master_key_id: _Id, as_user: AsUser = None, as_json: AsJson = False
) -> None:
    """Move the keys of a master key to the KMS key that it stands for. No table or file changes."""
    with output.progress(f"Moving keys of {master_key_id}") as tell, administration(ctx, as_user) as admin:
        moved, (after, failed) = 0, _pass(admin, master_key_id, 0, tell)
        while moved < after:
            moved, (after, failed) = after, _pass(admin, master_key_id, after, tell)
    if as_json:
        output.document({"moved": moved, "failed": failed})
    else:
        output.note(f"Keys moved: {moved}. Keys not moved: {len(failed)}.")
        if failed:
            output.answer({"failed": failed}, "failed", ("id", "version", "reason"), as_json=False)
    if failed:
        raise typer.Exit(_LEFT)


def needs(
    ctx: typer.Context,
    kms: Annotated[
        str, typer.Argument(metavar="KMS", help="The KMS, as the settings name it.", show_default=False)
    ],
    kms_key: _KmsKey = None,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """List what still needs a KMS, or a key in it. Exit code 0: nothing, so that it can be shut off."""
    query = {"kms": kms} | ({} if kms_key is None else {"kms-key-id": kms_key})
    with administration(ctx, as_user) as admin:
        found = admin.ask("GET", ("master-keys", "needs"), query=query)
    output.answer(found, "needs", ("by", "name", "master-key-id", "keys"), as_json=as_json)
    if found["needs"]:
        raise typer.Exit(_LEFT)


def _pass(admin: Administration, master_key_id: str, before: int, tell: Tell) -> tuple[int, list[Any]]:
    """Try to move each key once; return how many are moved in all, and which were not.

    Args:
        admin: the administration API.
        master_key_id: the master key.
        before: how many keys were moved before.
        tell: is told how many are moved in all.
    """
    moved, failed, token = before, list[Any](), None
    while True:
        body = {"id": master_key_id} | ({} if token is None else {"page-token": token})
        done = admin.ask("POST", ("master-keys", "move"), body)
        moved, failed, token = moved + done["moved"], failed + done["failed"], done["next-page-token"]
        tell(f"Keys of {master_key_id} moved", moved, None)
        if token is None:
            return moved, failed
