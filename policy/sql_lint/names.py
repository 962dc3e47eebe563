"""Which table or namespace of the catalog a name means.

- Spark: a name that begins with the catalog's is in it, letter by letter; what is left is in the current
  catalog, and a name of one part in the current namespace. Hive: `table` or `database.table`, in lower case.
- A name that leads out of the catalog is refused: about what is there, nothing is decided here.
- ``parquet.`…` `` and the like are files that the engine opens by their path, past every catalog.

Source: Spark's LookupCatalog and ResolveSQLOnFile.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from policy.identifiers import Namespace, TableName, namespace_of, table_name
from policy.sql_lint.cursor import Name
from policy.sql_lint.denials import Refusal

#: Two-part names that begin like this are files that the engine opens by their path.
_FORMATS: Final = "parquet orc csv json text avro binaryfile xml delta iceberg hudi jdbc image libsvm kafka"
_FILE_FORMATS: Final = frozenset(_FORMATS.split())
#: What Iceberg's Spark module reads as a state of the table that the name before it names.
_STATE: Final = re.compile(r"(branch|tag)_.+|snapshot_id_[0-9]+|at_timestamp_[0-9]+", re.ASCII | re.DOTALL)
_ELSEWHERE: Final = frozenset({"spark_catalog", "global_temp", "system", "session", "builtin"})


def table_of_state(name: TableName) -> TableName | None:
    """The table `s.t` for the name `s.t.branch_x`; None for names of no state."""
    if len(name.namespace) < 2 or _STATE.fullmatch(name.name) is None:
        return None
    return table_name(name.namespace[:-1], name.namespace[-1])


@dataclass(frozen=True, slots=True)
class Names:
    """How names are resolved at a point of a script.

    Attributes:
        catalog: the catalog's name in the engine.
        current: the current namespace; None if it is not known, empty for the catalog itself.
        lost: whether the current catalog is not known any more.
        hive: whether Hive reads the script.
        hidden: whether a name of one part may be that of a temporary view that is not known.
    """

    catalog: str
    current: Namespace | None
    lost: bool
    hive: bool
    hidden: bool = False

    def table(self, name: Name) -> TableName:
        """The table that a name means.

        Raises:
            Refusal: it is not one of the catalog's, or it is not known which.
            RequestInvalid: a part is no name.
        """
        below = self._below(name)
        if below is None:
            return table_name(self.current_namespace(), self._folded(name)[0])
        if len(name) == 2 and name[0].lower() in _FILE_FORMATS:
            raise Refusal(
                "by-path",
                f"{name[0]}.`…` opens a file by its path and bypasses the catalog.",
                "Read a table instead.",
            )
        if len(below) < 2:
            raise Refusal("namespace", "The table name has no namespace.", "Add the namespace.")
        return table_name(below[:-1], below[-1])

    def namespace(self, name: Name) -> Namespace:
        """The namespace that a name means; empty for the catalog itself.

        Raises:
            as `table`.
        """
        below = self._below(name, alone=True)
        return namespace_of(below) if below else ()

    def beside(self, table: TableName, target: Name) -> TableName:
        """The new name of a table: of one part in its namespace, else without the catalog.

        Raises:
            as `table`.
        """
        parts = self._folded(target)
        if len(parts) == 1:
            return table_name(table.namespace, parts[0])
        if not self.hive and len(parts) > 2 and parts[0] == self.catalog:
            raise Refusal(
                "identifier",
                "The new name begins with the catalog's name.",
                "Write TABLE or NAMESPACE.TABLE, without the catalog.",
            )
        return table_name(parts[:-1], parts[-1])

    def current_namespace(self) -> Namespace:
        """The current namespace.

        Raises:
            Refusal: it is not known.
        """
        self._require_current()
        if self.current is None:
            raise Refusal(
                "no-database",
                "The name has no namespace, and the current namespace is unknown.",
                "Add the namespace, pass --database, or begin the script with USE.",
            )
        if not self.current:
            raise Refusal("namespace", "A table must be in a namespace.", "Add the namespace.")
        return self.current

    def _below(self, name: Name, *, alone: bool = False) -> Name | None:
        """The levels below the catalog; None for a name of one part that is in the current namespace."""
        parts = self._folded(name)
        if self.hive and len(parts) > (1 if alone else 2):
            raise Refusal(
                "name", "A Hive table name has at most a database and a table.", "Write DATABASE.TABLE."
            )
        if not self.hive and parts[0] == self.catalog and (alone or len(parts) > 1):
            return parts[1:]
        if parts[0].lower() == self.catalog.lower() and not self.hive:
            raise Refusal(
                "catalog-name",
                f"{parts[0][:80]!a} differs in letter case from the catalog's name.",
                f"Write {self.catalog}.",
            )
        if parts[0].lower() in _ELSEWHERE and (alone or len(parts) > 1):
            raise self._outside(ascii(parts[0]))
        if len(parts) == 1 and not alone:
            self._require_table()
            return None
        self._require_current()
        return parts

    def _require_current(self) -> None:
        if self.lost:
            raise Refusal(
                "current-unknown",
                "A denied statement before this one can have changed the current catalog.",
                f"Begin the name with {self.catalog}, or correct the denied statement.",
            )

    def _require_table(self) -> None:
        if self.hidden:
            raise Refusal(
                "view-unknown",
                "A denied statement before this one can have created a temporary view with this name.",
                "Add the table's namespace, or correct the denied statement.",
            )

    def _folded(self, name: Name) -> Name:
        return tuple(part.lower() for part in name) if self.hive else name

    def _outside(self, what: str) -> Refusal:
        return Refusal(
            "other-catalog",
            f"{what} is outside of the catalog {self.catalog}, which lint cannot check.",
            f"Begin the name with {self.catalog}.",
        )
