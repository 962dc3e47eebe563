"""Deletes the rows of given identifiers from tables, branches and retained snapshots, and certifies it."""

from __future__ import annotations

import json
import re
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Unpack
from uuid import uuid4

from pyspark.sql import SparkSession

from spark_ext.pipelines.engine import Options, run
from spark_ext.pipelines.erase.identifiers import Identifiers, Scrypt, combined
from spark_ext.pipelines.erase.identifiers import was_erased as was_erased
from spark_ext.pipelines.erase.pipeline import Erase, Where
from spark_ext.pipelines.erase.table import Erasure
from spark_ext.pipelines.items import Item
from spark_ext.pipelines.journal import RUNS
from spark_ext.pipelines.lake import Lake
from spark_ext.pipelines.report import Report, RunState

#: Unfinished runs that are compared with the identifiers, the newest first.
_COMPARED: Final = 20
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SALT: Final = re.compile(r"[0-9a-f]{32}")


def erase(
    spark: SparkSession,
    identifiers: Iterable[str | int] | Path,
    columns: Mapping[str, Sequence[str]] | None = None,
    *,
    tags: Sequence[str] = (),
    tables: str | Sequence[str] = "*",
    drop_tags: bool = False,
    **options: Unpack[Options],
) -> Report:
    """Delete the rows of identifiers from tables, branches and retained snapshots, and certify it.

    Args:
        spark: a session with the catalog.
        identifiers: up to 1,000 identifiers, or a file that has one on each line.
        columns: by dotted name of a table, the columns that hold them.
        tags: instead, tags of the encryption policy: all columns that have one of them are searched.
        tables: patterns of the tables whose tagged columns are searched.
        drop_tags: drop tags of tables that keep snapshots with such rows. Otherwise such a table fails.
        options: see `Options`. A dry run counts the rows.

    Raises:
        RequestInvalid: an argument is not valid.
        LakewardenError, PySparkException: nothing can be planned or recorded.
    """
    where = Where(columns or {}, tuple(tags), tables)
    found = Identifiers.of(identifiers)
    lake = Lake(spark, options.get("catalog"))
    if options.get("dry_run", False):
        unused = Erasure(str(uuid4()), found, Scrypt("00" * 16), (), drop_tags)
        return _counted(lake, Erase(where, unused), show=options.get("show", True))
    earlier = None if options.get("fresh", False) else _unfinished(lake, where, found, drop_tags)
    erasure = earlier or _begun(found, str(uuid4()), Scrypt(secrets.token_hex(16)), drop_tags)
    return run(Erase(where, erasure), spark, **options)


def _begun(identifiers: Identifiers, erasure_id: str, scrypt: Scrypt, drop_tags: bool) -> Erasure:
    return Erasure(erasure_id, identifiers, scrypt, identifiers.digests(scrypt), drop_tags)


def _unfinished(lake: Lake, where: Where, identifiers: Identifiers, drop_tags: bool) -> Erasure | None:
    """Return the last erasure of the same identifiers from the same columns that is not complete."""
    choice = where.to_json()
    for known in _parameters(lake):
        if {name: known.get(name) for name in choice} == choice and _is_of_erase(known):
            erasure = _begun(identifiers, known["erasure"], Scrypt(known["salt"]), drop_tags)
            if combined(erasure.digests) == known.get("identifiers"):
                return erasure
    return None


def _is_of_erase(known: Mapping[str, Any]) -> bool:
    """Return whether parameters are those that an erasure records. Others can write to the table, too."""
    forms = {"erasure": _UUID, "salt": _SALT}
    return all(form.fullmatch(str(known.get(name))) for name, form in forms.items())


def _parameters(lake: Lake) -> Iterator[dict[str, Any]]:
    """Yield the parameters of the last erasures that are not complete."""
    if not lake.spark.catalog.tableExists(lake.name(RUNS)):
        return
    rows = lake.sql(
        "SELECT max_by(parameters, at) FILTER (WHERE event = 'begun') AS parameters, max(at) AS last "
        f"FROM {lake.name(RUNS)} WHERE pipeline = 'erase' GROUP BY run_id "
        "HAVING NOT bool_or(event = 'ended' AND status = 'complete') "
        f"ORDER BY last DESC LIMIT {_COMPARED}"
    )
    for row in rows:
        try:
            known = json.loads(row["parameters"] or "")
        except ValueError:
            continue
        if isinstance(known, dict):
            yield known


class _NoSteps:
    """The steps of a dry run, which has none."""

    def of(self, item: Item) -> Mapping[str, Mapping[str, Any]]:
        return {}

    def record(self, item: Item, step: str, data: Mapping[str, Any]) -> None:
        raise AssertionError("A dry run records nothing.")


def _counted(lake: Lake, pipeline: Erase, *, show: bool) -> Report:
    """Report how many rows would be deleted, and change nothing."""
    items = list(pipeline.plan(lake))
    outcomes = tuple(pipeline.look(lake, items, _NoSteps()))
    findings = tuple(each for outcome in outcomes for each in outcome.findings)
    report = Report(
        pipeline.name,
        tuple(pipeline.rules),
        RunState.PLANNED,
        outcomes=outcomes,
        findings=findings,
        found=Counter(each.rule for each in findings),
        planned=tuple(items),
    )
    if show:
        report.show()
    return report
