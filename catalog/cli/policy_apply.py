"""`lakewarden policy apply`: makes the policies in the catalog's database those in files."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Annotated

import typer

from catalog.cli import output
from catalog.cli.arguments import AsUser
from catalog.cli.policy_store import DryRun, Force, Store, show
from catalog.cli.session import calling, open_state, settings_of
from policy.errors import InvalidInput, RequestInvalid, Unavailable

if TYPE_CHECKING:
    from catalog.policy_store.files import PolicyFiles


def apply(
    ctx: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...", help="File of policies and roles, or directory of them.", show_default=False
        ),
    ] = None,
    encryption_rules: Annotated[
        list[Path] | None,
        typer.Option(
            "--encryption-rules",
            metavar="PATH",
            help="File of encryption rules, or directory of them. Can be repeated.",
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep running, and apply the files whenever they change.")
    ] = False,
    dry_run: DryRun = False,
    force: Force = False,
    as_user: AsUser = None,
) -> None:
    """Make the policies in the database those in files. FILE.json becomes the document files.FILE.

    Documents files.* whose file is gone are removed. Other documents stay.
    """
    from catalog.policy_store.documents import PolicyDocuments
    from catalog.policy_store.files import PolicyFiles

    if not (paths or encryption_rules) or (watch and dry_run):
        raise RequestInvalid(
            "Give at least one path, and only one of --watch and --dry-run.",
            rule="policy-file",
            hint="For example, run `lakewarden policy apply policies/`.",
        )
    files = PolicyFiles(paths or (), encryption_rules or ())
    settings = settings_of(ctx)
    with open_state(settings) as engine:
        documents = PolicyDocuments(engine, settings.catalog.name)
        store = Store(documents, engine, settings, calling(as_user))
        if not watch:
            if not _apply(store, files, dry_run=dry_run, force=force):
                output.note("Nothing was changed: the database already says what the files say.")
            return
        watching = _Watch(store, files, force=force)
        with suppress(KeyboardInterrupt):
            while True:
                watching.look()
                sleep(store.settings.policies_poll_s)


def _apply(store: Store, files: PolicyFiles, *, dry_run: bool, force: bool) -> bool:
    """Apply the files to the database, and print each change; return whether there was one."""
    from catalog.http.policy_models import ChangedAnswer

    with output.progress("Checking the policies"):
        edits = files.edits(store.documents.current())
        if not edits:
            return False
        prepared = store.make(edits, dry_run=dry_run, force=force)
    if dry_run:
        show(ChangedAnswer.of(prepared, dry_run=True).model_dump(mode="json"), as_json=False)
        return True
    for each in prepared.changed:
        before = "Changed" if each.id in prepared.base.documents else "Added"
        what = "Removed" if each.content is None else before
        output.line(f"{what} {each.id}, revision {each.change.revision}.")
    return True


class _Watch:
    """Applies the files when they or the database change; reports each refusal once, without a change."""

    def __init__(self, store: Store, files: PolicyFiles, *, force: bool) -> None:
        self._store = store
        self._files = files
        self._force = force
        self._seen: object = None
        self._told: str | None = None

    def look(self) -> None:
        """Apply the files if they or the policies in the database changed."""
        from catalog.base.errors import CommitConflict

        try:
            seen = self._files.fingerprints(), self._store.documents.version()
            if seen == self._seen:
                return
            self._seen = seen
            _apply(self._store, self._files, dry_run=False, force=self._force)
            self._told = None
        except (InvalidInput, CommitConflict, Unavailable) as error:
            if not isinstance(error, InvalidInput):
                self._seen = None
            if str(error) != self._told:
                output.error(error)
                output.note("Nothing was changed. The files are applied again when the problem is solved.")
            self._told = str(error)
