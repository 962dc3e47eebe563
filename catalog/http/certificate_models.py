"""The body and the answer of certificates of erasure."""

from __future__ import annotations

from typing import Annotated, Final, Self
from uuid import UUID

from pydantic import Field, model_validator

from catalog.base.identifiers import table_name
from catalog.http.base_models import Answer, OwnBody
from catalog.maintenance.certificates import Certificate, Erased, Identifiers, NotErased

_LONG: Final = 2**63 - 1
_MOST_SNAPSHOTS: Final = 4_000

_Hex = Annotated[str, Field(pattern="^(?:[0-9a-f]{2}){16,64}$")]
_Snapshots = Annotated[list[Annotated[int, Field(ge=-_LONG, le=_LONG)]], Field(max_length=_MOST_SNAPSHOTS)]
_Name = Annotated[str, Field(min_length=1, max_length=1_000)]


class DigestsBody(OwnBody):
    """Digests of identifiers by scrypt: its parameters, a salt, and the digest of each, in hexadecimal."""

    cost: Annotated[int, Field(ge=2**14, le=2**24)]
    block_size: Annotated[int, Field(ge=8, le=64)]
    parallelism: Annotated[int, Field(ge=1, le=64)]
    salt: _Hex
    digests: Annotated[list[_Hex], Field(min_length=1, max_length=1_000)]


class ErasedBody(OwnBody):
    """What was erased: deleted rows, and the snapshots that are gone and that were searched."""

    table_uuid: UUID
    columns: Annotated[list[_Name], Field(min_length=1, max_length=100)]
    rows: Annotated[int, Field(ge=0, le=_LONG)]
    snapshots_gone: _Snapshots
    snapshots_searched: _Snapshots


class CertificateBody(OwnBody):
    """A certificate: the table was `erased`, or `left` says why not. `id` names the erasure."""

    id: UUID
    table: _Name
    identifiers: DigestsBody
    erased: ErasedBody | None = None
    left: Annotated[str, Field(min_length=1, max_length=1_000)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.erased is None) == (self.left is None):
            raise ValueError("exactly one of erased and left is needed")
        return self

    def to_certificate(self) -> Certificate:
        """Convert the body to a certificate.

        Raises:
            RequestInvalid: the table is not the name of one.
        """
        given = self.identifiers
        identifiers = Identifiers(
            given.cost, given.block_size, given.parallelism, given.salt, tuple(sorted(given.digests))
        )
        return Certificate(self.id, identifiers, self._statement())

    def _statement(self) -> Erased | NotErased:
        *namespace, last = self.table.split(".")
        name, erased = table_name(namespace, last), self.erased
        if erased is None:
            return NotErased(name, self.left or "")
        return Erased(
            name,
            erased.table_uuid,
            tuple(erased.columns),
            erased.rows,
            tuple(erased.snapshots_gone),
            tuple(erased.snapshots_searched),
        )


class CertificateAnswer(Answer):
    """The certificate that was recorded."""

    id: UUID
