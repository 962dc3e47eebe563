"""`lakewarden serve`: runs the HTTP service."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from catalog.cli import output
from catalog.cli.session import open_kms, settings_of
from policy.errors import LakewardenError

if TYPE_CHECKING:
    from catalog.service.services import Services
    from catalog.settings.catalog import Settings

_log: Final = logging.getLogger("lakewarden.service")


class LogFormat(StrEnum):
    """The values of `log.format`."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The values of `log.level`."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def serve(
    ctx: typer.Context,
    log_format: Annotated[
        LogFormat | None, typer.Option(help="Format of the log, instead of `log.format`.")
    ] = None,
    log_level: Annotated[
        LogLevel | None, typer.Option(help="Minimum level that is logged, instead of `log.level`.")
    ] = None,
) -> None:
    """Serve the catalog over HTTP until interrupted."""
    from catalog.service.service_log import configure

    settings = settings_of(ctx)
    given = {"format": log_format, "level": log_level}
    configure(settings.log.model_copy(update={name: str(each) for name, each in given.items() if each}))
    if settings.http.workers > 1:
        _serve_in_workers(settings)
        return
    from catalog.http.server import serve as run

    with _opened(settings, first=True) as services:
        run(settings, services)


def _serve_in_workers(settings: Settings) -> None:
    from catalog.http.workers import Worker, preload

    preload()
    from catalog.http.server import serve_worker, supervise

    def run(worker: Worker) -> int:
        try:
            with _opened(settings, first=worker.number == 0) as services:
                serve_worker(worker, services)
        except LakewardenError as error:
            output.error(error)
            return 1
        return 0

    if code := supervise(settings, run):
        raise typer.Exit(code)


@contextmanager
def _opened(settings: Settings, *, first: bool) -> Iterator[Services]:
    """Open the catalog; the first process of a service warns about the local KMS."""
    from catalog.kms.local import LocalKms
    from catalog.service.services import Services

    kms = open_kms(settings.kms)
    if first and isinstance(kms, LocalKms):
        _log_embedded()
    with Services.open(settings, kms) as services:
        yield services


def _log_embedded() -> None:
    from catalog.kms.local import EmbeddedKmsWarning, warn_embedded_default

    # Standard error is the log, so only records are written to it.
    with warnings.catch_warnings(record=True, category=EmbeddedKmsWarning, action="always") as caught:
        warn_embedded_default()
    for warning in caught:
        _log.warning(str(warning.message))
