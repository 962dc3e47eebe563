"""`lakewarden serve`: the HTTP service."""

from __future__ import annotations

import warnings

import typer

from catalog.cli import output
from catalog.cli.session import open_kms, settings_of
from catalog.keys.local_kms import EmbeddedKmsWarning, LocalKms, warn_embedded_default
from catalog.service_log import configure
from catalog.warden import Warden


def serve(ctx: typer.Context) -> None:
    """Serve the catalog over HTTP until interrupted."""
    # The service needs packages that no other command does.
    from catalog.http.server import serve as run

    settings = settings_of(ctx)
    configure(settings.log)
    kms = open_kms(settings.kms)
    if isinstance(kms, LocalKms):
        _say_embedded()
    with Warden.open(settings, kms) as warden:
        run(settings, warden)


def _say_embedded() -> None:
    with warnings.catch_warnings(record=True, category=EmbeddedKmsWarning, action="always") as caught:
        warn_embedded_default()
    for warning in caught:
        output.note(str(warning.message))
