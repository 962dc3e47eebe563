"""The fields of a log record beside its message, which `catalog.service.service_log` shows by name."""

from __future__ import annotations

from typing import Final, TypeAlias

#: The attribute of a record with its fields.
FIELDS: Final = "lakewarden_fields"

Value: TypeAlias = str | int | float | None


def fields(**values: Value) -> dict[str, dict[str, Value]]:
    """Return the fields of a record, for `extra` of a logging call; fields that are None are left out."""
    return {FIELDS: {name: value for name, value in values.items() if value is not None}}
