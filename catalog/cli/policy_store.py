"""`lakewarden policy list|get|put|remove|history`: manages the policies in the catalog's database.

These commands need no policy, so that an operator can repair policies that are invalid or lock every user
out. A change is recorded before it is made, and takes effect in a running service within seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson, AsUser
from catalog.cli.session import calling, open_state, operating, settings_of
from catalog.policy_store.kinds import Kind
from policy.errors import RequestInvalid

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from catalog.policy_store.changes import Prepared
    from catalog.policy_store.documents import Change, Edit, PolicyDocuments
    from catalog.settings.catalog import Settings

_ACTION: Final = "policy.change"

_Kind = Annotated[Kind, typer.Option("--kind", help="Kind of the document.")]
_Name = Annotated[str, typer.Argument(help="Name of the document.", show_default=False)]
_Revision = Annotated[
    int | None,
    typer.Option("--revision", min=1, help="Revision that you have seen. Leave it out for a new document."),
]
_SeenRevision = Annotated[
    int | None, typer.Option("--revision", min=1, help="Revision that you have seen. Required.")
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the effect without changing anything.")]
_Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Change it even if no user with a token could administer the catalog afterwards."
    ),
]


def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the policy documents in the catalog's database."""
    with _open(ctx) as (_, documents, _):
        found = documents.current()
    listed = [_shown(each.change) for each in found.documents.values()]
    if as_json:
        output.document({"revision": found.version.revision, "documents": listed})
    else:
        _rows(listed)


def get(
    ctx: typer.Context,
    name: _Name,
    kind: _Kind = Kind.RANGER,
    revision: Annotated[
        int | None, typer.Option("--revision", min=1, help="Revision to print. Default: the latest.")
    ] = None,
) -> None:
    """Print a policy document unchanged, and its revision on standard error."""
    from catalog.policy_store.documents import DocumentId

    document = DocumentId(kind, name)
    with _open(ctx) as (_, documents, _):
        found = documents.find(document, revision)
    if found is None or found.content is None:
        raise RequestInvalid(
            f"There is no policy document {document}" + (f" of revision {revision}." if revision else "."),
            rule="policy-document",
            hint="Find its name and revisions with `lakewarden policy list` and `lakewarden policy history`.",
        )
    output.note(f"Revision {found.change.revision}, by {found.change.author}.")
    output.content(found.content)


def put(
    ctx: typer.Context,
    name: _Name,
    file: Annotated[
        Path, typer.Argument(help="File with the new content; - for standard input.", allow_dash=True)
    ],
    kind: _Kind = Kind.RANGER,
    revision: _Revision = None,
    dry_run: _DryRun = False,
    force: _Force = False,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Create or replace a policy document. Refused if the policies as a whole would be invalid."""
    from catalog.policy_store.documents import DocumentId, Edit

    edit = Edit(DocumentId(kind, name), _content(file), revision)
    _change(ctx, edit, dry_run, force, as_user, as_json)


def remove(
    ctx: typer.Context,
    name: _Name,
    kind: _Kind = Kind.RANGER,
    revision: _SeenRevision = None,
    dry_run: _DryRun = False,
    force: _Force = False,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Remove a policy document. The history keeps its content."""
    from catalog.policy_store.documents import DocumentId, Edit

    _change(ctx, Edit(DocumentId(kind, name), None, revision), dry_run, force, as_user, as_json)


def history(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="Name of one document. Default: all documents.", show_default=False)
    ] = None,
    kind: _Kind = Kind.RANGER,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of changes.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List changes of policy documents, newest first."""
    from catalog.policy_store.documents import DocumentId

    document = None if name is None else DocumentId(kind, name)
    with _open(ctx) as (_, documents, _):
        listed = [_shown(each) for each in documents.history(document, limit=limit)]
    if as_json:
        output.document(listed)
    else:
        _rows(listed)


@contextmanager
def _open(ctx: typer.Context) -> Iterator[tuple[Engine, PolicyDocuments, Settings]]:
    from catalog.policy_store.documents import PolicyDocuments

    settings = settings_of(ctx)
    with open_state(settings) as engine:
        yield engine, PolicyDocuments(engine, settings.catalog.name), settings


def _content(file: Path) -> bytes:
    """What a file says, up to one byte more than is accepted."""
    from catalog.policy_store.documents import MAX_STORED_SIZE

    try:
        if str(file) == "-":
            return sys.stdin.buffer.read(MAX_STORED_SIZE + 1)
        with file.open("rb") as opened:
            return opened.read(MAX_STORED_SIZE + 1)
    except OSError as error:
        raise RequestInvalid(
            f"The file {file} cannot be read: {error.strerror}.",
            rule="policy-file",
            hint="Give a file that you can read, or - for standard input.",
        ) from error


def _change(
    ctx: typer.Context, edit: Edit, dry_run: bool, force: bool, as_user: str | None, as_json: bool
) -> None:
    from catalog.authorization.tokens import TokenStore
    from catalog.policy_store.changes import PolicyChanges, reasons_of
    from catalog.policy_store.files import PolicyFiles

    caller = calling(as_user)
    with _open(ctx) as (engine, documents, settings):
        files = PolicyFiles(settings.policies, settings.encryption_rules)
        tokens = TokenStore(engine)
        name = settings.catalog.name
        changes = PolicyChanges(documents, files.read, None, tokens, name, lambda: datetime.now(UTC))

        if dry_run:
            prepared = changes.prepare([edit], caller, by_policy=False)
        else:
            with operating(engine, caller) as begin:

                def record(prepared: Prepared) -> None:
                    begin(_ACTION, f"policy {edit.id}", *reasons_of(prepared, force=force))

                prepared = changes.make([edit], caller, record, by_policy=False, force=force)
    _show(prepared, dry_run, as_json)


def _show(prepared: Prepared, dry_run: bool, as_json: bool) -> None:
    revision = prepared.after.stored.version.revision
    if as_json:
        output.document(
            {
                "dry-run": dry_run,
                "revision": revision,
                "version": prepared.after.policies.version,
                "encryption-version": prepared.after.encryption.version,
                "changes": [_shown(each.change) for each in prepared.changed],
                "effect": asdict(prepared.effect),
                "lockout": prepared.lockout,
            }
        )
        return
    lines = [(what, title) for what, titles in asdict(prepared.effect).items() for title in titles]
    if lines:
        output.rows(("effect", "on"), lines)
    if prepared.lockout is not None:
        output.note(f"After this change, {prepared.lockout}.")
    if not prepared.changed:
        output.note("Nothing was changed: the document already has this content.")
    elif dry_run:
        output.note(f"Dry run: nothing was changed. The change would be revision {revision}.")
    else:
        output.note(f"Changed the document: it has revision {revision}.")


def _shown(change: Change) -> dict[str, object]:
    return {
        "kind": change.id.kind.value,
        "name": change.id.name,
        "revision": change.revision,
        "sha256": change.sha256,
        "author": change.author,
        "request-id": change.request_id,
        "changed": output.moment(change.changed_at),
    }


def _rows(listed: Sequence[dict[str, object]]) -> None:
    columns = ("kind", "name", "revision", "author", "changed", "sha256")
    output.rows(columns, [[each[column] or "removed" for column in columns] for each in listed])
