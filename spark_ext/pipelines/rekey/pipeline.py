"""The pipeline `rekey`: which tables it takes, where their keys move to, and the proof at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from policy.errors import LakewardenError, RequestInvalid
from spark_ext.pipelines.failures import concerns_all
from spark_ext.pipelines.items import Finding, Item, Outcome, Rule, Severity, Status
from spark_ext.pipelines.lake import Lake, Patterns
from spark_ext.pipelines.pipeline import Steps
from spark_ext.pipelines.refusals import outcome_of
from spark_ext.pipelines.rekey.keys import Key, Keys, KmsKey
from spark_ext.pipelines.rekey.table import LOST, NOT_MOVED, SNAPSHOTS, TableRekey
from spark_ext.pipelines.threads import in_threads

STILL_NEEDED: Final = Rule(
    "old-key-needed",
    Severity.WARNING,
    "Something still needs the KMS key that keys move away from.",
    "Do not disable that KMS key before a run finds nothing. docs/kms.md says what to do about each.",
)
RULES: Final = (STILL_NEEDED, NOT_MOVED, SNAPSHOTS, LOST)

_EVERY_TABLE: Final = "*"
_MASTER: Final = "master-key:"
_BEFORE: Final = "before"
#: What is noted of the whole run.
_RUN: Final = Item("run", "")
_BEGUN: Final = "begun"
_SHOWN: Final = 100


@dataclass
class Rekey:
    """Rotates the keys of tables, and moves keys to other KMS keys.

    Args:
        tables: patterns of the tables.
        master_key: only keys under this master key, as tables name it.
        older_than: only tables with a key in force that is older.
        to_master_key: the key in the KMS that keys move to; by default the one with the master key's id.
        to_kms: the KMS that keys move to; by default the one where they are.
        rotate: whether keys are rotated; by default if they do not move.
        threads: how many tables are re-keyed at the same time.

    Raises:
        RequestInvalid: the arguments contradict each other, or something is not a pattern.
    """

    tables: str | Sequence[str] = _EVERY_TABLE
    master_key: str | None = None
    older_than: timedelta | None = None
    to_master_key: str | None = None
    to_kms: str | None = None
    rotate: bool | None = None
    threads: int = 4
    at_a_time: int = 64
    name: str = "rekey"
    rules: Sequence[Rule] = RULES
    changes: bool = True
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _assigned: dict[str, LakewardenError | None] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._patterns = Patterns(self.tables)
        self._moves = not (self.to_master_key is None and self.to_kms is None)
        self._rotates = not self._moves if self.rotate is None else self.rotate
        if self.to_master_key is not None and self.master_key is None:
            raise _contradiction("to_master_key needs master_key: the master key whose keys move.")
        if not self._moves and not self._rotates:
            raise _contradiction("There is nothing to do: keys are neither rotated nor moved.")
        if self._moves and self.older_than is not None:
            raise _contradiction("older_than chooses keys to rotate. A move takes all keys of a master key.")

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Return what makes two runs the same."""
        return {
            "tables": self.tables if isinstance(self.tables, str) else list(self.tables),
            "master-key": self.master_key,
            "older-than-s": None if self.older_than is None else self.older_than.total_seconds(),
            "to-master-key": self.to_master_key,
            "to-kms": self.to_kms,
            "rotate": self._rotates,
        }

    def plan(self, lake: Lake) -> Iterator[Item]:
        """Plan one item for each table, and then one for each master key that keys move from.

        A table keeps its item when it is renamed: the key is its UUID.

        Raises:
            LakewardenError: the keys cannot be listed.
        """
        keys = Keys(lake, self.sleep)
        targets = self._targets(keys.assigned()) if self._moves else {}
        by_table: dict[str, list[Key]] = {}
        for each in keys.find(master_key_id=self.master_key):
            if each.table is not None and each.table_uuid is not None and self._patterns.match(each.table):
                by_table.setdefault(each.table_uuid, []).append(each)
        chosen = [found for found in by_table.values() if self._is_due(found)]
        newest_ms = max((each.created_ms for found in chosen for each in found), default=0)
        for found in sorted(chosen, key=lambda found: str(found[0].table)):
            yield self._item(found, targets, newest_ms)
        for name, target in sorted(targets.items()):
            yield Item(f"{_MASTER}{name}", "", payload={"target": list(target)})

    def _targets(self, assigned: Mapping[str, KmsKey]) -> dict[str, KmsKey]:
        """Return where the keys of each master key move to."""
        if self.master_key is None:
            return {name: KmsKey(str(self.to_kms), name) for name in assigned}
        kms = self.to_kms or (assigned[self.master_key].kms if self.master_key in assigned else None)
        if kms is None:
            raise RequestInvalid(
                f"No key is under the master key {self.master_key!r:.80}.",
                rule="master-key",
                hint="Name another one, or the KMS, too. `lakewarden key kms-keys` lists those in use.",
            )
        return {self.master_key: KmsKey(kms, self.to_master_key or self.master_key)}

    def _is_due(self, keys: Sequence[Key]) -> bool:
        in_force = [each for each in keys if each.in_force]
        if self._moves or self.older_than is None:
            return self._moves or bool(in_force)
        limit_ms = (self.now() - self.older_than).timestamp() * 1000
        return any(each.created_ms < limit_ms for each in in_force)

    def _item(self, keys: Sequence[Key], targets: Mapping[str, KmsKey], newest_ms: int) -> Item:
        masters = {each.master_key_id for each in keys}
        payload = {
            "uuid": keys[0].table_uuid,
            "newest-ms": newest_ms,
            "targets": {name: list(targets[name]) for name in sorted(masters & targets.keys())},
        }
        return Item(str(keys[0].table_uuid), str(keys[0].table), payload=payload)

    def run(self, lake: Lake, group: Sequence[Item], steps: Steps) -> Iterator[Outcome]:
        """Re-key tables; the proofs of a group come after its tables."""
        keys = Keys(lake, self.sleep)
        tables = [item for item in group if not item.key.startswith(_MASTER)]
        work = partial(self._table, keys, steps, self._older_ms(steps, tables))
        yield from in_threads(lake.spark, tables, work, self.threads)
        for item in group:
            if item.key.startswith(_MASTER):
                yield self._master_key(keys, steps, item)

    def _older_ms(self, steps: Steps, tables: Sequence[Item]) -> int | None:
        """Return when the latest key was made before the run rotated any, by the clock of the catalog."""
        if not self._rotates or not tables:
            return None
        noted = steps.of(_RUN).get(_BEGUN)
        if noted is None:
            noted = {"newest-ms": tables[0].payload["newest-ms"]}
            steps.record(_RUN, _BEGUN, noted)
        return int(noted["newest-ms"])

    def _table(self, keys: Keys, steps: Steps, older_ms: int | None, item: Item) -> Outcome:
        targets = {name: KmsKey(*each) for name, each in item.payload["targets"].items()}
        try:
            for name, target in targets.items():
                self._assign(keys, steps, name, target)
        except LakewardenError as error:
            return outcome_of(item, error)
        return TableRekey(keys, item, targets, older_ms).run()

    def _assign(self, keys: Keys, steps: Steps, name: str, target: KmsKey) -> None:
        """Let new keys of a master key be made under the target, once a run.

        Raises:
            LakewardenError: the target cannot be used; also for each later table.
        """
        with self._lock:
            if name not in self._assigned:
                try:
                    self._assign_first(keys, steps, name, target)
                except LakewardenError as error:
                    if concerns_all(error):
                        raise
                    self._assigned[name] = error
                else:
                    self._assigned[name] = None
            refused = self._assigned[name]
        if refused is not None:
            raise refused

    def _assign_first(self, keys: Keys, steps: Steps, name: str, target: KmsKey) -> None:
        """Note the KMS keys before, for the proof, and assign the target."""
        now, item = keys.assigned().get(name), _of(name, target)
        before = {each.at for each in keys.find(master_key_id=name)} | ({now} if now else set())
        noted = {KmsKey(*each) for each in steps.of(item).get(_BEFORE, {}).get("kms-keys", ())}
        if found := before - {target} - noted:
            steps.record(item, _BEFORE, {"kms-keys": sorted(map(list, noted | found))})
        if now != target:
            keys.assign(name, target)

    def _master_key(self, keys: Keys, steps: Steps, item: Item) -> Outcome:
        """Move what no table of the run has, and prove that nothing needs the KMS keys before."""
        name, target = item.key.removeprefix(_MASTER), KmsKey(*item.payload["target"])
        try:
            self._assign(keys, steps, name, target)
            moved, failed = keys.move(name, None) if self._takes_all else (0, [])
            before = [KmsKey(*each) for each in steps.of(item).get(_BEFORE, {}).get("kms-keys", ())]
            needs = [_needed(key, each) for key in before for each in keys.needs(key)]
            now = keys.assigned().get(name)
        except LakewardenError as error:
            return outcome_of(item, error)
        findings = [NOT_MOVED.found("", each) for each in failed[:_SHOWN]] + needs[:_SHOWN]
        counts = {"moved-keys": moved, "needs": len(needs)}
        if now != target:
            reason = f"The master key {name} was assigned to {now} meanwhile, and not to {target}."
            return Outcome.of(item, Status.LEFT, reason, tuple(findings), counts)
        if needs and self._takes_all:
            reason = f"{len(needs)} things still need {' or '.join(map(str, before))}. {needs[0].message}"
            return Outcome.of(item, Status.LEFT, reason, tuple(findings), counts)
        return Outcome.of(item, Status.DONE, None, tuple(findings), counts)

    @property
    def _takes_all(self) -> bool:
        """Whether the run is about all tables, so that nothing can need the KMS keys before."""
        patterns = [self.tables] if isinstance(self.tables, str) else list(self.tables)
        return patterns == [_EVERY_TABLE]


def _of(name: str, target: KmsKey) -> Item:
    return Item(f"{_MASTER}{name}", "", payload={"target": list(target)})


def _needed(key: KmsKey, need: Mapping[str, Any]) -> Finding:
    about = f"{need['by'].replace('-', ' ')} {need['name']}"
    keys = f" for {need['keys']} keys" if need["keys"] else ""
    table = need["name"] if need["by"] == "table" else ""
    return STILL_NEEDED.found(table, f"The {about} needs the key {key}{keys}.")


def _contradiction(message: str) -> RequestInvalid:
    return RequestInvalid(message, rule="rekey", hint="See docs/pipelines.md, section Re-key.")
