"""Runs Spark and a catalog in one process, for trials and local work."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from policy.errors import RequestInvalid
from spark_ext.configuration import configure, engine_credential
from spark_ext.embedded import EmbeddedCatalog

_SPARK: Final = "spark"
_LOOPBACK: Final = "127.0.0.1"


def local_session(
    directory: str | Path,
    *,
    user: str | None = None,
    catalog: str = "lake",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """A Spark session on an embedded catalog, which lives until the session is stopped or the process ends.

    The catalog is Spark's default one. Its state, keys and tables lie below the directory and are found again
    by the next session on it. The user is its administrator, as far as the policies in the directory say so.

    Args:
        directory: where the state lies; made when it is used for the first time.
        user: the user's name; by default the operating system's.
        catalog: the name that SQL knows the catalog by.
        config: Spark settings, which win over those made here. The master is `local[*]` and there is no web
            interface unless they say otherwise.

    Raises:
        RequestInvalid: Spark runs in this process already, or the name cannot be a catalog's.
        SparkUnavailable: Spark or Java is missing.
        LakewardenError: see `EmbeddedCatalog`.
    """
    if SparkContext._active_spark_context is not None:
        raise RequestInvalid(
            "Spark already runs in this process, and reads its catalogs only when it starts.",
            rule="spark-runs",
            hint="Stop the running session, or use another process.",
        )
    root = Path(directory).absolute()
    builder = SparkSession.builder
    for name, value in {**_defaults(root, catalog), **(config or {})}.items():
        builder = builder.config(name, value)
    # Python on the executors is this one, whatever is on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    embedded = EmbeddedCatalog(root, user)
    try:
        configured = configure(builder, catalog=catalog, uri=embedded.uri, token=embedded.token)
        with engine_credential(None):  # one in the environment is another catalog's
            session = configured.getOrCreate()
    except BaseException:
        embedded.close()
        raise
    _close_together(session, embedded)
    return session


def _defaults(root: Path, catalog: str) -> dict[str, str]:
    return {
        "spark.app.name": "lakewarden",
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.driver.host": _LOOPBACK,
        "spark.master": "local[*]",
        "spark.sql.defaultCatalog": catalog,
        "spark.sql.warehouse.dir": str(root / _SPARK),
        "spark.ui.enabled": "false",
    }


def _close_together(session: SparkSession, embedded: EmbeddedCatalog) -> None:
    """Stopping the session stops the catalog after it; so does the end of the process."""
    stop_spark = session.stop

    def stop() -> None:
        atexit.unregister(stop)
        try:
            stop_spark()
        finally:
            embedded.close()

    session.stop = stop  # type: ignore[method-assign]
    atexit.register(stop)
