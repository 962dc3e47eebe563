"""Records runs of pipelines in guarded Iceberg tables of the lake: `lakewarden_ops.runs` and `.findings`.

- A run is a sequence of events: `begun`, `continued`, `group`, `step`, `ended`. Nothing is changed later.
- The findings of a group are committed before its event. When a run is continued, the findings of groups
  without an event are removed, and those of items that are not done. No finding is lost or recorded twice.
- A run is continued by the same pipeline with the same parameters, while it is not complete. A driver records
  nothing more when another one has continued its run.
- The tables are created by the first run, under the permissions of its user. Tables that exist are used as
  they are, so an administrator can create them with other properties, such as encryption.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from policy.errors import RequestInvalid
from policy.identifiers import TableName
from spark_ext.pipelines.items import Finding, Item, Outcome, Severity, Status
from spark_ext.pipelines.lake import Lake

#: The namespace of the tables.
NAMESPACE: Final = "lakewarden_ops"
RUNS: Final = TableName((NAMESPACE,), "runs")
FINDINGS: Final = TableName((NAMESPACE,), "findings")

_TIME: Final = pa.timestamp("us", tz="UTC")
_RUNS: Final = pa.schema(
    [
        ("run_id", pa.string()),
        ("pipeline", pa.string()),
        ("event", pa.string()),
        ("at", _TIME),
        ("driver", pa.string()),
        ("parameters", pa.string()),
        ("group_id", pa.string()),
        ("item", pa.string()),
        ("table_name", pa.string()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("files", pa.int64()),
        ("bytes", pa.int64()),
        ("seconds", pa.float64()),
        ("data", pa.string()),
    ]
)
_FINDINGS: Final = pa.schema(
    [
        ("run_id", pa.string()),
        ("group_id", pa.string()),
        ("item", pa.string()),
        ("at", _TIME),
        ("table_name", pa.string()),
        ("rule", pa.string()),
        ("severity", pa.string()),
        ("message", pa.string()),
        ("hint", pa.string()),
        ("snapshot_id", pa.int64()),
        ("ref", pa.string()),
        ("path", pa.string()),
        ("column_name", pa.string()),
        ("bytes", pa.int64()),
    ]
)
_SQL_TYPES: Final = {
    pa.string(): "STRING",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    _TIME: "TIMESTAMP",
}


class Journal:
    """The records of one run. It is the `Steps` of its items.

    Attributes:
        run_id: names the run.
        continued: whether an earlier process began it.
    """

    def __init__(self, lake: Lake, pipeline: str, parameters: Mapping[str, Any], *, fresh: bool) -> None:
        """Begin a run, or continue the last one with the same parameters that is not complete.

        Args:
            lake: where the tables are.
            pipeline: the name of the pipeline.
            parameters: what was asked for.
            fresh: whether a new run is begun in any case.
        """
        self._lake = lake
        self._pipeline = pipeline
        self._parameters = json.dumps(parameters, sort_keys=True, ensure_ascii=False)
        self._driver = uuid4().hex
        self._steps: dict[str, dict[str, Mapping[str, Any]]] = {}
        self._done: dict[str, Outcome] = {}
        _create(lake)
        found = None if fresh else self._unfinished()
        self.continued = found is not None
        self.run_id = found or uuid4().hex
        if self.continued:
            self._remember()
        self._event("continued" if self.continued else "begun", parameters=self._parameters)

    @property
    def done(self) -> Mapping[str, Outcome]:
        """The outcomes of the items that are done, by key, without their findings."""
        return self._done

    def of(self, item: Item) -> Mapping[str, Mapping[str, Any]]:
        """See `Steps.of`."""
        return self._steps.get(item.key, {})

    def record(self, item: Item, step: str, data: Mapping[str, Any]) -> None:
        """See `Steps.record`."""
        text = json.dumps({"step": step, "data": data}, ensure_ascii=False)
        self._event("step", item=item.key, table_name=item.table, data=text)
        self._steps.setdefault(item.key, {})[step] = data

    def group(self, outcomes: Sequence[Outcome], group_id: str, *, again: bool = False) -> None:
        """Record the outcomes of a group, with their findings.

        Args:
            outcomes: the outcomes.
            group_id: names the group.
            again: whether an earlier call for the group failed, after which it is not known what it recorded.

        Raises:
            RequestInvalid: another driver has continued the run.
        """
        self._require_own()
        if not (again and self._is_recorded(group_id)):
            self._group(outcomes, group_id)
        self._done |= {each.item: each for each in outcomes if each.status is Status.DONE}

    def _is_recorded(self, group_id: str) -> bool:
        """Return whether a group has its event; if it has none, remove its findings."""
        args = {"run": self.run_id, "group": group_id}
        where = "WHERE run_id = :run AND group_id = :group"
        if self._lake.sql(f"SELECT 1 FROM {self._lake.name(RUNS)} {where} LIMIT 1", args):
            return True
        self._lake.sql(f"DELETE FROM {self._lake.name(FINDINGS)} {where}", args)
        return False

    def _group(self, outcomes: Sequence[Outcome], group_id: str) -> None:
        now = datetime.now(UTC)
        about = {"run_id": self.run_id, "group_id": group_id, "at": now}
        found = [{**about, **_finding(one, each)} for one in outcomes for each in one.findings]
        if found:
            self._append(FINDINGS, _FINDINGS, found)
        shared = {"event": "group", "group_id": group_id}
        self._append(RUNS, _RUNS, [self._row(**shared, **_outcome(each)) for each in outcomes])

    def end(self, *, complete: bool, why: str | None) -> None:
        """Record that the run ended, or was stopped with items left."""
        self._event("ended", status="complete" if complete else "incomplete", reason=why)

    def findings(self, most: int) -> tuple[list[Finding], dict[str, int]]:
        """Return findings of the run, and how many there are by rule.

        Args:
            most: how many are returned, the worst first.
        """
        table, args = self._lake.name(FINDINGS), {"run": self.run_id}
        counted = self._lake.sql(
            f"SELECT rule, count(*) AS n FROM {table} WHERE run_id = :run GROUP BY rule "
            "ORDER BY n DESC, rule",
            args,
        )
        rows = self._lake.sql(
            f"SELECT * FROM {table} WHERE run_id = :run "
            f"ORDER BY severity, rule, table_name, path LIMIT {most}",
            args,
        )
        found = [
            Finding(
                table=row["table_name"],
                rule=row["rule"],
                severity=Severity(row["severity"]),
                message=row["message"],
                hint=row["hint"],
                snapshot=row["snapshot_id"],
                ref=row["ref"],
                path=row["path"],
                column=row["column_name"],
                bytes=row["bytes"],
            )
            for row in rows
        ]
        return found, {row["rule"]: row["n"] for row in counted}

    def _unfinished(self) -> str | None:
        """Return the last run of the same pipeline and parameters, unless it is complete."""
        rows = self._lake.sql(
            f"WITH events AS (SELECT * FROM {self._lake.name(RUNS)} WHERE pipeline = :pipeline) "
            "SELECT run_id, max(at) AS last, bool_or(event = 'ended' AND status = 'complete') AS complete "
            "FROM events WHERE run_id IN "
            "(SELECT run_id FROM events WHERE event = 'begun' AND parameters = :parameters) "
            "GROUP BY run_id ORDER BY last DESC LIMIT 1",
            {"pipeline": self._pipeline, "parameters": self._parameters},
        )
        return rows[0]["run_id"] if rows and not rows[0]["complete"] else None

    def _remember(self) -> None:
        """Read what was done, and remove the findings of groups that did not end."""
        rows = self._lake.sql(
            f"SELECT * FROM {self._lake.name(RUNS)} WHERE run_id = :run "
            "AND event IN ('group', 'step') ORDER BY at",
            {"run": self.run_id},
        )
        kept = set()
        for row in rows:
            if row["event"] == "step":
                noted = self._noted(row["data"], step=str, data=dict)
                self._steps.setdefault(row["item"], {})[noted["step"]] = noted["data"]
            elif row["status"] == Status.DONE:
                counts = self._noted(row["data"])
                kept.add((row["group_id"], row["item"]))
                self._done[row["item"]] = Outcome(row["item"], row["table_name"], counts=counts)
        self._remove_others(kept)

    def _noted(self, text: str | None, **fields: type) -> dict[str, Any]:
        """Decode what a run recorded. Others can write to the tables, too.

        Raises:
            RequestInvalid: it is not a JSON object with some fields.
        """
        try:
            found = json.loads(text or "")
        except ValueError:
            found = None
        if isinstance(found, dict) and all(
            isinstance(found.get(name), kind) for name, kind in fields.items()
        ):
            return found
        raise RequestInvalid(
            f"A record of the run {self.run_id} is not one that a pipeline writes.",
            rule="run-record",
            hint="Find out who wrote it, and begin a new run with fresh=True (--fresh).",
        )

    def _remove_others(self, kept: Set[tuple[str, str]]) -> None:
        """Remove findings, but for those of some groups and items."""
        table, args = self._lake.name(FINDINGS), {"run": self.run_id}
        rows = self._lake.sql(f"SELECT DISTINCT group_id, item FROM {table} WHERE run_id = :run", args)
        by_group: dict[str, list[str]] = {}
        for group, item in {(row["group_id"], row["item"]) for row in rows} - kept:
            by_group.setdefault(group, []).append(item)
        for group, items in by_group.items():
            self._lake.sql(
                f"DELETE FROM {table} WHERE run_id = :run AND group_id = :group "
                "AND array_contains(:items, item)",
                {**args, "group": group, "items": items},
            )

    def _require_own(self) -> None:
        """Refuse to record beside another driver."""
        rows = self._lake.sql(
            f"SELECT driver FROM {self._lake.name(RUNS)} WHERE run_id = :run "
            "AND event IN ('begun', 'continued') ORDER BY at DESC LIMIT 1",
            {"run": self.run_id},
        )
        if [row["driver"] for row in rows] != [self._driver]:
            raise RequestInvalid(
                f"Another process has continued the run {self.run_id}.",
                rule="run-continued",
                hint="Let that process finish the run.",
            )

    def _event(self, event: str, **fields: Any) -> None:
        self._append(RUNS, _RUNS, [self._row(event=event, **fields)])

    def _row(self, **fields: Any) -> dict[str, Any]:
        about = {"run_id": self.run_id, "pipeline": self._pipeline, "driver": self._driver}
        return {**about, "at": datetime.now(UTC), **fields}

    def _append(self, table: TableName, schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> None:
        columns = [pa.array([row.get(each.name) for row in rows], each.type) for each in schema]
        frame = self._lake.spark.createDataFrame(pa.table(columns, schema=schema))
        frame.coalesce(1).writeTo(self._lake.name(table)).append()


def _create(lake: Lake) -> None:
    """Create the tables that do not exist."""
    for table, schema in ((RUNS, _RUNS), (FINDINGS, _FINDINGS)):
        if not lake.spark.catalog.tableExists(lake.name(table)):
            columns = ", ".join(f"{each.name} {_SQL_TYPES[each.type]}" for each in schema)
            lake.sql(f"CREATE NAMESPACE IF NOT EXISTS {lake.catalog}.{NAMESPACE}")
            lake.sql(f"CREATE TABLE IF NOT EXISTS {lake.name(table)} ({columns}) USING iceberg")


def _outcome(each: Outcome) -> dict[str, Any]:
    return {
        "item": each.item,
        "table_name": each.table,
        "status": str(each.status),
        "reason": each.reason,
        "files": each.counts.get("files", 0),
        "bytes": each.counts.get("bytes", 0),
        "seconds": each.seconds,
        "data": json.dumps(each.counts),
    }


def _finding(outcome: Outcome, each: Finding) -> dict[str, Any]:
    fields = asdict(each)
    renamed = {
        "table_name": fields.pop("table"),
        "snapshot_id": fields.pop("snapshot"),
        "column_name": fields.pop("column"),
    }
    return {"item": outcome.item, **fields, **renamed}
