"""`lakewarden lake`: jobs over many tables, on a local Spark.

On the catalog's host, the command serves the catalog to itself. With `--url`, it works on a service.
Exit codes: 0 done without errors; 3 items are left, or something that was found is an error.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from spark_ext.cli.lake_options import Tables, lake_command, settings

app = typer.Typer(help="Audit, migrate and maintain many tables.", no_args_is_help=True)


@app.command(epilog="Example: lakewarden lake audit 'sales.*' --verify 0.01 --report audit.html")
@lake_command
def audit(
    spark: Any,
    *,
    tables: Tables = None,
    footers: Annotated[
        float, typer.Option(min=0, max=1, help="Share of files whose footers are opened.")
    ] = 1.0,
    verify: Annotated[float, typer.Option(min=0, max=1, help="Share of files that are read whole.")] = 0.0,
    other: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Audit another catalog: a JSON file with the properties of PyIceberg's load_catalog.",
        ),
    ] = None,
    **options: Any,
) -> Any:
    """Check paths, files, metadata, seals, encryption and keys of every table. Changes nothing."""
    from spark_ext.pipelines.audit import audit as run

    properties = None if other is None else _properties(other)
    return run(spark, tables or "*", other=properties, footers=footers, verify=verify, **options)


@app.command(epilog="Example: lakewarden lake discover 'sales.*' --proposal proposed --report personal.html")
@lake_command
def discover(
    spark: Any,
    *,
    tables: Tables = None,
    proposal: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Write proposed policies there. None is put into force."),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows of each table to look at, about.")] = 10_000,
    threshold: Annotated[
        float, typer.Option(help="Confidence from which a column is reported, above 0 and up to 1.")
    ] = 0.5,
    national_id: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="National number to look for, such as us.ssn. Can be repeated. Default: all."
        ),
    ] = None,
    region: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CODE",
            help="Region of phone numbers without a country code. Can be repeated. Default: US.",
        ),
    ] = None,
    **options: Any,
) -> Any:
    """Find personal and secret data in plaintext columns."""
    from spark_ext.pipelines.discover import discover as run

    return run(
        spark,
        tables or "*",
        proposal=proposal,
        rows=rows,
        threshold=threshold,
        national_ids=national_id,
        regions=region or ("US",),
        **options,
    )


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


@app.command(epilog="Example: lakewarden lake rekey --master-key pii --to-kms aws --to-master-key alias/pii")
@lake_command
def rekey(
    spark: Any,
    *,
    tables: Tables = None,
    master_key: Annotated[
        str | None, typer.Option(metavar="ID", help="Only keys under this master key, as tables name it.")
    ] = None,
    older_than_days: Annotated[
        float | None, typer.Option(min=0, metavar="DAYS", help="Only tables with an older key in force.")
    ] = None,
    to_master_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Key in the KMS that keys move to. Default: the same id."),
    ] = None,
    to_kms: Annotated[
        str | None, typer.Option(metavar="NAME", help="KMS that keys move to. Default: where they are.")
    ] = None,
    rotate: Annotated[
        bool | None, typer.Option(help="Rotate keys and rewrap data keys. Default: if keys do not move.")
    ] = None,
    **options: Any,
) -> Any:
    """Rotate keys, or move them to another master key or KMS without rewriting data."""
    from spark_ext.pipelines.rekey import rekey as run

    return run(
        spark,
        tables or "*",
        master_key,
        None if older_than_days is None else timedelta(days=older_than_days),
        to_master_key,
        to_kms,
        rotate=rotate,
        **options,
    )


@app.command(
    epilog="Example: lakewarden lake erase --identifiers people.txt --column sales.orders=customer_id"
)
@lake_command
def erase(
    spark: Any,
    *,
    tables: Tables = None,
    identifiers: Annotated[
        Path, typer.Option(metavar="FILE", help="The identifiers, one on each line. They are not recorded.")
    ],
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="TABLE=COLUMN", help="Column that holds identifiers. Can be repeated."),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(help="Instead: search columns with this tag of the encryption policy. Can be repeated."),
    ] = None,
    drop_tags: Annotated[
        bool, typer.Option("--drop-tags", help="Drop tags of tables that keep snapshots with such rows.")
    ] = False,
    **options: Any,
) -> Any:
    """Delete the rows of identifiers from branches, snapshots and files, and certify it."""
    from spark_ext.pipelines.erase import erase as run

    columns: dict[str, list[str]] = {}
    for table, name in settings(column):
        columns.setdefault(table, []).append(name)
    return run(
        spark, identifiers, columns, tags=tag or (), tables=tables or "*", drop_tags=drop_tags, **options
    )


def _properties(path: Path) -> dict[str, str]:
    """Read the properties of another catalog.

    Raises:
        typer.BadParameter: the file cannot be read, or is not a JSON object of texts.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise typer.BadParameter(f"{path.name!r} is not a JSON file of names and texts.")
    return found
