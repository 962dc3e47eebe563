"""The settings of the console: ``[console]``, and the client of the console at an identity provider."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field, SecretStr

from catalog.settings.kms_options import parts_of, require_private_way
from catalog.settings.sections import Section

_EXAMPLE: Final = "https://lake.example"


def _origin(url: str) -> str:
    """Check the address of the console, and return it as browsers send it in `Origin`.

    Raises:
        ValueError: it has a path, or others could listen on the way.
    """
    parts = parts_of(url, _EXAMPLE)
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"give an address without a path, such as {_EXAMPLE}")
    require_private_way(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    default = {"https": ":443", "http": ":80"}[parts.scheme]
    if not origin.isascii() or origin != origin.lower() or origin.endswith(default):
        raise ValueError(f"give it in small letters, ASCII, without the default port, such as {_EXAMPLE}")
    return origin


class ConsoleSettings(Section):
    """The console, `/console`: pages that show what the API shows, and change nothing.

    Attributes:
        url: the address at which browsers reach the service: https, or a loopback address. Without it, there
            is no console.
        session_s: seconds after which users log in again, even if their token is valid for longer.
    """

    url: Annotated[str, AfterValidator(_origin)] | None = None
    session_s: int = Field(default=8 * 3600, ge=60, le=7 * 86_400)


class ConsoleClient(Section):
    """What an identity provider calls the console, so that users log in there.

    Attributes:
        client_id: the client of the console at the provider.
        client_secret: its secret, for a confidential client; without it, the client is public.
        scope: what the console asks the provider for, separated by spaces; it has `openid`.
    """

    client_id: str = Field(min_length=1, max_length=1000)
    client_secret: SecretStr | None = None
    scope: str = Field(default="openid", max_length=1000, pattern=r"^(\S+ )*openid( \S+)*$")
