"""Encryption mechanisms: create the keys of a new file, and open the keys of a file.

Rules:
- `envelope` wraps each data key by a PEK into key metadata. `plaintext` has neither keys nor metadata, and
  refuses a file with metadata, because it can belong to an encrypted table.
- A mechanism never decides whether a file can use it; `policy.encryption.epochs` does.
- More mechanisms are loaded by entry point, see `registry`.

Source: docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from catalog.crypto.secret import SecretBytes
from catalog.envelope.data_keys import NewKey, open_dek, wrap_deks
from catalog.envelope.file_ids import FileIdentity, parquet_aad_prefix
from catalog.envelope.key_metadata import KeyMetadata
from catalog.envelope.peks import Pek
from policy.encryption.epochs import PekRef
from policy.encryption.specification import Algorithm, EncryptionSpec, Footer
from policy.errors import DecryptionRefused, EncryptionPolicyViolation

PekLookup = Callable[[PekRef], Pek]


class OpenedKey(NamedTuple):
    """A plaintext key of a file.

    Attributes:
        key_name: the master key id.
        field_ids: the columns under the key; empty for the footer key, or the key of the whole file.
        dek: the data key.
    """

    key_name: str
    field_ids: tuple[int, ...]
    dek: SecretBytes


class Crypto(NamedTuple):
    """The data that a reader needs to decrypt one file.

    Attributes:
        algorithm: the algorithm of the file.
        footer: whether its footer is encrypted.
        keys: the footer key first.
        aad_prefix: the Parquet AAD prefix to supply.
    """

    algorithm: Algorithm
    footer: Footer
    keys: tuple[OpenedKey, ...]
    aad_prefix: bytes


@runtime_checkable
class EncryptionManager(Protocol):
    """An encryption mechanism. An implementation must be stateless and thread-safe."""

    @property
    def identifier(self) -> str:
        """Return the value of `encryption.mechanism` that selects this mechanism."""

    def wrap_new(self, spec: EncryptionSpec, file: FileIdentity, keys: Sequence[NewKey]) -> bytes | None:
        """Return the key metadata of a new file; None if the mechanism has none.

        Raises:
            EncryptionPolicyViolation: the keys do not comply with the table's specification.
        """

    def open(self, key_metadata: bytes | None, file: FileIdentity, peks: PekLookup) -> Crypto | None:
        """Open the keys of a file; None if it needs none.

        Raises:
            DecryptionRefused: the key metadata is missing, malformed, unexpected or does not open.
            KeyNotUsable, KmsUnavailable: as `peks` raises.
        """


class EnvelopeManager:
    """Data keys wrapped by PEKs, in the format of docs/key-metadata.md."""

    identifier = "envelope"

    def wrap_new(self, spec: EncryptionSpec, file: FileIdentity, keys: Sequence[NewKey]) -> bytes | None:
        """See `EncryptionManager.wrap_new`."""
        if any(len(key.dek) != spec.data_key_length for key in keys):
            raise EncryptionPolicyViolation(
                f"A data key has the wrong length: the table requires {spec.data_key_length} bytes.",
                rule="data-key-length",
                hint="Create data keys of encryption.data-key-length bytes.",
            )
        return wrap_deks(spec.algorithm, spec.footer, file, keys).to_bytes()

    def open(self, key_metadata: bytes | None, file: FileIdentity, peks: PekLookup) -> Crypto | None:
        """See `EncryptionManager.open`."""
        if key_metadata is None:
            raise DecryptionRefused("The file has no key metadata.", rule="key-metadata")
        metadata = KeyMetadata.parse(key_metadata)
        keys = tuple(
            OpenedKey(
                entry.bound.pek.master_key_id,
                entry.bound.field_ids,
                open_dek(metadata, entry, file, peks(entry.bound.pek)),
            )
            for entry in metadata.entries
        )
        return Crypto(metadata.algorithm, metadata.footer, keys, parquet_aad_prefix(file))


class PlaintextManager:
    """The plaintext mechanism: no encryption."""

    identifier = "plaintext"

    def wrap_new(self, spec: EncryptionSpec, file: FileIdentity, keys: Sequence[NewKey]) -> bytes | None:
        """See `EncryptionManager.wrap_new`."""
        if keys or spec.encrypts:
            raise EncryptionPolicyViolation(
                "A plaintext file cannot have keys.",
                rule="plaintext-required",
                hint="Use the encryption mechanism of the table.",
            )
        return None

    def open(self, key_metadata: bytes | None, file: FileIdentity, peks: PekLookup) -> Crypto | None:
        """See `EncryptionManager.open`."""
        if key_metadata is not None:
            raise DecryptionRefused(
                "The file has key metadata, but its table is not encrypted.", rule="plaintext-required"
            )
        return None
