"""Environment variables that are not settings: which process reads each, and what for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from catalog.http.telemetry import NUMBERS, SUPPORTED

_CLIENTS: Final = "command line, Python client, Spark's driver"

#: By name: who reads it, and its meaning. A test finds those that the code reads and this list does not have.
VARIABLES: Final[Mapping[str, tuple[str, str]]] = {
    "LAKEWARDEN_CONFIG": (
        "command line, service",
        "The settings file. `--config` wins. Without both, `lakewarden.toml` in the working directory is "
        "read.",
    ),
    "LAKEWARDEN_SECRETS_DIRECTORY": (
        "command line, service",
        "A directory with one private file for each secret setting. A file has the name of the setting's "
        "variable, such as `LAKEWARDEN_DATABASE__URL`, and contains the value.",
    ),
    "LAKEWARDEN_TOKEN": (
        "examples of this documentation",
        "A user's token. Lakewarden itself does not read it. The service accepts that it is set.",
    ),
    "LAKEWARDEN_TOKEN_FILE": (
        "Spark's driver",
        "A private file (mode 0600) with the token of the user whose process it is.",
    ),
    "LAKEWARDEN_ENGINE_TOKEN_FILE": (
        "Spark's driver",
        "A private file with the token of an engine that is a trusted service.",
    ),
    "LAKEWARDEN_CA_FILE": (
        _CLIENTS,
        "A PEM file of the authorities that the service's certificate is checked against.",
    ),
    "JAVA_HOME": (
        "sessions of Spark, `lakewarden demo`, `lakewarden spark`, `lakewarden lake`",
        "The Java runtime, version 17 or newer. Without it, `java` on `PATH`.",
    ),
    "SPARK_HOME": (
        "sessions of Spark, `lakewarden spark`, `lakewarden lake`",
        "The Spark installation. Without it, that of the installed PySpark.",
    ),
    "PATH": ("sessions of Spark", "Where `java` is looked for, if `JAVA_HOME` is not set."),
    "XDG_CACHE_HOME": (
        "sessions of Spark, `lakewarden spark`, `lakewarden lake`",
        "The directory of the cache of built plugin jars. It must be absolute. Without it, `.cache` in "
        "`HOME`.",
    ),
    "HOME": ("as `XDG_CACHE_HOME`", "The user's directory, if `XDG_CACHE_HOME` is not set."),
    "TMPDIR": (
        "every process",
        "The directory of temporary files. Built plugin jars are kept there if the cache cannot be used.",
    ),
    "AWS_ACCESS_KEY_ID": (
        "service, Python client",
        "This and the other variables of AWS apply to S3 and AWS KMS where the settings give no credentials.",
    ),
}

#: Variables of OpenTelemetry that the service checks, with the values that it accepts.
OPEN_TELEMETRY: Final[Mapping[str, str]] = {
    "OTEL_SDK_DISABLED": "`true` sends nothing",
    **{name: ", ".join(f"`{each}`" for each in values) for name, values in SUPPORTED.items()},
    **{name: f"{low:g} to {high:,.10g}" for name, (low, high) in NUMBERS.items()},
}
