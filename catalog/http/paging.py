"""The query parameters `pageToken` and `pageSize` of lists.

Without `pageToken` a list is answered whole. With an empty one, the first page is answered.

Source: Iceberg REST catalog specification, schema "PageToken" and parameter "page-size".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Query, Request

from catalog.http.auth import CallerOf, ServicesOf
from catalog.state.page_tokens import PageTokens
from catalog.tables.paging import MAX_PAGE, PageRequest

_MAX_TOKEN: Final = 1_024


@dataclass(frozen=True, slots=True)
class Paging:
    """The page that a request asks for.

    Attributes:
        wanted: the page; None for the whole list.
        tokens: makes the token of the next page.
        listed: what is listed.
        principal: name of the user.
    """

    wanted: PageRequest | None
    tokens: PageTokens
    listed: str
    principal: str

    def next_token(self, following: str | None) -> str | None:
        """Return the `next-page-token` for the last name of this page; None for None."""
        return None if following is None else self.tokens.make(following, self.listed, self.principal)


async def _paging(
    request: Request,
    caller: CallerOf,
    services: ServicesOf,
    pageToken: Annotated[str | None, Query(max_length=_MAX_TOKEN)] = None,
    pageSize: Annotated[int, Query(ge=1)] = MAX_PAGE,
) -> Paging:
    tokens, principal = services.page_tokens, caller.principal.name
    listed = f"{request.scope['path']}?{request.query_params.get('parent', '')}"
    wanted = None
    if pageToken is not None:
        after = tokens.name_in(pageToken, listed, principal) if pageToken else None
        wanted = PageRequest(after, min(pageSize, MAX_PAGE))
    return Paging(wanted, tokens, listed, principal)


PagingOf = Annotated[Paging, Depends(_paging)]
"""Of an endpoint that lists names."""
