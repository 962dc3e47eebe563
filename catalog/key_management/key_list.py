"""Lists keys of the whole catalog: by master key, KMS, table or age, in pages."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.state import stored_keys, table_state
from catalog.state.stored_keys import KeyFilter, StoredKey
from policy.encryption.epochs import PekRef


@dataclass(frozen=True, slots=True)
class ListedKey:
    """A key of the catalog.

    Attributes:
        stored: the key and its owner.
        in_force: whether new files of its table use it.
    """

    stored: StoredKey
    in_force: bool


class KeyList:
    """Lists keys of a catalog; callers check permissions first.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def page(self, chosen: KeyFilter, after: PekRef | None, limit: int) -> list[ListedKey]:
        """Return a page of keys, ordered by id and version.

        Args:
            chosen: which keys.
            after: the last key of the page before.
            limit: maximum number of keys.
        """
        with read(self._context.engine) as connection:
            found = stored_keys.list_keys(connection, self._context.catalog, chosen, after, limit)
            in_force = set[PekRef]()
            for table_id in {each.pek.table_id for each in found if each.table is not None}:
                governed = table_state.current_governed(connection, table_id)
                in_force.update(() if governed is None else governed.epochs.current.peks)
        return [ListedKey(each, each.pek.ref in in_force) for each in found]
