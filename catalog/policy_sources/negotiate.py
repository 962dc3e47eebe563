"""Authenticates to an HTTP server with Kerberos (SPNEGO): the header of a request.

The credentials are those of the process, as the Kerberos library finds them: a ticket cache (`KRB5CCNAME`),
or a client keytab (`KRB5_CLIENT_KTNAME`). The first message is enough: the server is authenticated by TLS.

Source: RFC 4559, section 4; RFC 4178.
"""

from __future__ import annotations

import base64
from typing import Final

from policy.errors import RequestInvalid

_SPNEGO: Final = "1.3.6.1.5.5.2"


class NoTicket(Exception):
    """There are no Kerberos credentials for the server; the cause says why."""


def require_kerberos() -> None:
    """Refuse to start without the library.

    Raises:
        RequestInvalid: the extra `kerberos` is not installed.
    """
    try:
        import gssapi
    except ImportError as error:
        raise RequestInvalid(
            "A policy source uses Kerberos, and the library for it is not installed.",
            rule="settings",
            hint='Run `pip install "lakewarden[kerberos]"`.',
        ) from error
    del gssapi


def negotiate(host: str) -> str:
    """Return the `Authorization` header for the service `HTTP` of a host.

    Raises:
        NoTicket: there are no credentials for it.
    """
    import gssapi

    try:
        server = gssapi.Name(f"HTTP@{host}", gssapi.NameType.hostbased_service)
        mechanism = gssapi.OID.from_int_seq(_SPNEGO)
        token = gssapi.SecurityContext(name=server, mech=mechanism, usage="initiate").step()
    except gssapi.exceptions.GSSError as error:
        raise NoTicket from error
    return f"Negotiate {base64.b64encode(token or b'').decode('ascii')}"
