"""Finds the Spark and Java that will run, as Spark's own scripts do, without starting Spark.

- `SPARK_HOME` wins over the installed PySpark, and `JAVA_HOME` over PATH, because Spark obeys them in this
  order; a wrong one is an error, since Spark would not look elsewhere either.
- A jar that was compiled against one Spark is used with that one: the version stands in the name of its
  spark-core jar.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from spark_ext.errors import SparkUnavailable

OLDEST_JAVA: Final = 17
_OLDEST_SPARK: Final = (4, 1)
_TOO_NEW_SPARK: Final = (4, 4)
_SPARK_CORE: Final = re.compile(r"spark-core_2\.13-([0-9]+)\.([0-9]+)([0-9A-Za-z.+-]*)\.jar", re.ASCII)
_JAVA_VERSION: Final = re.compile(r'version "([0-9]+)')
_JAVA_PATIENCE_S: Final = 60


@dataclass(frozen=True, slots=True)
class SparkHome:
    """An installed Spark.

    Attributes:
        root: the directory that holds `jars` and `bin`.
        version: such as `4.3.0`.
    """

    root: Path
    version: str

    @property
    def jars(self) -> Path:
        """The directory of Spark's own jars, its Scala compiler among them."""
        return self.root / "jars"


def find_spark(environ: Mapping[str, str]) -> SparkHome:
    """The Spark that PySpark would start.

    Args:
        environ: the environment variables.

    Raises:
        SparkUnavailable: there is none, or it is of a version that the plugin is not made for.
    """
    root = _spark_root(environ)
    cores = [_SPARK_CORE.fullmatch(each.name) for each in sorted((root / "jars").glob("spark-core_*.jar"))]
    versions = [core.groups() for core in cores if core is not None]
    if len(versions) != 1 or not any((root / "jars").glob("scala-compiler-2.13.*.jar")):
        raise SparkUnavailable(
            f"There is no Spark with Scala 2.13 and its compiler in {root}.",
            rule="spark",
            hint="Set SPARK_HOME to a complete Spark 4.1, 4.2 or 4.3, or unset it and reinstall PySpark.",
        )
    major, minor, rest = versions[0]
    if not _OLDEST_SPARK <= (int(major), int(minor)) < _TOO_NEW_SPARK:
        raise SparkUnavailable(
            f"The Spark in {root} is version {major}.{minor}{rest}; the plugin supports 4.1, 4.2 and 4.3.",
            rule="spark",
            hint="Install a PySpark of these versions: pip install 'pyspark>=4.1,<4.4'.",
        )
    return SparkHome(root, f"{major}.{minor}{rest}")


def _spark_root(environ: Mapping[str, str]) -> Path:
    if "SPARK_HOME" in environ:
        return Path(environ["SPARK_HOME"])
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SparkUnavailable(
            "PySpark is not installed in this Python, and SPARK_HOME is not set.",
            rule="spark",
            hint="Run: pip install 'lakewarden[spark]'",
        )
    module = Path(spec.origin).resolve().parent
    # Where PySpark puts a Spark that it downloaded at its own installation.
    distribution = module / "spark-distribution"
    return distribution if (distribution / "jars").is_dir() else module


def find_java(environ: Mapping[str, str]) -> Path:
    """The Java that Spark's scripts would start.

    Args:
        environ: the environment variables.

    Raises:
        SparkUnavailable: there is none, or it is older than Java 17.
    """
    java, origin = _java_command(environ)
    version = None if java is None else _java_version(java)
    if java is None or version is None:
        raise _no_java(f"Spark needs a Java runtime, version {OLDEST_JAVA} or newer; {origin}.")
    if version < OLDEST_JAVA:
        raise _no_java(f"Spark needs Java {OLDEST_JAVA} or newer; {java} is Java {version}.")
    return java


def _java_command(environ: Mapping[str, str]) -> tuple[Path | None, str]:
    """The command, and what to say if it does not run."""
    if environ.get("JAVA_HOME"):
        java = Path(environ["JAVA_HOME"]) / "bin" / "java"
        return java, f"JAVA_HOME is set, and {java} does not run"
    found = shutil.which("java", path=environ.get("PATH"))
    if found is None:
        return None, "JAVA_HOME is not set, and there is no java on PATH"
    return Path(found), f"{found} does not run"


def _java_version(java: Path) -> int | None:
    try:
        ran = subprocess.run(
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=_JAVA_PATIENCE_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _JAVA_VERSION.search(ran.stderr)
    return None if ran.returncode != 0 or found is None else int(found.group(1))


def _no_java(message: str) -> SparkUnavailable:
    return SparkUnavailable(
        message,
        rule="java",
        hint="Install one (on Debian and Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME.",
    )
