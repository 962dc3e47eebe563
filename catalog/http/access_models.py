"""Body and answer of the question what a user can read of a table."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field

from catalog.http.base_models import Answer, OwnBody
from catalog.http.engine_models import Long
from catalog.planning.explain import ColumnAccess, TableAccess
from catalog.planning.request import ScanRequest

_LONG = 2**63 - 1


class AccessBody(OwnBody):
    """The state to ask about; at most one of `snapshot-id`, `ref` and `as-of-ms`, else the current one."""

    snapshot_id: Annotated[int, Field(ge=-_LONG, le=_LONG)] | None = None
    ref: str | None = None
    as_of_ms: Long | None = None
    enforces: Annotated[list[Literal["read-restrictions"]], Field(max_length=1)] = Field(default_factory=list)

    def to_request(self) -> ScanRequest:
        """Convert the body to a request."""
        return ScanRequest(
            snapshot_id=self.snapshot_id,
            ref=self.ref,
            as_of_ms=self.as_of_ms,
            enforces=frozenset(self.enforces),
        )


class MaskAnswer(Answer):
    """A mask, on a column or inside of it."""

    field: str
    mask: str
    policy: str | None


class RefusalAnswer(Answer):
    """What a scan of a column is refused with."""

    rule: str | None
    message: str
    hint: str | None


class ColumnAccessAnswer(Answer):
    """What the user gets of a column."""

    field_id: int
    name: str
    type: str
    access: Literal["read", "masked", "refused"]
    masks: list[MaskAnswer]
    refusal: RefusalAnswer | None

    @classmethod
    def of(cls, column: ColumnAccess) -> Self:
        """Return the answer for a column."""
        refusal = column.refusal
        return cls(
            field_id=column.field.field_id,
            name=column.field.name,
            type=str(column.field.field_type),
            access="refused" if refusal is not None else "masked" if column.masks else "read",
            masks=[MaskAnswer.model_validate(each) for each in column.masks],
            refusal=None if refusal is None else RefusalAnswer.model_validate(refusal),
        )


class AccessAnswer(Answer):
    """What the user gets of a table."""

    table: str
    snapshot_id: int | None
    principal: str
    engine: str | None
    policy_version: str
    row_filters: Annotated[list[str], Field(description="Names of the policies that filter the rows.")]
    columns: list[ColumnAccessAnswer]

    @classmethod
    def of(cls, found: TableAccess) -> Self:
        """Return the answer for a table."""
        return cls(
            table=found.table,
            snapshot_id=found.snapshot_id,
            principal=found.principal,
            engine=found.engine,
            policy_version=found.policy_version,
            row_filters=list(found.row_filters),
            columns=[ColumnAccessAnswer.of(each) for each in found.columns],
        )
