"""Re-keys one table: moves its keys, rotates them, rewraps data keys, and verifies each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from catalog.base.identifiers import TableName, table_name
from policy.errors import LakewardenError
from spark_ext.pipelines.failures import concerns_all
from spark_ext.pipelines.items import Finding, Item, Outcome, Rule, Severity, Status
from spark_ext.pipelines.refusals import outcome_of
from spark_ext.pipelines.rekey.keys import Key, Keys, KmsKey

NOT_MOVED: Final = Rule(
    "key-not-moved",
    Severity.ERROR,
    "A key could not be moved to another KMS key.",
    "Repair what the message says, or restore the catalog's database. Until then, keep the KMS key before.",
)
SNAPSHOTS: Final = Rule(
    "snapshots-need-old-key",
    Severity.NOTE,
    "Retained snapshots need an earlier version of a key.",
    "To destroy the version, expire these snapshots, remove their tags, and run `lakewarden key destroy`.",
)
LOST: Final = Rule(
    "files-under-destroyed-key",
    Severity.WARNING,
    "Files are under a destroyed key and cannot be read.",
    "Delete the files from the table, or restore it to a snapshot without them.",
)

#: How often data keys are rewrapped before the table is left to a later run, beside busy writers.
_ATTEMPTS: Final = 5


@dataclass
class TableRekey:
    """Re-keys one table.

    A step that was done in an earlier process is recognized by what it left: a key that has moved is not
    moved again, and a key that was made since the run began is not rotated again.

    Args:
        keys: the keys of the lake.
        item: the table.
        targets: the KMS keys that keys move to, by master key id.
        older_ms: keys that were made until then are rotated, in milliseconds since 1970; None: no key is.
    """

    keys: Keys
    item: Item
    targets: Mapping[str, KmsKey]
    older_ms: int | None
    _counts: dict[str, int] = field(default_factory=dict)
    _findings: list[Finding] = field(default_factory=list)

    def run(self) -> Outcome:
        """Do all steps; a table that cannot be read has its keys moved nevertheless."""
        try:
            left = self._move()
            if self.older_ms is not None:
                left = left or self._renew(self.older_ms)
        except LakewardenError as error:
            refused = outcome_of(self.item, error, tuple(self._findings))
            return Outcome.of(self.item, refused.status, refused.reason, refused.findings, self._counts)
        return Outcome.of(
            self.item,
            Status.DONE if left is None else left[0],
            None if left is None else left[1],
            tuple(self._findings),
            self._counts,
        )

    def _move(self) -> tuple[Status, str] | None:
        """Move the table's keys; return what is left to do."""
        failed = list[str]()
        for master_key_id in sorted(self.targets):
            moved, refused = self.keys.move(master_key_id, self.item.payload["uuid"])
            self._count("moved-keys", moved)
            failed += refused
        self._findings += [NOT_MOVED.found(self.item.table, each) for each in failed]
        if failed:
            return Status.FAILED, f"{len(failed)} keys were not moved. {failed[0]}"
        away = [each for each in self._versions() if self._is_away(each)]
        if away:
            return Status.LEFT, f"{len(away)} keys are not under their new KMS key yet."
        return None

    def _is_away(self, key: Key) -> bool:
        return self.targets.get(key.master_key_id, key.at) != key.at

    def _renew(self, older_ms: int) -> tuple[Status, str] | None:
        """Rotate the table's keys and rewrap its data keys; return what is left to do."""
        table, keys = self._name(), [each for each in self._versions() if each.in_force]
        if table is None or not keys:
            return None
        if any(each.created_ms <= older_ms for each in keys):
            self._count("rotated-keys", len(self.keys.rotate(table)["keys"]))
            if not _is_later(_in_force(self._versions()), _in_force(keys)):
                return Status.LEFT, "The table was replaced, or renamed, while its keys were rotated."
        return self._rewrap(table)

    def _rewrap(self, table: TableName) -> tuple[Status, str] | None:
        for _ in range(_ATTEMPTS):
            lost = 0
            for branch in self._rewrapped(table):
                self._count("rewrapped-files", branch["files"])
                lost += branch["lost"]
            uses = self._old_uses(table)
            heads = sorted({name for use in uses for name in use.branches})
            if not heads or lost:
                self._tell(uses, lost)
                return None
        return Status.LEFT, f"Files of {', '.join(heads)} are still under an earlier version of a key."

    def _rewrapped(self, table: TableName) -> Iterable[Mapping[str, Any]]:
        """Rewrap; a conflict with writers, or an answer that did not come, is seen by what is left."""
        try:
            return self.keys.rewrap(table)
        except LakewardenError as error:
            if concerns_all(error) or outcome_of(self.item, error).status is not Status.LEFT:
                raise
            return ()

    def _old_uses(self, table: TableName) -> list[_Use]:
        """Return the uses of versions that are earlier than those in force."""
        in_force = _in_force(self._versions())
        return [
            _Use(f"{key_id} version {each['version']}", tuple(each["needed-by"]))
            for key_id, version in in_force.items()
            for each in self.keys.uses(table, key_id)
            if each["version"] < version and each["needed-by"]
        ]

    def _tell(self, uses: Iterable[_Use], lost: int) -> None:
        self._findings += [
            SNAPSHOTS.found(
                self.item.table,
                f"{len(use.snapshots)} retained snapshots need the key {use.version}.",
                snapshot=use.snapshots[0]["snapshot-id"],
            )
            for use in uses
        ]
        if lost:
            text = f"{lost} manifests list files under a destroyed key. They were not rewrapped."
            self._findings.append(LOST.found(self.item.table, text))

    def _versions(self) -> list[Key]:
        return list(self.keys.find(table_uuid=self.item.payload["uuid"]))

    def _name(self) -> TableName | None:
        """Return the table's name as it is now; None if the table was dropped."""
        names = {each.table for each in self._versions() if each.table is not None}
        if not names:
            return None
        *namespace, name = names.pop().split(".")
        return table_name(namespace, name)

    def _count(self, name: str, number: int) -> None:
        if number:
            self._counts[name] = self._counts.get(name, 0) + number


@dataclass(frozen=True, slots=True)
class _Use:
    """The snapshots that need an earlier version of a key."""

    version: str
    snapshots: tuple[Mapping[str, Any], ...]

    @property
    def branches(self) -> tuple[str, ...]:
        """The branches among whose heads they are."""
        names = (name for each in self.snapshots for name in each["names"])
        return tuple(name for name in names if name.startswith("branch "))


def _in_force(keys: Iterable[Key]) -> dict[str, int]:
    return {each.id: each.version for each in keys if each.in_force}


def _is_later(now: Mapping[str, int], before: Mapping[str, int]) -> bool:
    """Return whether each key that was in force was rotated since, or is not in force any more."""
    return all(now.get(key_id, version + 1) > version for key_id, version in before.items())
