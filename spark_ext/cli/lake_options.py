"""The options that all commands of `lakewarden lake` share, and the local Spark that they start."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson, AsUser
from catalog.cli.session import calling, remote_of, settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_ext.pipelines.report import Report

#: Exit code where items are left, or a finding is an error.
LEFT: Final = 3
_CATALOG: Final = "lake"

Tables = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TABLE",
        help="Pattern of table names: 'sales.*', or '!sales.old_*' to exclude tables. Default: all.",
        show_default=False,
    ),
]


def _shared(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Plan only. Nothing is changed or recorded.")
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Begin a new run, even if one with the same options is not complete."),
    ] = False,
    report: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Write the report to FILE: .html, .sarif or .json. Can be repeated."
        ),
    ] = None,
    items: Annotated[
        int | None, typer.Option(min=1, help="Do at most this many items, and leave the rest.")
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option("--bytes", min=1, help="Do items of at most this many bytes, and leave the rest."),
    ] = None,
    items_at_a_time: Annotated[int | None, typer.Option(min=1, help="Items of a group.")] = None,
    bytes_at_a_time: Annotated[int | None, typer.Option(min=1, help="Bytes of a group.")] = None,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="TIMES", help="Begin groups only then: 22:00-06:00, or '22:00-06:00 Europe/Berlin'."
        ),
    ] = None,
    pause: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Pause after each group.")] = 0.0,
    quiet: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS", help="Leave tables written more recently (not audit, discover)."
        ),
    ] = 0.0,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[*]",
    conf: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Spark setting. Can be repeated.")
    ] = None,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """The options, with their defaults."""


def lake_command(function: Callable[..., Report]) -> Callable[..., None]:
    """Make a command of a function that runs a pipeline, with the options that all of them share.

    Args:
        function: takes a session; keyword-only parameters, which are its options; and those of `Options`.
    """
    own = [each for each in inspect.signature(function).parameters.values() if each.kind is each.KEYWORD_ONLY]
    shared = inspect.signature(_shared).parameters

    @wraps(function)
    def command(ctx: typer.Context, **given: Any) -> None:
        from spark_ext.pipelines.report import require_writable

        common = {name: given.pop(name) for name in shared}
        for each in common["report"] or ():
            require_writable(each)
        with spark_of(ctx, common["master"], common["conf"] or (), common["as_user"]) as spark:
            done = function(spark, **given, **_options(common))
        _answer(done, common["report"] or (), as_json=common["as_json"])

    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    hints = {**get_type_hints(_shared, include_extras=True), **get_type_hints(function, include_extras=True)}
    parameters = [
        each.replace(annotation=hints[each.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for each in (*own, *shared.values())
    ]
    command.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]
    command.__annotations__ = {"ctx": typer.Context, **{each.name: each.annotation for each in parameters}}
    del command.__wrapped__
    return command


def _options(common: dict[str, Any]) -> dict[str, Any]:
    from spark_ext.pipelines.budget import Budget

    budget = Budget(
        items=common["items"],
        bytes=common["max_bytes"],
        items_at_a_time=common["items_at_a_time"],
        bytes_at_a_time=common["bytes_at_a_time"],
        window=common["window"],
        pause_s=common["pause"],
        quiet_s=common["quiet"],
    )
    return {
        "budget": budget,
        "dry_run": common["dry_run"],
        "fresh": common["fresh"],
        "show": not common["as_json"],
    }


def _answer(report: Report, files: Sequence[Path], *, as_json: bool) -> None:
    """Print and write a report; the exit code says whether there is something to do."""
    from spark_ext.pipelines.report import RunState

    if as_json:
        output.document(report.to_dict())
    for each in files:
        output.note(f"The report is in {report.write(each)}.")
    if report.state is RunState.INCOMPLETE or report.severities["error"]:
        raise typer.Exit(LEFT)


@contextmanager
def spark_of(
    ctx: typer.Context, master: str, conf: Sequence[str], as_user: str | None
) -> Iterator[SparkSession]:
    """Start a local Spark on the catalog that the command line names, for as long as the block lasts.

    Args:
        ctx: the running command.
        master: Spark's master.
        conf: settings, as ``NAME=VALUE``.
        as_user: the user that a command on the catalog's host acts for.

    Raises:
        typer.BadParameter: a setting is not one.
        LakewardenError: the catalog cannot be opened.
    """
    from pyspark.sql import SparkSession

    from spark_ext.configuration import configure, engine_credential

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("lakewarden lake")
    defaults = {"spark.ui.enabled": "false", "spark.sql.defaultCatalog": _CATALOG}
    if master.startswith("local"):
        defaults |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    for name, value in {**defaults, **dict(settings(conf))}.items():
        builder = builder.config(name, value)
    with ExitStack() as parts:
        uri, token = _catalog(ctx, as_user, parts)
        with output.progress("Starting Spark"), engine_credential(None):
            spark = configure(builder, catalog=_CATALOG, uri=uri, token=token).getOrCreate()
        parts.callback(spark.stop)
        yield spark


def _catalog(ctx: typer.Context, as_user: str | None, parts: ExitStack) -> tuple[str, str]:
    """Return the catalog's address and the user's token. A catalog on this host is served to this process."""
    if remote := remote_of(ctx, as_user):
        return remote.url, remote.token()
    from spark_ext.embedded import served_to

    return parts.enter_context(served_to(settings_of(ctx), calling(as_user).principal))


def settings(texts: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Parse settings, each written as ``NAME=VALUE``.

    Raises:
        typer.BadParameter: a text is not one.
    """
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{text!r} is not a setting. Write NAME=VALUE.")
        yield name, value
