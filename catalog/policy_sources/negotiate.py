"""Authenticates to an HTTP server with Kerberos (SPNEGO): the header of a request.

The credentials are those of the process, as the Kerberos library finds them: a ticket cache (`KRB5CCNAME`),
or a client keytab (`KRB5_CLIENT_KTNAME`). The first message is enough: the server is authenticated by TLS.

Source: RFC 4559, section 4; RFC 4178.
"""

from __future__ import annotations

import base64

from policy.errors import RequestInvalid


def require_kerberos() -> None:
    """Refuse to start without the library.

    Raises:
        RequestInvalid: the extra `kerberos` is not installed.
    """
    try:
        import spnego
    except ImportError as error:
        raise RequestInvalid(
            "A policy source uses Kerberos, and the library for it is not installed.",
            rule="settings",
            hint='Run `pip install "lakewarden[kerberos]"`.',
        ) from error
    del spnego


def negotiate(host: str) -> str:
    """Return the `Authorization` header for the service `HTTP` of a host.

    Raises:
        ValueError: there are no credentials for it; the cause says why.
    """
    import spnego
    from spnego import NegotiateOptions
    from spnego.exceptions import SpnegoError

    try:
        # By the library of the system, which knows Kerberos alone: nothing falls back to NTLM.
        client = spnego.client(hostname=host, service="HTTP", options=NegotiateOptions.use_gssapi)
        token = client.step()
    except (SpnegoError, ImportError) as error:
        raise ValueError("no Kerberos credentials") from error
    return f"Negotiate {base64.b64encode(token or b'').decode('ascii')}"
