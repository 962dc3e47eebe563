"""Makes and checks the tokens of pages.

A token holds the last name that its caller was shown, and a MAC over that name, the list and the caller. So a
token is valid for the list and the user that it was made for, and no other text is. The key is in the
database, where all replicas find it. It protects no data: what a page shows is decided again for each page.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

from sqlalchemy import Engine

from catalog.crypto.secret import SecretBytes
from catalog.state.shared_keys import shared_key
from policy.errors import RequestInvalid

_SETTING: Final = "page-token-key"
_MAC_BYTES: Final = 16


class PageTokens:
    """Makes and checks tokens of pages.

    Args:
        engine: the catalog's database.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._key: SecretBytes | None = None

    def make(self, name: str, listed: str, principal: str) -> str:
        """Return the token of the page that begins after a name.

        Args:
            name: the last name of the page before.
            listed: what is listed.
            principal: name of the user.
        """
        text = name.encode("utf-8")
        return (
            base64.urlsafe_b64encode(self._mac(text, listed, principal) + text).rstrip(b"=").decode("ascii")
        )

    def name_in(self, token: str, listed: str, principal: str) -> str:
        """Return the name that a page begins after.

        Raises:
            RequestInvalid: `make` did not return this token for this list and user.
        """
        try:
            data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise _refused() from None
        mac, text = data[:_MAC_BYTES], data[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(text, listed, principal)):
            raise _refused()
        name = text.decode("utf-8")
        # Base64 has several spellings of the same bytes.
        if self.make(name, listed, principal) != token:
            raise _refused()
        return name

    def _mac(self, text: bytes, listed: str, principal: str) -> bytes:
        parts = (listed.encode("utf-8"), principal.encode("utf-8"), text)
        bound = b"".join(len(each).to_bytes(4, "big") + each for each in parts)
        if self._key is None:
            self._key = SecretBytes(shared_key(self._engine, _SETTING))
        return hmac.digest(self._key.reveal(), bound, hashlib.sha256)[:_MAC_BYTES]


def _refused() -> RequestInvalid:
    return RequestInvalid(
        "The page token is not valid for this list and user.",
        rule="page-token",
        hint="Begin with the first page: send an empty `pageToken`.",
    )
