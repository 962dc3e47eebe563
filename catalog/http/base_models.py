"""Base models of all bodies and answers.

Our own bodies (`/engine/v1`, `/admin/v1`) refuse unknown fields. Iceberg's bodies accept them, because new
versions of the specification add fields. Unsupported fields that change the meaning of a request are refused
by name.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _dashed(name: str) -> str:
    return name.replace("_", "-")


class IcebergBody(BaseModel):
    """A body of the Iceberg REST specification."""

    model_config = ConfigDict(frozen=True, alias_generator=_dashed, extra="ignore", hide_input_in_errors=True)


class OwnBody(BaseModel):
    """A body of `/engine/v1` or `/admin/v1`; names have dashes, as in Iceberg's."""

    model_config = ConfigDict(frozen=True, alias_generator=_dashed, extra="forbid", hide_input_in_errors=True)


class Answer(BaseModel):
    """An answer; names have dashes, as in Iceberg's. An object with attributes of these names makes one."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=_dashed,
        populate_by_name=True,
        serialize_by_alias=True,
        from_attributes=True,
    )


def _from_base64(value: object) -> bytes:
    if not isinstance(value, str):
        raise ValueError("not a text in base64")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not a text in base64") from None


#: Bytes as text in base64 (RFC 4648, section 4).
Base64 = Annotated[
    bytes,
    BeforeValidator(_from_base64, json_schema_input_type=Annotated[str, Field(pattern=r"^[A-Za-z0-9+/=]*$")]),
]
