"""Random keys in the database, which all processes of the catalog share.

They authenticate what the catalog gave to a user, or kept on a disk. They keep nothing secret: the database
has them in plaintext, beside the seals.
"""

from __future__ import annotations

import secrets
from typing import Final

from sqlalchemy import Connection, Engine, insert, select
from sqlalchemy.exc import IntegrityError

from catalog.crypto.hkdf import derived
from catalog.crypto.secret import SecretBytes
from catalog.db.engine import read, write
from catalog.db.schema import lw_setting

_KEY_BYTES: Final = 32
_MANIFEST_CACHE: Final = "manifest-cache-key"
_CACHE_INFO: Final = b"lakewarden/manifest-cache/2"


def shared_key(engine: Engine, setting: str) -> bytes:
    """Return a key; the first process that needs it makes it.

    Args:
        engine: the catalog's database.
        setting: name of the key.
    """
    with read(engine) as connection:
        known = _stored(connection, setting)
    if known is None:
        made = secrets.token_hex(_KEY_BYTES)
        try:
            with write(engine) as connection:
                connection.execute(insert(lw_setting).values(name=setting, value=made))
            known = made
        except IntegrityError:
            with read(engine) as connection:
                known = _stored(connection, setting)
            assert known is not None
    return bytes.fromhex(known)


def manifest_cache_key(engine: Engine) -> SecretBytes:
    """Return the key that authenticates files of decoded manifests."""
    return SecretBytes(derived(shared_key(engine, _MANIFEST_CACHE), _KEY_BYTES, _CACHE_INFO))


def _stored(connection: Connection, setting: str) -> str | None:
    value: str | None = connection.scalar(select(lw_setting.c.value).where(lw_setting.c.name == setting))
    return value
