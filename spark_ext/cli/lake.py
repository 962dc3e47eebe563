"""`lakewarden lake`: jobs over many tables, on a local Spark.

On the catalog's host, the command serves the catalog to itself. With `--url`, it works on a service.
Exit codes: 0 done without errors; 3 items are left, or something that was found is an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from spark_ext.cli.lake_options import Tables, lake_command, settings

app = typer.Typer(help="Audit, migrate and maintain many tables.", no_args_is_help=True)


@app.command(
    epilog="Example: lakewarden lake migrate 'sales.*' --set encryption.mechanism=envelope "
    "--set encryption.master-key-id=pii --history expire"
)
@lake_command
def migrate(
    spark: Any,
    *,
    tables: Tables = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Encryption property to set. Can be repeated."),
    ] = None,
    by_policy: Annotated[
        bool, typer.Option("--by-policy", help="Set what the encryption rules in force ask of each table.")
    ] = False,
    history: Annotated[
        Literal["keep", "expire"], typer.Option(help="What happens to snapshots with files of before.")
    ] = "keep",
    forbid_old: Annotated[
        bool, typer.Option(help="Refuse files of earlier encryption, where no snapshot has one.")
    ] = True,
    wave: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Tables of a first wave. Can be repeated. Default: 1, then 10."),
    ] = None,
    stop_after_failures: Annotated[
        int, typer.Option(min=1, help="As many failed tables of a wave end the run.")
    ] = 1,
    **options: Any,
) -> Any:
    """Change the encryption of tables, rewrite their files, and check that no row changed."""
    from spark_ext.pipelines.migrate import migrate as run

    return run(
        spark,
        tables or "*",
        dict(settings(properties)),
        by_policy=by_policy,
        history=history,
        forbid_old=forbid_old,
        waves=(1, 10) if wave is None else wave,
        stop_after_failures=stop_after_failures,
        **options,
    )


@app.command(epilog="Example: lakewarden lake maintain --policy maintenance.yaml --window 22:00-06:00")
@lake_command
def maintain(
    spark: Any,
    *,
    tables: Tables = None,
    policy: Annotated[Path, typer.Option(metavar="FILE", help="The maintenance policy.")],
    **options: Any,
) -> Any:
    """Compact, expire and clean up tables by a policy."""
    from spark_ext.pipelines.maintain import maintain as run

    return run(spark, policy, tables or "*", **options)
