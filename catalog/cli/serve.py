"""`lakewarden serve`: runs the HTTP service."""

from __future__ import annotations

import logging
import warnings
from typing import Final

import typer

from catalog.cli.session import open_kms, settings_of

_log: Final = logging.getLogger("lakewarden.service")


def serve(ctx: typer.Context) -> None:
    """Serve the catalog over HTTP until interrupted."""
    from catalog.http.server import serve as run
    from catalog.kms.local import LocalKms
    from catalog.service.service_log import configure
    from catalog.service.services import Services

    settings = settings_of(ctx)
    configure(settings.log)
    kms = open_kms(settings.kms)
    if isinstance(kms, LocalKms):
        _log_embedded()
    with Services.open(settings, kms) as services:
        run(settings, services)


def _log_embedded() -> None:
    from catalog.kms.local import EmbeddedKmsWarning, warn_embedded_default

    # Standard error is the log, so only records are written to it.
    with warnings.catch_warnings(record=True, category=EmbeddedKmsWarning, action="always") as caught:
        warn_embedded_default()
    for warning in caught:
        _log.warning(str(warning.message))
