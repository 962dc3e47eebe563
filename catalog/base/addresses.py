"""Which addresses secrets can be sent to."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_private_way(url: str) -> bool:
    """Return whether nobody can listen on the way to a URL: TLS, or a loopback address.

    Raises:
        ValueError: it is no URL.
    """
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and is_this_machine(parts.hostname or ""))


def is_this_machine(host: str) -> bool:
    """Return whether an address, or the name `localhost`, is a loopback address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
