"""The pipeline `migrate`: which tables it takes, in which waves, and with which properties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

from catalog.base.errors import NoSuchTable
from catalog.base.identifiers import TableName
from policy.encryption import governed
from policy.encryption.file_formats import WRITE_FORMAT
from policy.errors import LakewardenError, RequestInvalid
from spark_ext.pipelines.failures import concerns_all, reason
from spark_ext.pipelines.items import Item, Outcome, Rule, Status
from spark_ext.pipelines.lake import Lake, totals
from spark_ext.pipelines.migrate.comparing import COLUMNS_NOT_COMPARED, ROWS_DIFFER, ROWS_NOT_COMPARED
from spark_ext.pipelines.migrate.table import FILES_KEPT, FILES_LEFT, TableMigration, Wanted, changed
from spark_ext.pipelines.migrate.waves import Waves
from spark_ext.pipelines.pipeline import Steps
from spark_ext.pipelines.threads import in_threads

#: Tables of one request.
_PAGE: Final = 1_000
RULES: Final = (ROWS_DIFFER, ROWS_NOT_COMPARED, COLUMNS_NOT_COMPARED, FILES_LEFT, FILES_KEPT)


@dataclass
class Migrate:
    """Changes the encryption of tables, rewrites their files, and checks that no row changed.

    Args:
        tables: patterns of the tables.
        properties: the properties to set; without any, files are rewritten as the properties in force say.
        by_policy: set the properties that the encryption rules in force ask of each table.
        wanted: how each table is migrated.
        waves: the number of tables in the first waves.
        stop_after_failures: as many failed tables of one wave end the run.

    Raises:
        RequestInvalid: an argument is not valid.
    """

    tables: str | Sequence[str] = "*"
    properties: Mapping[str, str] = field(default_factory=dict)
    by_policy: bool = False
    wanted: Wanted = field(default_factory=Wanted)
    waves: Sequence[int] = (1, 10)
    stop_after_failures: int = 1
    at_a_time: int = 4
    name: str = "migrate"
    rules: Sequence[Rule] = RULES
    changes: bool = True

    def __post_init__(self) -> None:
        self._waves = Waves(tuple(self.waves), self.stop_after_failures)
        self._set = checked(self.properties)
        if self.by_policy and self._set:
            raise RequestInvalid(
                "The properties cannot be given and be those of the encryption rules.",
                rule="by-policy",
                hint="Leave out the properties, or by_policy.",
            )
        if self.wanted.history not in ("keep", "expire"):
            raise RequestInvalid(
                f"The history cannot be {self.wanted.history!r:.80}.",
                rule="history",
                hint="Use keep or expire.",
            )
        if self.wanted.max_group_bytes is not None and self.wanted.max_group_bytes < 1:
            raise RequestInvalid(
                f"A group of files cannot have {self.wanted.max_group_bytes} bytes.",
                rule="max-group-bytes",
                hint="Give a number from 1, or leave it out.",
            )

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Return what makes two runs the same. Waves can differ."""
        patterns = self.tables if isinstance(self.tables, str) else list(self.tables)
        chosen = {"tables": patterns, "by-policy": self.by_policy}
        return {**chosen, "set": dict(sorted(self._set.items())), **asdict(self.wanted)}

    def plan(self, lake: Lake) -> Iterator[Item]:
        """Plan one item for each table.

        A table keeps its item when it is renamed: the key is its UUID. By policy, tables are planned that
        break an encryption rule, or can have files of before they were encrypted.

        Raises:
            LakewardenError, PySparkException: the tables cannot be listed.
        """
        asked = asked_by_rules(lake) if self.by_policy else None
        for table in lake.tables(self.tables):
            if asked is None:
                yield from self._items(lake, table, {"set": self._set})
            elif str(table) in asked:
                yield from self._items(lake, table, asked[str(table)])

    def _items(self, lake: Lake, table: TableName, asked: Mapping[str, Any]) -> Iterator[Item]:
        payload = {"namespace": list(table.namespace), "name": table.name, "set": {}, "unset": [], **asked}
        try:
            metadata = lake.metadata(table)
        except NoSuchTable:
            return  # a view, which is listed as tables are, or dropped since
        except LakewardenError as error:
            if concerns_all(error):
                raise
            yield Item(str(table), str(table), payload=payload, why=reason(error))
            return
        files, size = totals(metadata.current_snapshot())
        changes = changed(metadata, payload["set"], payload["unset"])
        told = [f"{name}={value}" for name, value in changes.items() if value is not None]
        told += [f"no {name}" for name, value in changes.items() if value is None]
        why = payload.get("undecided") or f"Properties to change: {', '.join(told) or 'none'}."
        yield Item(str(metadata.table_uuid), str(table), files, size, payload, why)

    def run(self, lake: Lake, group: Sequence[Item], steps: Steps) -> Iterator[Outcome]:
        """Migrate tables, until too many of a wave have failed."""
        left = list(group)
        while left:
            why = self._waves.stopped
            if why is not None:
                yield from (Outcome.of(item, Status.LEFT, why) for item in left)
                return
            taken = self._waves.take(left, self.at_a_time)
            left = left[len(taken) :]
            work = partial(_migrate, lake, steps, self.wanted)
            for outcome in in_threads(lake.spark, taken, work, self.at_a_time):
                fatal = any(each.rule == ROWS_DIFFER.id for each in outcome.findings)
                self._waves.ended(outcome, fatal=fatal)
                yield outcome


def _migrate(lake: Lake, steps: Steps, wanted: Wanted, item: Item) -> Outcome:
    return TableMigration(lake, item, steps, wanted).run()


def asked_by_rules(lake: Lake) -> dict[str, dict[str, Any]]:
    """Return what the encryption rules in force ask of tables, by dotted name.

    Tables that satisfy them, and always did, are left out.

    Raises:
        NotAuthorized: `admin` on the service is needed.
    """
    found: dict[str, dict[str, Any]] = {}
    after: str | None = None
    while True:
        page = lake.admin("GET", ("encryption-report",), query={"after": after, "limit": _PAGE})
        for each in page["tables"]:
            if each["standing"] != "fits" or each["earlier-files-in-plaintext"]:
                undecided = each["undecided"] or each["problem"]
                found[each["table"]] = {
                    "set": each["set"],
                    "unset": each["unset"],
                    **({"undecided": undecided} if undecided else {}),
                }
        after = page["next"]
        if after is None:
            return found


def checked(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties by their canonical names.

    Raises:
        PropertyInvalid: a value is not valid.
        RequestInvalid: a property has nothing to do with the encryption or format of files.
    """
    found, others = governed.split(properties)
    file_format = others.pop(WRITE_FORMAT, None)
    wrong = [*others, *({governed.ALLOWED_PATHS} & found.keys())]
    if wrong:
        raise RequestInvalid(
            f"The property {wrong[0][:80]!r} cannot be set by a migration.",
            rule="migrated-property",
            hint=f"Give properties that begin with encryption., or {WRITE_FORMAT}.",
        )
    return found if file_format is None else {**found, WRITE_FORMAT: file_format}
