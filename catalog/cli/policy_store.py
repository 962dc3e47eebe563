"""`lakewarden policy list|get|put|remove|history`: manages the policies in the catalog's database.

On the catalog's host these commands need no policy, so that an operator can repair policies that are invalid
or lock out all users. A change is recorded before it is made, and takes effect in a running service within
seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson, AsUser
from catalog.cli.session import calling, open_state, operating, remote_of, settings_of
from catalog.policy_store.kinds import MAX_STORED_SIZE, Kind
from policy.errors import RequestInvalid

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from catalog.authorization.authorizer import Caller
    from catalog.policy_store.changes import Prepared
    from catalog.policy_store.documents import Edit, PolicyDocuments
    from catalog.settings.catalog import Settings

_ACTION: Final = "policy.change"
_LATEST: Final = 2**62
_DOCUMENTS: Final = ("policies", "documents")
_COLUMNS: Final = ("kind", "name", "revision", "author", "changed-at", "sha256")

_Kind = Annotated[Kind, typer.Option("--kind", help="Kind of the document.")]
_Name = Annotated[str, typer.Argument(help="Name of the document.", show_default=False)]
_Revision = Annotated[
    int | None,
    typer.Option(
        "--revision", min=1, max=_LATEST, help="Revision that you have seen. Leave it out for a new document."
    ),
]
_SeenRevision = Annotated[
    int | None, typer.Option("--revision", min=1, max=_LATEST, help="Revision that you have seen. Required.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the effect without changing anything.")]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Change it even if no current user could administer the catalog afterwards."
    ),
]


@dataclass(frozen=True, slots=True)
class Store:
    """The policies in the database, for a command on the host."""

    documents: PolicyDocuments
    engine: Engine
    settings: Settings
    caller: Caller

    def make(self, edits: Sequence[Edit], *, dry_run: bool, force: bool) -> Prepared:
        """Make a change and record it; a dry run only checks it."""
        from catalog.authorization.principals import principals_of
        from catalog.policy_store.changes import PolicyChanges, about, reasons_of

        name = self.settings.catalog.name
        principals = principals_of(self.engine, self.settings.identity)
        changes = PolicyChanges(
            self.documents,
            None,
            principals,
            name,
            lambda: datetime.now(UTC),
            sources=self.settings.ranger,
        )
        if dry_run:
            return changes.prepare(edits, self.caller, by_policy=False)
        with operating(self.engine, self.caller) as begin:

            def record(prepared: Prepared) -> None:
                for reasons in reasons_of(prepared, force=force):
                    begin(_ACTION, about(edits), *reasons)

            return changes.make(edits, self.caller, record, by_policy=False, force=force)


def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the policy documents in the catalog's database."""
    output.answer(listed(ctx), "documents", _COLUMNS, as_json=as_json)


def listed(ctx: typer.Context, as_user: str | None = None) -> dict[str, Any]:
    """Return the policy documents in the catalog's database, in the format of `/admin/v1`."""
    remote = remote_of(ctx, as_user)
    return remote.ask("GET", _DOCUMENTS) if remote else _list(settings_of(ctx))


def get(
    ctx: typer.Context,
    name: _Name,
    kind: _Kind = Kind.RANGER,
    revision: Annotated[
        int | None,
        typer.Option("--revision", min=1, max=_LATEST, help="Revision to print. Default: the latest."),
    ] = None,
) -> None:
    """Print a policy document unchanged, and its revision on standard error."""
    remote = remote_of(ctx)
    if remote:
        content, tag = remote.client().read(
            ("admin", "v1", *_DOCUMENTS, kind.value, name), {"revision": revision}
        )
        output.note(f"Revision {tag}.")
    else:
        content = _get(settings_of(ctx), kind, name, revision)
    output.content(content)


def put(
    ctx: typer.Context,
    name: _Name,
    file: Annotated[
        Path, typer.Argument(help="File with the new content; - for standard input.", allow_dash=True)
    ],
    kind: _Kind = Kind.RANGER,
    revision: _Revision = None,
    dry_run: DryRun = False,
    force: Force = False,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Create or replace a policy document. Refused if the policies as a whole would be invalid."""
    change(ctx, edit_of(kind, name, content_of(file), revision), dry_run, force, as_user, as_json)


def remove(
    ctx: typer.Context,
    name: _Name,
    kind: _Kind = Kind.RANGER,
    revision: _SeenRevision = None,
    dry_run: DryRun = False,
    force: Force = False,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Remove a policy document. The history keeps its content."""
    change(ctx, edit_of(kind, name, None, revision), dry_run, force, as_user, as_json)


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
    if remote := remote_of(ctx):
        path = ("policies", "history") if name is None else (*_DOCUMENTS, kind.value, name, "history")
        found = remote.ask("GET", path, query={"limit": limit})
    else:
        found = _history(settings_of(ctx), kind, name, limit)
    if not as_json:
        for each in found["changes"]:
            each["sha256"] = each["sha256"] or "removed"
    output.answer(found, "changes", _COLUMNS, as_json=as_json)


def _list(settings: Settings) -> dict[str, Any]:
    from catalog.http.policy_models import DocumentList

    with _open(settings) as (_, documents):
        return DocumentList.of(documents.current()).model_dump(mode="json")


def stored(ctx: typer.Context, kind: Kind) -> dict[str, tuple[bytes, int]]:
    """Return the documents of a kind by name, each with its revision."""
    if remote := remote_of(ctx):
        listed = remote.ask("GET", _DOCUMENTS)["documents"]
        names = [each["name"] for each in listed if each["kind"] == kind.value]
        read = {name: remote.client().read(("admin", "v1", *_DOCUMENTS, kind.value, name)) for name in names}
        return {name: (content, int(tag)) for name, (content, tag) in read.items()}
    with _open(settings_of(ctx)) as (_, documents):
        found = documents.current().documents.values()
    return {
        each.id.name: (each.content, each.change.revision)
        for each in found
        if each.id.kind is kind and each.content is not None
    }


def _get(settings: Settings, kind: Kind, name: str, revision: int | None) -> bytes:
    """Return a document's content, currently or at an earlier revision."""
    from catalog.policy_store.documents import DocumentId

    document = DocumentId(kind, name)
    with _open(settings) as (_, documents):
        found = documents.find(document, revision)
    if found is None or found.content is None:
        raise RequestInvalid(
            f"There is no policy document {document}" + (f" of revision {revision}." if revision else "."),
            rule="policy-document",
            hint="Find its name and revisions with `lakewarden policy list` and `lakewarden policy history`.",
        )
    output.note(f"Revision {found.change.revision}, by {found.change.author}.")
    return found.content


def _history(settings: Settings, kind: Kind, name: str | None, limit: int) -> dict[str, Any]:
    from catalog.http.policy_models import ChangeList
    from catalog.policy_store.documents import DocumentId

    document = None if name is None else DocumentId(kind, name)
    with _open(settings) as (_, documents):
        return ChangeList.of(documents.history(document, limit=limit)).model_dump(mode="json")


@contextmanager
def _open(settings: Settings) -> Iterator[tuple[Engine, PolicyDocuments]]:
    from catalog.policy_store.documents import PolicyDocuments

    with open_state(settings) as engine:
        yield engine, PolicyDocuments(engine, settings.catalog.name)


def edit_of(kind: Kind, name: str, content: str | None, revision: int | None) -> dict[str, Any]:
    """Build one change in the format of `/admin/v1`."""
    return {"kind": kind.value, "name": name, "content": content, "expected-revision": revision}


def content_of(file: Path) -> str:
    """Read a file.

    Raises:
        RequestInvalid: it cannot be read, is too long, or is not in UTF-8.
    """
    try:
        if str(file) == "-":
            data = sys.stdin.buffer.read(MAX_STORED_SIZE + 1)
        else:
            with file.open("rb") as opened:
                data = opened.read(MAX_STORED_SIZE + 1)
        if len(data) > MAX_STORED_SIZE:
            raise unusable(f"The file {file} has more than {MAX_STORED_SIZE} bytes.", "Split the document.")
        return data.decode("utf-8")
    except OSError as error:
        problem = f"The file {file} cannot be read: {error.strerror}."
        raise unusable(problem, "Give a file that you can read, or - for standard input.") from error
    except UnicodeDecodeError as error:
        problem = f"The file {file} is not UTF-8 at byte {error.start}."
        raise unusable(problem, "Save the file as UTF-8.") from error


def unusable(problem: str, hint: str) -> RequestInvalid:
    """Return the refusal of a file."""
    return RequestInvalid(problem, rule="policy-file", hint=hint)


def change(
    ctx: typer.Context,
    edit: dict[str, Any],
    dry_run: bool,
    force: bool,
    as_user: str | None,
    as_json: bool,
) -> None:
    """Change one document, and show the effect."""
    show(change_all(ctx, [edit], dry_run, force, as_user), as_json)


def change_all(
    ctx: typer.Context, edits: Sequence[dict[str, Any]], dry_run: bool, force: bool, as_user: str | None
) -> dict[str, Any]:
    """Change documents, all or none; return the answer of `/admin/v1`."""
    body = {"changes": list(edits), "dry-run": dry_run, "force": force}
    remote = remote_of(ctx, as_user)
    answer: dict[str, Any] = (
        remote.ask("POST", ("policies", "changes"), body)
        if remote
        else _changed(settings_of(ctx), body, as_user)
    )
    return answer


def _changed(settings: Settings, wanted: dict[str, Any], as_user: str | None) -> dict[str, Any]:
    """Make a change without a policy check, or with `dry-run` determine its effect."""
    from catalog.http.policy_models import ChangeBody, ChangedAnswer

    body, caller = ChangeBody.model_validate(wanted), calling(as_user)
    edits = [each.to_edit() for each in body.changes]
    with output.progress("Checking the policies"), _open(settings) as (engine, documents):
        store = Store(documents, engine, settings, caller)
        prepared = store.make(edits, dry_run=body.dry_run, force=body.force)
    return ChangedAnswer.of(prepared, dry_run=body.dry_run).model_dump(mode="json")


def show(answer: dict[str, Any], as_json: bool) -> None:
    """Show what a change did, or would do."""
    if as_json:
        output.document(answer)
        return
    lines = [(what, title) for what, titles in answer["effect"].items() for title in titles]
    if lines:
        output.rows(("effect", "on"), lines)
    if answer["lockout"] is not None:
        output.note(f"After this change, {answer['lockout']}.")
    if not answer["changes"]:
        output.note("Nothing was changed: the document already has this content.")
    elif answer["dry-run"]:
        output.note(f"Dry run: nothing was changed. The change would be revision {answer['revision']}.")
    else:
        output.note(f"Changed the document: it has revision {answer['revision']}.")
