"""Key material in Parquet files for standard readers, in the format of Parquet's key tools.

- The data key of a file stands under a key-encryption key (KEK) of the write, and that under the table's key:
  double wrapping. Readers ask the catalog's KMS endpoint to open the KEK.
- No address of a KMS stands in a file; readers of ours look at none of this.

Source: docs/key-metadata.md, "Keys for standard Parquet readers"; parquet-java, `KeyMaterial`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from catalog.crypto.aead import Aead
from catalog.crypto.secret import SecretBytes
from catalog.envelope.parquet_key_tools import transport_kek_aad
from catalog.envelope.transport import KeyLabel, TransportKey

#: Where the KMS is, the readers have to know: what a file says of it is to be used by nobody.
_NOWHERE: Final = "lakewarden"


@dataclass(frozen=True, slots=True)
class _Kek:
    """A KEK of the write: its id, and how files carry it."""

    id: bytes
    wrapped: str
    cipher: Aead = field(repr=False)


class StockKeys:
    """The KEKs of one write.

    Args:
        answered: of each key of the files one, as the catalog answers them.
        table_uuid: the table that is written.
        transport: the write's key.

    Raises:
        DecryptionRefused: they were made for another write, table or key.
    """

    def __init__(
        self, answered: Iterable[Mapping[str, Any]], table_uuid: UUID, transport: TransportKey
    ) -> None:
        self._keks: dict[KeyLabel, _Kek] = {}
        opener = Aead(transport.key)
        for each in answered:
            label = KeyLabel(each["key-name"], tuple(each["field-ids"]))
            kek_id, sent = (base64.b64decode(each[name], validate=True) for name in ("kek-id", "kek"))
            kek = opener.open_key(sent, transport_kek_aad(transport, table_uuid, kek_id, label))
            self._keks[label] = _Kek(kek_id, each["wrapped"], Aead(kek))
            kek.wipe()

    def material(self, fresh: Mapping[KeyLabel, SecretBytes]) -> dict[int | None, bytes]:
        """The key metadata of one file, by the field id of a column; None for the footer's.

        Args:
            fresh: the file's data keys.
        """
        said: dict[int | None, bytes] = {}
        for label, dek in fresh.items():
            said |= dict.fromkeys(label.field_ids or (None,), self._of(label, dek))
        return said

    def _of(self, label: KeyLabel, dek: SecretBytes) -> bytes:
        kek = self._keks[label]
        of_footer = not label.field_ids
        where = {"kmsInstanceID": _NOWHERE, "kmsInstanceURL": _NOWHERE} if of_footer else {}
        material = {
            "keyMaterialType": "PKMT1",
            "internalStorage": True,
            "isFooterKey": of_footer,
            **where,
            "doubleWrapping": True,
            "masterKeyID": label.key_name,
            "keyEncryptionKeyID": _base64(kek.id),
            "wrappedKEK": kek.wrapped,
            "wrappedDEK": _base64(kek.cipher.seal_key(dek, kek.id)),
        }
        return json.dumps(material, separators=(",", ":")).encode()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
