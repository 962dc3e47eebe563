"""What a user can read of a table, as the catalog answers it.

Source: docs/rest-api.md, "access".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from catalog.client.errors import not_the_catalog

_WIDEST: Final = 60


@dataclass(frozen=True, slots=True)
class ColumnAccess:
    """What the user gets of a column.

    Attributes:
        name: the column.
        type: its Iceberg type.
        access: ``read``, ``masked`` or ``refused``.
        masks: by the dotted name of the column, or of a field in it, what is shown in place of its values.
        rule: the rule by which a scan of the column is refused; None if it is not.
        message: the refusal in words; None if there is none.
        hint: what to do about it.
    """

    name: str
    type: str
    access: str
    masks: Mapping[str, str]
    rule: str | None = None
    message: str | None = None
    hint: str | None = None

    @property
    def why(self) -> str:
        """The masks, or the refusal, in one line."""
        if self.message is not None:
            return f"{self.message} [rule={self.rule}]"
        shown = (
            mask if field == self.name else f"{field}: {mask}" for field, mask in sorted(self.masks.items())
        )
        return ", ".join(shown)


@dataclass(frozen=True, slots=True)
class Access:
    """What the user gets of a table. As text, it is a table.

    Attributes:
        table: dotted name.
        snapshot_id: the snapshot that it is about; None for a table without one.
        principal: the user.
        engine: the engine that reads for the user; None for the user's own process.
        policy_version: the policies by which it was decided.
        row_filters: names of the policies that filter the rows.
        columns: in the order of the schema.
    """

    table: str
    snapshot_id: int | None
    principal: str
    engine: str | None
    policy_version: str
    row_filters: tuple[str, ...]
    columns: tuple[ColumnAccess, ...]

    @property
    def readable(self) -> list[str]:
        """The columns that can be scanned, masked or not."""
        return [each.name for each in self.columns if each.access != "refused"]

    def __str__(self) -> str:
        all_rows = "all" if self.readable else "none"
        rows = f"filtered by {', '.join(map(repr, self.row_filters))}" if self.row_filters else all_rows
        through = "" if self.engine is None else f" through {self.engine}"
        first = f"{self.table} as {self.principal}{through}; rows: {rows}"
        lines = [(each.name, each.type, each.access, each.why) for each in self.columns]
        widths = [min(_WIDEST, max((len(line[at]) for line in lines), default=0)) for at in range(3)]
        shown = (
            "  ".join([*(t.ljust(w) for t, w in zip(line, widths, strict=False)), line[3]]) for line in lines
        )
        return "\n".join([first, *(each.rstrip() for each in shown)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the table in notebooks."""
        printer.text(str(self))


def access_of(answer: Mapping[str, Any]) -> Access:
    """The catalog's answer.

    Raises:
        CatalogUnavailable: it is none.
    """
    try:
        return Access(
            table=answer["table"],
            snapshot_id=answer["snapshot-id"],
            principal=answer["principal"],
            engine=answer["engine"],
            policy_version=answer["policy-version"],
            row_filters=tuple(answer["row-filters"]),
            columns=tuple(map(_column, answer["columns"])),
        )
    except (LookupError, TypeError) as error:
        raise not_the_catalog("not an answer about access") from error


def _column(answer: Mapping[str, Any]) -> ColumnAccess:
    refusal = answer["refusal"] or {}
    return ColumnAccess(
        name=answer["name"],
        type=answer["type"],
        access=answer["access"],
        masks={each["field"]: each["mask"] for each in answer["masks"]},
        rule=refusal.get("rule"),
        message=refusal.get("message"),
        hint=refusal.get("hint"),
    )
