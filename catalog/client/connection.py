"""Connects a Python process to the catalog, without Spark (`connect`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import ValidationError
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema

from catalog.base.identifiers import TableName, namespace_of, table_name
from catalog.client import filters, listing, writing
from catalog.client.access import Access, access_of
from catalog.client.http import CatalogClient, table_path
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
    _progress: bool = field(default=True, repr=False)

    def scan(
        self,
        filter: str | BooleanExpression | None = None,
        columns: list[str] | tuple[str, ...] | None = None,
        *,
        snapshot_id: int | None = None,
        ref: str | None = None,
        as_of_ms: int | None = None,
        case_sensitive: bool = True,
        limit: int | None = None,
    ) -> Scan:
        """What is to be read.

        Args:
            filter: rows that are wanted, as a text such as ``"amount > 100"`` or an expression of
                pyiceberg's. columns: names of columns, nested ones dotted; by default all. snapshot_id: the
                snapshot, or ref: the branch or tag, or as_of_ms: the time, in milliseconds since 1970, as of
                which to read. case_sensitive: whether names are. limit: how many rows at the most.

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
            limit=limit,
            progress=self._progress,
        )

    def schema(self) -> Schema:
        """The table's current schema.

        Raises:
            NotAuthorized: no SELECT, UPDATE or ALTER on the table, and no SELECT on a column.
        """
        return listing.loaded(self._client, self.name)[0].schema()

    def access(
        self, *, snapshot_id: int | None = None, ref: str | None = None, as_of_ms: int | None = None
    ) -> Access:
        """Which columns the user can read, masked how, and by which rule not.

        The catalog decides each column as a scan of that column. Nothing is read, and no key is released.

        Args:
            snapshot_id: the snapshot, or ref: the branch or tag, or as_of_ms: the time, in milliseconds since
                1970, as of which to read.

        Raises:
            NotAuthorized: no permission on the table.
            RequestInvalid: a snapshot, branch or tag that the table does not have.
        """
        body: dict[str, Any] = self._state(snapshot_id, ref, as_of_ms)
        if self._client.is_engine:
            body["enforces"] = ["read-restrictions"]
        return access_of(self._client.post(table_path(self.name, "access"), body))

    def inspect(
        self,
        metadata_table: str,
        columns: Sequence[str] | None = None,
        *,
        snapshot_id: int | None = None,
        ref: str | None = None,
        as_of_ms: int | None = None,
    ) -> pa.Table:
        """A metadata table, such as ``files``; what it hides from the user is null.

        Args:
            metadata_table: its name.
            columns: names of columns, nested ones dotted; by default all. snapshot_id, ref, as_of_ms: as in
                `access`.

        Raises:
            NotAuthorized: the permissions that docs/rest-api.md lists are missing.
            RequestInvalid: a metadata table or column that does not exist.
        """
        body = self._state(snapshot_id, ref, as_of_ms) | {"metadata-table": metadata_table}
        if columns is not None:
            body["columns"] = [each.split(".") for each in columns]
        return listing.inspected(self._client, self.name, body)

    def snapshots(self) -> pa.Table:
        """The table's snapshots: the metadata table `snapshots`. Errors as in `inspect`."""
        return self.inspect("snapshots")

    def _state(self, snapshot_id: int | None, ref: str | None, as_of_ms: int | None) -> dict[str, Any]:
        given = {"snapshot-id": snapshot_id, "ref": ref, "as-of-ms": as_of_ms}
        return {name: value for name, value in given.items() if value is not None}

    def append(
        self, rows: Any, *, branch: str | None = None, summary: Mapping[str, str] | None = None
    ) -> int | None:
        """Append rows, encrypted as the table says, in one commit.

        Args:
            rows: a table, batch or reader of Arrow, or a DataFrame of pandas or Polars. Columns are found by
                name.
            branch: the branch to append to, which is created at the head of `main` if it does not exist; by
                default `main`.
            summary: entries for the snapshot's summary.

        Returns:
            The snapshot that holds them; None if there were none.

        Raises:
            NotAuthorized: no UPDATE on the table, or no `release` on its keys.
            RequestInvalid: rows that do not fit the table.
            NotSupportedYet: the table is to be written in a way that is not done here.
            CommitStateUnknown: the connection broke at the commit: look before you try again.
        """
        commit = {"branch": branch, "summary": None if summary is None else dict(summary)}
        given = {name: value for name, value in commit.items() if value is not None}
        return writing.append(self._client, self._storage, self.name, rows, given, progress=self._progress)


class Connection:
    """A catalog as a user sees it. Its methods may be called from many threads."""

    def __init__(self, client: CatalogClient, storage: Storage, *, progress: bool = True) -> None:
        self._client = client
        self._storage = storage
        self._progress = progress

    def __repr__(self) -> str:
        return f"Connection({self._client!r})"

    def table(self, name: str) -> Table:
        """A table by its dotted name, such as ``sales.orders``.

        Raises:
            RequestInvalid: it cannot be the name of a table.
        """
        *namespace, last = name.split(".")
        return self._named(table_name(namespace, last))

    def _named(self, name: TableName) -> Table:
        return Table(name, self._client, self._storage, self._progress)

    def namespaces(self) -> list[str]:
        """Dotted names of the namespaces in which the user has any permission.

        Raises:
            NotAuthenticated, CatalogUnavailable: the catalog does not list them.
        """
        return [".".join(each) for each in listing.namespaces(self._client)]

    def tables(self, namespace: str | None = None) -> list[str]:
        """Dotted names of the tables on which the user has any permission.

        Args:
            namespace: dotted name of the namespace; by default, all that the user sees, with two requests for
                each.

        Raises:
            NotAuthorized: no permission in the namespace.
            NotAuthenticated, CatalogUnavailable: the catalog does not list them.
        """
        if namespace is not None:
            return list(map(str, listing.tables(self._client, namespace_of(namespace.split(".")))))
        every = listing.namespaces(self._client)
        return [str(name) for each in every for name in listing.tables(self._client, each)]


def connect(
    uri: str,
    token: str,
    *,
    engine_token: str | None = None,
    ca_file: str | Path | None = None,
    s3: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> Connection:
    """Connect to a catalog; nothing is asked yet.

    Args:
        uri: the address of the service, such as ``https://lake.example``. Another host is asked over TLS
            alone.
        token: the user's token.
        engine_token: the token of an engine that acts for the user. Without one this is the user's own
            process, which needs the right `release` on the keys of encrypted tables.
        ca_file: certificate authorities in PEM that the service's certificate is checked against. By default
            those in the file that the variable `LAKEWARDEN_CA_FILE` names, else those of the system.
        s3: how to reach the object store, if not as the AWS SDK finds by itself: `endpoint`, `region`,
            `access_key_id`, `secret_access_key`, `session_token`.
        progress: whether scans and appends of more than two seconds show a progress bar, on a terminal or in
            a notebook.

    Raises:
        RequestInvalid: the address is none, or another host's without TLS; or `ca_file` cannot be read.
        NotAuthenticated: a token with characters that no token has.
        PropertyInvalid: an unknown or contradictory setting of S3.
    """
    client = CatalogClient(uri, token, engine_token, None if ca_file is None else Path(ca_file))
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
    storage = StorageRouter({"file": LocalStorage(), "s3": S3Storage(options)})
    return Connection(client, storage, progress=progress)
