"""Asks the catalog about the keys of tables, and for their rotation and moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from catalog.base.identifiers import TableName
from policy.errors import LakewardenError
from spark_ext.pipelines.failures import concerns_all, passes
from spark_ext.pipelines.lake import Lake, on_table

T = TypeVar("T")

#: Seconds to wait before a refusal of a KMS, or of storage, is tried again.
PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 15.0)
_PAGE: Final = 1000


class KmsKey(NamedTuple):
    """A master key in a KMS, as the catalog names them."""

    kms: str
    key_id: str

    def __str__(self) -> str:
        return f"{self.key_id} in the KMS {self.kms}"


@dataclass(frozen=True, slots=True)
class Key:
    """A version of a key, without its bytes.

    Attributes:
        id: the key's id.
        version: the version.
        table: dotted name of its table; None for a dropped table, and for a key of the KMS endpoint.
        table_uuid: UUID of its table; None for a key of the KMS endpoint.
        master_key_id: the master key, as tables name it.
        at: the KMS key that wraps it.
        in_force: whether new files use it.
        created_ms: when it was made.
    """

    id: str
    version: int
    table: str | None
    table_uuid: str | None
    master_key_id: str
    at: KmsKey
    in_force: bool
    created_ms: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Key:
        """Convert the catalog's answer."""
        return cls(
            row["id"],
            row["version"],
            row["table"],
            row["table-uuid"],
            row["master-key-id"],
            KmsKey(row["kms"], row["kms-key-id"]),
            row["in-force"],
            row["created-ms"],
        )


class Keys:
    """The keys of a lake.

    While a part that the catalog needs does not answer, such as a KMS that refuses too many requests, a
    request waits and is tried again. Once that was in vain, the next requests do not wait until one of them
    succeeds.

    Args:
        lake: the lake.
        sleep: waits for a time in seconds.
    """

    def __init__(self, lake: Lake, sleep: Callable[[float], None] = time.sleep) -> None:
        self._lake = lake
        self._sleep = sleep
        self._in_vain = False

    def assigned(self) -> dict[str, KmsKey]:
        """Return the KMS key that each master key id in use stands for."""
        found = self._ask("GET", ("master-keys", "kms-keys"))["master-keys"]
        return {each["id"]: KmsKey(each["kms"], each["kms-key-id"]) for each in found}

    def assign(self, master_key_id: str, key: KmsKey) -> None:
        """Let a master key id stand for another KMS key."""
        body = {"id": master_key_id, "kms": key.kms, "kms-key-id": key.key_id}
        self._ask("POST", ("master-keys", "assign"), body)

    def find(self, **chosen: object) -> Iterator[Key]:
        """List keys of the whole catalog.

        Args:
            chosen: the filters of the operation, with underscores; what is None does not matter.
        """
        query = {name.replace("_", "-"): value for name, value in chosen.items() if value is not None}
        token: str | None = None
        while True:
            page = {"limit": _PAGE, **query, **({} if token is None else {"page-token": token})}
            answer = self._ask("GET", ("master-keys", "keys"), query=page)
            yield from map(Key.of, answer["keys"])
            token = answer["next-page-token"]
            if token is None:
                return

    def move(self, master_key_id: str, table_uuid: str | None) -> tuple[int, list[str]]:
        """Move keys to the KMS key that their master key id stands for, until none can be moved any more.

        Returns:
            how many were moved, and why others were not.
        """
        moved = 0
        while True:
            passed, failed = self._pass(master_key_id, table_uuid)
            moved += passed
            if not passed:
                return moved, failed

    def _pass(self, master_key_id: str, table_uuid: str | None) -> tuple[int, list[str]]:
        moved, failed = 0, list[str]()
        token: str | None = None
        while True:
            body = {"id": master_key_id, "table-uuid": table_uuid, "page-token": token}
            given = {name: value for name, value in body.items() if value is not None}
            answer = self._ask("POST", ("master-keys", "move"), given)
            moved += answer["moved"]
            failed += (
                f"Key {each['id']} version {each['version']}: {each['reason']}" for each in answer["failed"]
            )
            token = answer["next-page-token"]
            if token is None:
                return moved, failed

    def needs(self, key: KmsKey) -> list[Mapping[str, Any]]:
        """Return what still needs a KMS key."""
        query = {"kms": key.kms, "kms-key-id": key.key_id}
        found: list[Mapping[str, Any]] = self._ask("GET", ("master-keys", "needs"), query=query)["needs"]
        return found

    def rotate(self, table: TableName) -> dict[str, Any]:
        """Rotate a table's keys."""
        return self._ask("POST", on_table(table, "keys", "rotate"), {})

    def rewrap(self, table: TableName) -> list[Mapping[str, Any]]:
        """Rewrap a table's data keys; what was done, by branch."""
        found: list[Mapping[str, Any]] = self._ask("POST", on_table(table, "keys", "rewrap"), {})["branches"]
        return found

    def uses(self, table: TableName, key_id: str) -> list[Mapping[str, Any]]:
        """Return the versions of a table's key, with the snapshots that need each."""
        found: list[Mapping[str, Any]] = self._ask("GET", on_table(table, "keys", key_id))["keys"]
        return found

    def _ask(
        self,
        method: str,
        path: tuple[str, ...],
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        """Ask, and wait while a part that the catalog needs does not answer.

        Raises:
            LakewardenError: the catalog's refusal, or the last failure.
        """
        for pause in () if self._in_vain else PAUSES_S:
            try:
                return self._lake.admin(method, path, body, query)
            except LakewardenError as error:
                if concerns_all(error) or not passes(error):
                    raise
                self._sleep(pause)
        try:
            answer = self._lake.admin(method, path, body, query)
        except LakewardenError as error:
            self._in_vain = passes(error)
            raise
        self._in_vain = False
        return answer
