"""Parses a begun write: where its files go, and how they have to be encrypted.

A write that asks for something unknown here is refused: what is not understood cannot be obeyed.

Source: docs/plan-format.md, "Begun write"; tests/vectors/plans.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self
from uuid import UUID

from catalog.client.errors import not_the_catalog
from catalog.client.footers import FileKeys
from catalog.client.parquet_key_tools import StockKeys
from catalog.client.plan import are_apart, transport_key
from catalog.crypto.secret import SecretBytes
from catalog.envelope.file_ids import FileIdentity, parquet_aad_prefix
from catalog.envelope.transport import KeyLabel, Purpose, TransportKey
from policy.encryption.specification import Algorithm, Footer
from policy.errors import LocationInvalid, NotSupportedYet
from policy.location.location import Location

_KNOWN: Final = frozenset(
    {
        "algorithm", "data-key-length", "footer", "footer-key-name", "column-keys", "digest", "masks",
        "stock-readers",
    }
)  # fmt: skip
_KEY_LENGTHS: Final = (16, 24, 32)


@dataclass(frozen=True, slots=True)
class Encryption:
    """How the files of a write are encrypted.

    Attributes:
        algorithm: Parquet's.
        footer: encrypted or signed.
        label: the key of footers, or of whole files.
        columns: the keys of groups of columns; where there are some, other columns are in plaintext.
        data_key_length: bytes.
        digest: whether the commit tells the SHA-256 of each file.
        stock: the key material that files carry for standard readers, or None.
        transport: the write's key.
    """

    algorithm: Algorithm
    footer: Footer
    label: KeyLabel
    columns: tuple[KeyLabel, ...]
    data_key_length: int
    digest: bool
    stock: StockKeys | None = field(repr=False)
    transport: TransportKey = field(repr=False)

    def keys(self, fresh: Mapping[KeyLabel, SecretBytes], file: FileIdentity) -> FileKeys:
        """The keys of one file.

        Args:
            fresh: its data keys.
            file: which it is.
        """
        own = {field_id: fresh[each] for each in self.columns for field_id in each.field_ids}
        return FileKeys(
            algorithm=self.algorithm,
            footer_form=self.footer,
            footer=fresh[self.label],
            columns=own if self.columns else None,
            aad_prefix=parquet_aad_prefix(file),
        )


@dataclass(frozen=True, slots=True)
class BegunWrite:
    """A write that the catalog has begun.

    Attributes:
        id: names the write at its commit.
        table_uuid: the table's.
        directory: below which all files go.
        encryption: None for plaintext.
    """

    id: str
    table_uuid: UUID
    directory: Location
    encryption: Encryption | None

    @classmethod
    def of(cls, answer: Mapping[str, Any], table: str) -> Self:
        """Out of the catalog's answer.

        Raises:
            NotSupportedYet: files that PyArrow cannot write.
            LocationInvalid: the location is not canonical.
            CatalogUnavailable: what answers is not a catalog of this version.
        """
        try:
            directory = Location.parse(answer["location"])
            if directory.canonical != answer["location"]:
                raise LocationInvalid(
                    "The location of the write is not canonical.",
                    table=table,
                    rule="location-invalid",
                    hint="Install the client of the catalog's release.",
                )
            uuid, said = UUID(answer["table-uuid"]), answer["encryption"]
            encryption = None if said is None else _encryption(said, uuid, answer["transport-key"], table)
            return cls(answer["write-id"], uuid, directory, encryption)
        except (KeyError, TypeError, ValueError) as error:
            raise not_the_catalog("not a begun write") from error


def _encryption(said: Mapping[str, Any], uuid: UUID, key: Mapping[str, str], table: str) -> Encryption:
    columns = [KeyLabel(each["key-name"], tuple(each["field-ids"])) for each in said["column-keys"]]
    unknown = ", ".join(sorted(said.keys() - _KNOWN))
    refused = (
        (unknown, bool(unknown)),
        (f"the algorithm {said['algorithm']}", said["algorithm"] not in list(Algorithm)),
        (f"data keys of {said['data-key-length']} bytes", said["data-key-length"] not in _KEY_LENGTHS),
        ("column keys for the same column, or for none", not are_apart(columns)),
        (f"the footer {said['footer']}", said["footer"] not in list(Footer)),
    )
    for what, found in refused:
        if found:
            raise NotSupportedYet(
                f"Files with {what} cannot be written without Spark.",
                table=table,
                rule="write-encryption",
                hint="Write to the table with Spark.",
            )
    transport, stock = transport_key(key, Purpose.WRITE), said["stock-readers"]
    return Encryption(
        algorithm=Algorithm(said["algorithm"]),
        footer=Footer(said["footer"]),
        label=KeyLabel(said["footer-key-name"]),
        columns=tuple(columns),
        data_key_length=said["data-key-length"],
        digest=said["digest"],
        stock=StockKeys(stock["keys"], uuid, transport) if stock else None,
        transport=transport,
    )
