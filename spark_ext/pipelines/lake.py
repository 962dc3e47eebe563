"""The lake that a pipeline works on: a Spark session with a catalog, and the catalog's administration.

Statements and requests carry the token of the session's user: the catalog's permissions decide on each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Final

from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import Row, SparkSession

from catalog.base.identifiers import TableName
from catalog.client.http import CatalogClient, table_path
from policy.errors import NotAuthenticated, RequestInvalid
from spark_ext.configuration import CATALOG_CLASS, token_setting

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
#: What stands in the place of a token that the driver holds, and the class of what holds it.
_HELD: Final = "(held by the driver)"
_HOLDER: Final = "HeldTokens"
_PATTERN: Final = re.compile(r"[^\s`/\\]+")


class Lake:
    """A catalog in a Spark session.

    Args:
        spark: a session with a Lakewarden catalog. A client of Spark Connect has no token for `admin`,
            `engine` and `metadata`.
        catalog: the name that SQL knows the catalog by; by default the session's current catalog.

    Raises:
        RequestInvalid: the session has no Lakewarden catalog of that name.
    """

    def __init__(self, spark: SparkSession, catalog: str | None = None) -> None:
        self.spark = spark
        self.catalog = spark.catalog.currentCatalog() if catalog is None else catalog
        if spark.conf.get(f"spark.sql.catalog.{self.catalog}", None) != CATALOG_CLASS:
            raise RequestInvalid(
                f"{self.catalog!r} is not a Lakewarden catalog of this Spark session.",
                rule="spark-catalog",
                hint="Name the catalog with catalog=…, or make the session with lakewarden.configure.",
            )

    def __repr__(self) -> str:
        return f"Lake({self.catalog})"

    def sql(self, statement: str, args: Mapping[str, Any] | None = None) -> list[Row]:
        """Run a statement, and return its rows."""
        return self.spark.sql(statement, args=dict(args or {})).collect()

    def name(self, table: TableName) -> str:
        """Return the name of a table for a statement: quoted, with the catalog before it."""
        return ".".join(map(quoted, (self.catalog, *table.namespace, table.name)))

    def admin(
        self,
        method: str,
        path: Sequence[str],
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        """Ask for an operation of the administration interface.

        Args:
            method: the HTTP method.
            path: the names below ``/admin/v1``.
            body: the JSON object to send.
            query: the query; what has no value is left out.

        Raises:
            LakewardenError: the catalog's refusal.
            CatalogUnavailable: the catalog does not answer.
        """
        return self._client.ask(method, ("admin", "v1", *path), body, query, again=False) or {}

    def engine(self, table: TableName, operation: Sequence[str], body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for an operation of the engine interface on a table, as the user's own process.

        Args:
            table: the table.
            operation: the names behind that of the table.
            body: the JSON object to send.

        Raises:
            LakewardenError: the catalog's refusal.
            CatalogUnavailable: the catalog does not answer.
        """
        first, *others = operation
        return self._client.post((*table_path(table, first), *others), body)

    def metadata(self, table: TableName) -> TableMetadata:
        """Load the metadata of a table as the user can see it, with the governed properties in force.

        Raises:
            LakewardenError: the catalog's refusal.
            CatalogUnavailable: the catalog does not answer.
        """
        return TableMetadataUtil.parse_obj(self._client.post(table_path(table, "load"))["metadata"])

    @cached_property
    def _client(self) -> CatalogClient:
        uri = self.spark.conf.get(f"spark.sql.catalog.{self.catalog}.uri", None)
        token = _token(self.spark, token_setting(self.catalog))
        if not uri or not token:
            raise NotAuthenticated(
                f"This process has no token of the session for the catalog {self.catalog}.",
                rule="session-token",
                hint=f"Set {token_setting(self.catalog)} in the session. Run the pipeline in the driver, "
                "not in a client of Spark Connect.",
            )
        return CatalogClient(uri, token)

    def tables(self, patterns: str | Sequence[str]) -> Iterator[TableName]:
        """List the tables that the user can see and that patterns choose, by namespace and name.

        Args:
            patterns: such as ``sales.*``; see `Patterns`.

        Raises:
            RequestInvalid: something is not a pattern.
            PySparkException: the catalog refuses or does not answer.
        """
        wanted = Patterns(patterns)
        for namespace in sorted(self._namespaces(())):
            for row in self.sql(f"SHOW TABLES IN {'.'.join(map(quoted, (self.catalog, *namespace)))}"):
                table = TableName(namespace, row["tableName"])
                if not row["isTemporary"] and wanted.match(str(table)):
                    yield table

    def _namespaces(self, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for row in self.sql(f"SHOW NAMESPACES IN {'.'.join(map(quoted, (self.catalog, *above)))}"):
            below = parts(row["namespace"])
            yield below
            yield from self._namespaces(below)


def _token(spark: SparkSession, setting: str) -> str | None:
    """Return the session's token: from its settings, or from where the driver holds it."""
    token = spark.conf.get(setting, None)
    if token != _HELD:
        return token
    session = getattr(spark, "_jsparkSession", None)
    if session is None:
        return None
    strategies = session.experimental().extraStrategies()
    for each in map(strategies.apply, range(strategies.size())):
        if each.getClass().getSimpleName() == _HOLDER and each.get(setting).isDefined():
            return str(each.get(setting).get())
    return None


class Patterns:
    """Chooses tables by their dotted names.

    Args:
        patterns: one or more, also separated by commas. ``*`` stands for any text, ``?`` for one character.
            ``sales.*`` chooses all tables of ``sales`` and of the namespaces in it. A pattern after ``!``
            excludes what it matches.

    Raises:
        RequestInvalid: something is not a pattern, or nothing is chosen.
    """

    def __init__(self, patterns: str | Sequence[str]) -> None:
        texts = patterns.split(",") if isinstance(patterns, str) else list(patterns)
        wrong = [each for each in texts if _PATTERN.fullmatch(each.removeprefix("!")) is None]
        self._chosen = [each for each in texts if not each.startswith("!")]
        self._excluded = [each[1:] for each in texts if each.startswith("!")]
        if wrong or not self._chosen:
            raise RequestInvalid(
                f"{wrong[0]!r:.80} is not a pattern of table names."
                if wrong
                else "The patterns choose no table.",
                rule="table-pattern",
                hint="Write patterns such as sales.* or *.orders, and exclude tables with !sales.old_*.",
            )

    def match(self, name: str) -> bool:
        """Return whether a table is chosen.

        Args:
            name: its dotted name, without the catalog.
        """
        chosen = any(fnmatchcase(name, each) for each in self._chosen)
        return chosen and not any(fnmatchcase(name, each) for each in self._excluded)


def on_table(table: TableName, *operation: str) -> tuple[str, ...]:
    """Return the path of an operation on a table, for `Lake.admin`."""
    return ("tables", "\x1f".join(table.namespace), table.name, *operation)


def quoted(name: str) -> str:
    """Quote a name for SQL, if it needs quotes."""
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def parts(name: str) -> tuple[str, ...]:
    """Return the parts of a name as SQL writes it."""
    found = re.findall(r"`((?:[^`]|``)+)`|([^.`]+)", name)
    return tuple(quoted_part.replace("``", "`") or plain for quoted_part, plain in found)


def totals(snapshot: Snapshot | None) -> tuple[int, int]:
    """Return the number of files of a snapshot, and their size, as far as its summary tells them."""
    summary = None if snapshot is None else snapshot.summary
    told = {} if summary is None else summary.additional_properties
    numbers = [told.get(name, "0") for name in ("total-data-files", "total-delete-files", "total-files-size")]
    data, deletes, size = (int(each) if each.isdigit() else 0 for each in numbers)
    return data + deletes, size
