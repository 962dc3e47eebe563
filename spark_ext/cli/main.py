"""The entry point of the command `lakewarden`: Spark's commands beside the catalog's.

The catalog knows nothing of Spark, so its commands are put together with Spark's here.
"""

from __future__ import annotations

from catalog.cli.main import app
from spark_ext.cli import lake, spark
from spark_ext.demo.command import demo

app.add_typer(spark.app, name="spark")
app.add_typer(lake.app, name="lake")
app.command("demo", epilog="Example: lakewarden demo --rows 10000 --clean")(demo)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    app(prog_name="lakewarden")
