"""`lakewarden tag`: manages the tags of databases, tables and columns, which policies on tags are about.

`set` and `remove` edit one document of tags, `catalog`; `import` stores another one, in the JSON of Ranger's
tag download. All are changes of policies: they need the same permission, are recorded, and have revisions.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson, AsUser
from catalog.cli.policy_check import resource_of
from catalog.cli.policy_store import DryRun, Force, change, content_of, edit_of, stored
from catalog.policy_store.kinds import Kind
from policy.privileges.requests import Resource

if TYPE_CHECKING:
    from policy.ranger.tag_edits import TagDocument

app = typer.Typer(help="Show and change tags of databases, tables and columns.", no_args_is_help=True)

_OWN: Final = "catalog"
_COLUMNS: Final = ("resource", "tag", "attributes", "document")

_Resource = Annotated[
    Resource,
    typer.Argument(
        metavar="RESOURCE",
        parser=resource_of,
        help="database:NAMESPACE, table:NAMESPACE.TABLE or column:NAMESPACE.TABLE/COLUMN.",
        show_default=False,
    ),
]
_Tags = Annotated[list[str], typer.Argument(metavar="TAG...", help="Names of tags.", show_default=False)]


@app.command(
    "set", epilog="Example: lakewarden tag set column:sales.customers/email PII --attribute level=high"
)
def set_(
    ctx: typer.Context,
    resource: _Resource,
    tags: _Tags,
    attributes: Annotated[
        list[str] | None,
        typer.Option("--attribute", metavar="NAME=VALUE", help="Attribute of the tags. Can be repeated."),
    ] = None,
    dry_run: DryRun = False,
    force: Force = False,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Give a database, table or column tags. A tag that it has gets the new attributes."""
    document, revision = _own(ctx)
    document.set(resource, tags, _attributes(attributes or []))
    change(ctx, edit_of(Kind.TAGS, _OWN, document.text, revision), dry_run, force, as_user, as_json)


@app.command("remove", epilog="Example: lakewarden tag remove table:sales.customers PII")
def remove(
    ctx: typer.Context,
    resource: _Resource,
    tags: _Tags,
    dry_run: DryRun = False,
    force: Force = False,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Take tags from a database, table or column. Policies on these tags no longer apply to it."""
    document, revision = _own(ctx)
    document.remove(resource, tags)
    content = None if document.is_empty else document.text
    change(ctx, edit_of(Kind.TAGS, _OWN, content, revision), dry_run, force, as_user, as_json)


@app.command("import", epilog="Example: lakewarden tag import hive_tags.json")
def import_(
    ctx: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            help="File in the JSON of Ranger's tag download; - for standard input.", allow_dash=True
        ),
    ],
    name: Annotated[str, typer.Option("--name", help="Name of the document that is replaced.")] = "imported",
    dry_run: DryRun = False,
    force: Force = False,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Store a document of tags. Tags of an earlier import with the same name are replaced."""
    found = stored(ctx, Kind.TAGS).get(name)
    edit = edit_of(Kind.TAGS, name, content_of(file), None if found is None else found[1])
    change(ctx, edit, dry_run, force, as_user, as_json)


@app.command("list", epilog="Example: lakewarden tag list table:sales.customers")
def list_(
    ctx: typer.Context,
    resource: Annotated[
        Resource | None,
        typer.Argument(
            metavar="RESOURCE",
            parser=resource_of,
            help="Only the tags of this database, table or column, and of what is in it.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List tags, with the documents that assign them."""
    from policy.ranger.tag_edits import TagDocument, about

    found = [
        {
            "resource": tag.title,
            "tag": tag.type,
            "attributes": dict(tag.attributes),
            "timed": tag.is_timed,
            "document": name,
        }
        for name, (content, _) in sorted(stored(ctx, Kind.TAGS).items())
        for tag in TagDocument(name, content)
        if resource is None or about(tag, resource)
    ]
    if as_json:
        output.document({"tags": found})
        return
    output.rows(
        _COLUMNS,
        [(each["resource"], each["tag"], _shown(each["attributes"]), each["document"]) for each in found],
    )


def _own(ctx: typer.Context) -> tuple[TagDocument, int | None]:
    """The document that commands edit, and its revision."""
    from policy.ranger.tag_edits import TagDocument

    content, revision = stored(ctx, Kind.TAGS).get(_OWN, (None, None))
    return TagDocument(f"{Kind.TAGS}/{_OWN}", content), revision


def _attributes(given: list[str]) -> dict[str, str]:
    """Parse attributes.

    Raises:
        typer.BadParameter: one is not in the form NAME=VALUE, or is given twice.
    """
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals or name in found:
            raise typer.BadParameter("Write --attribute NAME=VALUE, each name once.")
        found[name] = value
    return found


def _shown(attributes: object) -> str:
    pairs = attributes.items() if isinstance(attributes, dict) else ()
    return ", ".join(f"{name}={value}" for name, value in pairs)
