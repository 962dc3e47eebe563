"""Checks files of certificate authorities before the first call that needs them."""

from __future__ import annotations

import ssl
from pathlib import Path


def why_unusable(path: Path | None) -> str | None:
    """Return what is wrong with a file of certificate authorities, in a sentence; None if nothing is, or no
    file is set.
    """
    if path is None:
        return None
    if not path.is_file():
        return f"The ca_file {path} does not exist."
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError:
        return f"The ca_file {path} cannot be read, or has no certificate in PEM."
    return None
