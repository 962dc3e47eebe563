"""Connects a Python process to the catalog, without Spark (`connect`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from pyiceberg.expressions import BooleanExpression

from catalog.base.identifiers import TableName, table_name
from catalog.client import filters, writing
from catalog.client.http import CatalogClient
from catalog.client.scan import Scan
from catalog.storage.base import Storage, StorageRouter
from catalog.storage.local import LocalStorage
from catalog.storage.s3 import S3Options, S3Storage
from policy.errors import PropertyInvalid, RequestInvalid


@dataclass(frozen=True, slots=True)
class Table:
    """A table as a user may see it; nothing is asked before something is read or written.

    Attributes:
        name: its name.
    """

    name: TableName
    _client: CatalogClient = field(repr=False)
    _storage: Storage = field(repr=False)

    def scan(
        self,
        filter: str | BooleanExpression | None = None,
        columns: list[str] | tuple[str, ...] | None = None,
        *,
        snapshot_id: int | None = None,
        ref: str | None = None,
        as_of_ms: int | None = None,
        case_sensitive: bool = True,
    ) -> Scan:
        """What is to be read.

        Args:
            filter: rows that are wanted, as a text such as ``"amount > 100"`` or an expression of
                pyiceberg's. columns: names of columns, nested ones dotted; by default all. snapshot_id: the
                snapshot, or ref: the branch or tag, or as_of_ms: the time, in milliseconds since 1970, as of
                which to read. case_sensitive: whether names are.

        Raises:
            RequestInvalid: a text that is no filter, or no column at all.
        """
        if columns is not None and not columns:
            raise RequestInvalid(
                "The scan selects no columns.",
                table=str(self.name),
                rule="columns",
                hint="Name at least one column, or leave out `columns` to read all of them.",
            )
        return Scan(
            client=self._client,
            storage=self._storage,
            table=self.name,
            columns=None if columns is None else tuple(columns),
            filter=filters.parsed(filter),
            snapshot_id=snapshot_id,
            ref=ref,
            as_of_ms=as_of_ms,
            case_sensitive=case_sensitive,
        )

    def append(self, rows: Any) -> int | None:
        """Append rows, encrypted as the table says, in one commit.

        Args:
            rows: a table, batch or reader of Arrow, or a DataFrame of pandas or Polars. Columns are found by
                name.

        Returns:
            The snapshot that holds them; None if there were none.

        Raises:
            NotAuthorized: no UPDATE on the table, or no `release` on its keys.
            RequestInvalid: rows that do not fit the table.
            NotSupportedYet: the table is to be written in a way that is not done here.
            CommitStateUnknown: the connection broke at the commit: look before you try again.
        """
        return writing.append(self._client, self._storage, self.name, rows)


class Connection:
    """A catalog as a user sees it. Its methods may be called from many threads."""

    def __init__(self, client: CatalogClient, storage: Storage) -> None:
        self._client = client
        self._storage = storage

    def __repr__(self) -> str:
        return f"Connection({self._client!r})"

    def table(self, name: str) -> Table:
        """A table by its dotted name, such as ``sales.orders``.

        Raises:
            RequestInvalid: it cannot be the name of a table.
        """
        *namespace, last = name.split(".")
        return Table(table_name(namespace, last), self._client, self._storage)


def connect(
    uri: str, token: str, *, engine_token: str | None = None, s3: Mapping[str, Any] | None = None
) -> Connection:
    """Connect to a catalog; nothing is asked yet.

    Args:
        uri: the address of the service, such as ``http://127.0.0.1:8181``.
        token: the user's token.
        engine_token: the token of an engine that acts for the user. Without one this is the user's own
            process,
            which needs the right `release` on the keys of encrypted tables.
        s3: how to reach the object store, if not as the AWS SDK finds by itself: `endpoint`, `region`,
            `access_key_id`, `secret_access_key`, `session_token`.

    Raises:
        RequestInvalid: the address is none.
        NotAuthenticated: a token with characters that no token has.
        PropertyInvalid: an unknown or contradictory setting of S3.
    """
    client = CatalogClient(uri, token, engine_token)
    try:
        options = S3Options(**(s3 or {}))
    except ValidationError as error:
        places = sorted({".".join(map(str, each["loc"])) for each in error.errors()})
        # The cause would repeat what was given.
        raise PropertyInvalid(
            f"Invalid S3 settings: {', '.join(places) or 'they contradict each other'}.",
            rule="s3",
            hint="Use endpoint, region, access_key_id, secret_access_key and session_token.",
        ) from None
    return Connection(client, StorageRouter({"file": LocalStorage(), "s3": S3Storage(options)}))
