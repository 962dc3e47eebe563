"""The pipeline `migrate`: which tables it takes, in which waves, and with which properties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

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

RULES: Final = (ROWS_DIFFER, ROWS_NOT_COMPARED, COLUMNS_NOT_COMPARED, FILES_LEFT, FILES_KEPT)


@dataclass
class Migrate:
    """Changes the encryption of tables, rewrites their files, and checks that no row changed.

    Args:
        tables: patterns of the tables.
        properties: the properties to set; without any, files are rewritten as the properties in force say.
        wanted: how each table is migrated.
        waves: the number of tables in the first waves.
        stop_after_failures: as many failed tables of one wave end the run.

    Raises:
        RequestInvalid: an argument is not valid.
    """

    tables: str | Sequence[str] = "*"
    properties: Mapping[str, str] = field(default_factory=dict)
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
        if self.wanted.history not in ("keep", "expire"):
            raise RequestInvalid(
                f"The history cannot be {self.wanted.history!r:.80}.",
                rule="history",
                hint="Use keep or expire.",
            )

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Return what makes two runs the same. Waves can differ."""
        patterns = self.tables if isinstance(self.tables, str) else list(self.tables)
        return {"tables": patterns, "set": dict(sorted(self._set.items())), **asdict(self.wanted)}

    def plan(self, lake: Lake) -> Iterator[Item]:
        """Plan one item for each table.

        A table keeps its item when it is renamed: the key is its UUID.

        Raises:
            LakewardenError, PySparkException: the tables cannot be listed.
        """
        for table in lake.tables(self.tables):
            yield self._item(lake, table)

    def _item(self, lake: Lake, table: TableName) -> Item:
        payload = {"namespace": list(table.namespace), "name": table.name, "set": self._set}
        try:
            metadata = lake.metadata(table)
        except LakewardenError as error:
            if concerns_all(error):
                raise
            return Item(str(table), str(table), payload=payload | {"problem": reason(error)})
        files, size = totals(metadata.current_snapshot())
        why = changed(metadata, self._set)
        return Item(str(metadata.table_uuid), str(table), files, size, payload | {"changes": why})

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
