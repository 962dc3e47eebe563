"""Hadoop's delegation tokens in their text form."""

from __future__ import annotations

import base64

from catalog.kms_server.hadoop_token import KIND, _sized


def delegation_token(password: str, *, kind: str = KIND, service: str = "") -> str:
    """A token with a password, as a client puts it into a header."""
    parts = (b"\0", password.encode(), kind.encode(), service.encode())
    return base64.urlsafe_b64encode(b"".join(map(_sized, parts))).rstrip(b"=").decode()
