"""Determines what still needs a KMS, or a master key in it. When nothing is left, it can be shut off.

- Keys of tables in every state but destroyed, also of dropped tables, of tables that are not created yet, and
  of the KMS endpoint. Open writes, governed versions and epochs name these keys, so that they need no count
  of their own: a write's transport key is wrapped by a PEK.
- Master key ids that stand for it: the next key would be made under it.
- Settings and encryption rules that name a master key id which would stand for it once it is used.
- A request in progress cannot add a key: it is refused when it stores one (`catalog.state.master_keys`).
- Backups of the database are not counted. They hold keys as they were wrapped at their time. Neither are
  other catalogs that use the KMS.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.kms.clients import KmsKey
from catalog.state import master_keys, stored_keys
from catalog.state.stored_keys import KeyFilter, KeyOwner
from policy.encryption_rules.names import is_literal


class NeededBy(StrEnum):
    """A kind of thing that needs a KMS key."""

    TABLE = "table"
    UNNAMED_TABLE = "unnamed-table"
    ENDPOINT_KEY = "endpoint-key"
    MASTER_KEY_ID = "master-key-id"
    SETTING = "setting"
    ENCRYPTION_RULE = "encryption-rule"


@dataclass(frozen=True, slots=True)
class KmsNeed:
    """Something that needs a KMS, or a master key in it.

    Attributes:
        by: its kind.
        name: the name of the table, key, setting or rule; of a table without a name, its UUID.
        master_key_id: the master key id because of which it does; None for a setting that names the KMS.
        keys: number of keys.
    """

    by: NeededBy
    name: str
    master_key_id: str | None
    keys: int = 0


class KmsNeeds:
    """Determines what needs a KMS.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def of(self, kms: str, kms_key_id: str | None = None) -> list[KmsNeed]:
        """Return what needs a KMS.

        Args:
            kms: what the catalog calls the KMS.
            kms_key_id: only what needs this master key in it.
        """
        chosen = KeyFilter(kms=kms, kms_key_id=kms_key_id)
        with read(self._context.engine) as connection:
            owners = stored_keys.count_by_owner(connection, self._context.catalog, chosen)
            assigned = master_keys.all_assigned(connection, self._context.catalog)
        found = [_need(owner, keys) for owner, keys in owners]
        found += [
            KmsNeed(NeededBy.MASTER_KEY_ID, name, name)
            for name, key in assigned.items()
            if _is(key, kms, kms_key_id)
        ]
        main = self._context.kms_keys.clients.main.identifier
        if main != kms:
            return found
        if kms_key_id is None:
            found.append(KmsNeed(NeededBy.SETTING, "kms", None))
        free = [each for each in self._named() if each.master_key_id not in assigned]
        return found + [each for each in free if kms_key_id in (None, each.master_key_id)]

    def _named(self) -> Iterator[KmsNeed]:
        """Yield the settings and rules that name a master key id."""
        settings = self._context.settings
        yield KmsNeed(NeededBy.SETTING, "kms.default_master_key_id", settings.kms.default_master_key_id)
        if settings.kms_endpoint.master_key_id is not None:
            yield KmsNeed(NeededBy.SETTING, "kms_endpoint.master_key_id", settings.kms_endpoint.master_key_id)
        for rule in self._context.policies.encryption().rules:
            for allowed in rule.demands.master_keys:
                for name in filter(is_literal, allowed.values):
                    yield KmsNeed(NeededBy.ENCRYPTION_RULE, rule.name, name)


def _is(key: KmsKey, kms: str, kms_key_id: str | None) -> bool:
    return key.kms == kms and kms_key_id in (None, key.key_id)


def _need(owner: KeyOwner, keys: int) -> KmsNeed:
    if owner.table is not None:
        return KmsNeed(NeededBy.TABLE, str(owner.table), owner.master_key_id, keys)
    if owner.endpoint_key is not None:
        return KmsNeed(NeededBy.ENDPOINT_KEY, owner.endpoint_key, owner.master_key_id, keys)
    return KmsNeed(NeededBy.UNNAMED_TABLE, str(owner.table_uuid), owner.master_key_id, keys)
