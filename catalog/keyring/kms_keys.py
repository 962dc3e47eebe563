"""Creates keys under the KMS keys that master key ids stand for."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Engine

from catalog.db.engine import read
from catalog.envelope.peks import PekRecord, create_pek
from catalog.kms.clients import KmsClients, KmsKey
from catalog.state import master_keys


class KmsKeys:
    """The KMS keys of a catalog's master key ids.

    Args:
        engine: the catalog's database.
        catalog: the catalog's name.
        clients: its KMSs.
    """

    def __init__(self, engine: Engine, catalog: str, clients: KmsClients) -> None:
        self.engine = engine
        self.catalog = catalog
        self.clients = clients

    def of(self, master_key_id: str) -> KmsKey:
        """Return the KMS key that a master key id stands for.

        By default, that is the key of that id in the main KMS.
        """
        with read(self.engine) as connection:
            found = master_keys.assigned(connection, self.catalog, master_key_id)
        return found or KmsKey(self.clients.main.identifier, master_key_id)

    def create(
        self,
        master_key_id: str,
        *,
        table_id: str,
        table_uuid: UUID,
        pek_id: UUID | None = None,
        version: int = 1,
    ) -> PekRecord:
        """Create a PEK; see `create_pek`.

        Raises:
            KeyNotUsable: the master key, or its KMS, cannot be used.
            KmsUnavailable: the KMS does not answer.
        """
        key = self.of(master_key_id)
        return create_pek(
            self.clients.named(key.kms),
            catalog=self.catalog,
            table_id=table_id,
            table_uuid=table_uuid,
            master_key_id=master_key_id,
            kms_key_id=key.key_id,
            pek_id=pek_id,
            version=version,
        )
