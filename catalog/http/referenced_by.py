"""The query parameter `referenced-by`: the views through which a table or view is loaded.

It gives nobody a permission: what is loaded is decided for the caller. A client could name any view. A
trusted engine is believed under `/engine/v1` (`engine_views`), where it also says which state of the view it
has read. Without that, a text that was replaced meanwhile would be read with the permissions of the next
definer.

Source: Iceberg REST catalog specification, parameter "referenced-by".
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Query
from fastapi.params import Depends as Dependency

from catalog.base.identifiers import table_name
from catalog.http.bodies import LEVEL_SEPARATOR
from policy.errors import RequestInvalid

_MAX_LENGTH: Final = 8_192
_COMMA: Final = "%2C"


async def _referenced_by(
    views: Annotated[str | None, Query(alias="referenced-by", max_length=_MAX_LENGTH)] = None,
) -> None:
    """Refuse a parameter that names no views: RequestInvalid."""
    for each in [] if views is None else views.split(","):
        *levels, name = each.split(LEVEL_SEPARATOR)
        if not levels:
            raise RequestInvalid(
                "The parameter referenced-by does not name views with their namespaces.",
                rule="referenced-by",
                hint="Separate the levels and the name of a view by %1F, and views by commas.",
            )
        table_name(levels, name.replace(_COMMA, ","))


REFERENCED_BY: Final[Dependency] = Depends(_referenced_by)
"""Of an endpoint that loads a table or view."""
