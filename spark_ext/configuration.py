"""The launch configuration of Spark for Lakewarden.

- Address and class of the catalog are launch configuration: the plugin obeys these and refuses a session that
  changes them. Only the user's token belongs to the session.
- The token is not launch configuration: what a builder holds becomes part of the JVM's command line, which
  every user of the machine can read. It is set in the session as soon as there is one. A session that
  `SparkSession.newSession` makes has no token until it is given one.
- The engine's own token is in a file that the environment variable `LAKEWARDEN_ENGINE_TOKEN_FILE` names; the
  driver reads it once and deletes it. Settings, variables and files are within reach of every session.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from policy.errors import RequestInvalid
from spark_ext.jar import spark_jar
from spark_ext.runtime import find_java
from spark_ext.spark_errors import install

#: The environment variable of the driver that names the file with the engine's own token.
ENGINE_CREDENTIAL: Final = "LAKEWARDEN_ENGINE_TOKEN_FILE"
CATALOG_CLASS: Final = "lakewarden.spark.LakewardenCatalog"
EXTENSIONS_CLASS: Final = "lakewarden.spark.LakewardenExtensions"

#: The class that refuses code in requests of Spark Connect.
CONNECT_INTERCEPTOR: Final = "lakewarden.spark.LakewardenConnectInterceptor"

_JARS: Final = "spark.jars"
_EXTENSIONS: Final = "spark.sql.extensions"
#: Settings that hold lists, to which Lakewarden's entry is added.
_LISTS: Final = (_JARS, _EXTENSIONS, "spark.connect.grpc.interceptor.classes")
_CATALOG: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
#: The name of Spark's own catalog.
_TAKEN: Final = "spark_catalog"
_URI: Final = re.compile(r"https?://[^\s@?#]+", re.ASCII)


def launch_settings(catalog: str, uri: str, jar: Path) -> dict[str, str]:
    """The settings that have to be there when Spark starts, on a cluster too; none of them is secret.

    Args:
        catalog: the name that SQL knows the catalog by.
        uri: the address of the Lakewarden service.
        jar: the plugin's jar.

    Raises:
        RequestInvalid: the name or address cannot be one.
    """
    if _CATALOG.fullmatch(catalog) is None or catalog == _TAKEN:
        raise RequestInvalid(
            f"{catalog!r} cannot be the name of a Lakewarden catalog in Spark.",
            rule="spark-catalog",
            hint="Use letters, digits and underscores, such as lake.",
        )
    if _URI.fullmatch(uri) is None:
        raise RequestInvalid(
            "The service's address is not an http:// or https:// URL with a host and without user, query and "
            "fragment.",
            rule="spark-uri",
            hint="Use the address that `lakewarden serve` printed, such as http://127.0.0.1:8181.",
        )
    return {
        _JARS: str(jar),
        _EXTENSIONS: EXTENSIONS_CLASS,
        f"spark.sql.catalog.{catalog}": CATALOG_CLASS,
        f"spark.sql.catalog.{catalog}.uri": uri.rstrip("/"),
    }


def shared_engine_settings() -> dict[str, str]:
    """The settings that an engine with a token of its own needs beside those of `launch_settings`.

    - Text of a user does not show the driver's environment (`${env:…}`), and names no class to load.
    - Spark Connect refuses code before it takes it, and takes plans that it can look into.
    """
    return {
        "spark.connect.grpc.interceptor.classes": CONNECT_INTERCEPTOR,
        "spark.connect.session.planCompression.defaultAlgorithm": "NONE",
        "spark.connect.session.planCompression.threshold": "-1",
        "spark.sql.udt.allowCreatingUDTFromString": "false",
        "spark.sql.variable.substitute": "false",
    }


def token_setting(catalog: str) -> str:
    """The name of the session setting that holds the user's token.

    Spark masks values of such names. It would send a setting whose name begins with `spark` to the executors
    with every task, and write it into the event log in plaintext.
    """
    return f"lakewarden.catalog.{catalog}.token"


def configure(
    builder: SparkSession.Builder,
    *,
    catalog: str = "lake",
    uri: str,
    token: str | None = None,
    jar: Path | None = None,
) -> SparkSession.Builder:
    """Make a builder of Spark sessions work through Lakewarden; to be called before Spark runs.

    Args:
        builder: such as `SparkSession.builder`; jars and extensions that it names are kept.
        catalog: the name that SQL will know the catalog by.
        uri: the address of the Lakewarden service.
        token: the user's token; without one, each session has to set `token_setting(catalog)` itself.
        jar: the plugin's jar; built for the installed Spark, unless it was built before, by default.

    Returns:
        A builder with the settings of the given one and Lakewarden's.

    Raises:
        RequestInvalid: the name or address cannot be one.
        SparkUnavailable: Spark or Java is missing, or see `spark_jar`.
    """
    find_java(os.environ)
    options = dict(builder._options)
    settings = launch_settings(catalog, uri, spark_jar() if jar is None else jar)
    if os.environ.get(ENGINE_CREDENTIAL):
        settings |= shared_engine_settings()
    for name, value in settings.items():
        options[name] = _appended(options.get(name), value) if name in _LISTS else value
    return _Builder(options, {} if token is None else {token_setting(catalog): token})


def engine_token_file(token: str) -> Path:
    """A file that this user alone can read, for one launch of an engine: Spark's driver deletes it.

    Args:
        token: the engine's own.
    """
    handle, name = tempfile.mkstemp(prefix="lakewarden-engine-")
    with os.fdopen(handle, "w") as file:
        file.write(token)
    return Path(name)


@contextmanager
def engine_credential(token: str | None) -> Iterator[None]:
    """Launch Spark within: its driver acts with the engine's token, or as the user's own process without one.

    Args:
        token: the engine's own, or None.
    """
    before = os.environ.pop(ENGINE_CREDENTIAL, None)
    file = None if token is None else engine_token_file(token)
    if file is not None:
        os.environ[ENGINE_CREDENTIAL] = str(file)
    try:
        yield
    finally:
        os.environ.pop(ENGINE_CREDENTIAL, None)
        if before is not None:
            os.environ[ENGINE_CREDENTIAL] = before
        if file is not None:
            file.unlink(missing_ok=True)


def _appended(present: object, value: str) -> str:
    """A comma-separated list with one more entry, which is in it once."""
    entries = [entry for entry in str(present or "").split(",") if entry]
    return ",".join(entries if value in entries else [*entries, value])


class _Builder(SparkSession.Builder):
    """Sets some settings in the session itself, after Spark was launched without them."""

    def __init__(self, options: Mapping[str, object], of_session: Mapping[str, str]) -> None:
        super().__init__()
        self._options = dict(options)
        self._of_session = dict(of_session)

    def getOrCreate(self) -> SparkSession:
        return self._completed(super().getOrCreate())

    def create(self) -> SparkSession:
        return self._completed(super().create())

    def _completed(self, session: SparkSession) -> SparkSession:
        for name, value in self._of_session.items():
            session.conf.set(name, value)
        install()
        return session
