"""Reads and authenticates the keystore file (JSON) of the local KMS.

Rules:
- Every member is known and of its type, or the file is refused.
- An HMAC-SHA256 under a key derived from the root key covers the whole document: a user who can write the
  file but does not have the root key can neither enable a disabled master key nor exchange one for another.
  (An older version of the whole file can be put back; keep its directory private.)
- Each version of a master key is wrapped by AES-256-GCM, bound to its id and version.
- A master key that was rotated has the member ``older``: its earlier versions from version 1 on. One that
  never was has no such member, as in the keystores of the first release.
"""

from __future__ import annotations

import hmac
import json
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from catalog.crypto.secret import SecretBytes
from catalog.kms.root_key import KeystorePart, RootDescription, subkey
from policy import strict_json
from policy.encryption.governed_values import is_master_key_id
from policy.errors import InvalidInput, KmsUnavailable

MAX_KEYSTORE_BYTES: Final = 4 * 1024 * 1024
MASTER_KEY_LENGTH: Final = 32


def _require_id(value: str) -> str:
    if not is_master_key_id(value):
        raise ValueError("it is not a valid master key id")
    return value


#: A version of a master key under the root key: nonce | ciphertext | tag, 60 bytes in base64.
_Wrapped = Annotated[str, Field(pattern="^[A-Za-z0-9+/]{80}$")]


class MasterKey(KeystorePart):
    """A master key in the keystore.

    Attributes:
        id: its id.
        version: its newest version.
        enabled: whether it can be used.
        wrapped: its newest version under the root key.
        older: its earlier versions, from version 1 on.
    """

    id: Annotated[str, AfterValidator(_require_id)]
    version: int
    enabled: bool
    wrapped: _Wrapped = Field(repr=False)
    older: list[_Wrapped] = Field(default=[], min_length=1, repr=False)

    @model_validator(mode="after")
    def _count_versions(self) -> Self:
        if self.version != len(self.older) + 1:
            raise ValueError("the number of versions of a master key differs from its version number")
        return self


class Keystore(KeystorePart):
    """The contents of a keystore.

    Attributes:
        format, version: of the file.
        root: where the root key comes from.
        master_keys: the master keys in order of creation.
        mac: the HMAC of everything else in hexadecimal.
    """

    format: Literal["lakewarden-keystore"]
    version: int = Field(ge=1, le=1)
    root: RootDescription
    master_keys: list[MasterKey]
    mac: str = Field(pattern="^[0-9a-f]{64}$", repr=False)

    @model_validator(mode="after")
    def _require_unique_ids(self) -> Self:
        if len({key.id for key in self.master_keys}) != len(self.master_keys):
            raise ValueError("a master key id appears twice")
        return self

    def find(self, master_key_id: str) -> MasterKey | None:
        """Return a master key, or None."""
        return next((key for key in self.master_keys if key.id == master_key_id), None)

    def verified(self, root_key: SecretBytes) -> Self:
        """Return the keystore if its HMAC matches this root key.

        Raises:
            KmsUnavailable: another root key, or the file was changed.
        """
        if not hmac.compare_digest(self.mac, self._mac(root_key)):
            raise KmsUnavailable(
                "The keystore was changed, or the passphrase or key file does not belong to it.",
                rule="keystore-authentic",
                hint="Give the passphrase or key file that the keystore was created with, or restore "
                "it from a backup.",
            )
        return self

    def encode(self, root_key: SecretBytes) -> bytes:
        """Return the bytes of the keystore file, with its HMAC under a root key."""
        document = {**self._members(), "mac": self._mac(root_key)}
        return json.dumps(document, indent=1).encode("ascii") + b"\n"

    def _mac(self, root_key: SecretBytes) -> str:
        text = json.dumps(self._members(), sort_keys=True, separators=(",", ":"))
        return hmac.digest(subkey(root_key, "mac").reveal(), text.encode("ascii"), "sha256").hex()

    def _members(self) -> dict[str, object]:
        return self.model_dump(exclude={"mac"}, exclude_defaults=True)


def empty(root: RootDescription) -> Keystore:
    """Return a keystore without master keys."""
    return Keystore(format="lakewarden-keystore", version=1, root=root, master_keys=[], mac="0" * 64)


def decode_unverified(data: bytes) -> Keystore:
    """Parse the keystore file; the content is untrusted until `Keystore.verified`.

    Raises:
        KmsUnavailable: the bytes are not exactly a keystore.
    """
    try:
        return Keystore.model_validate(strict_json.parse(data, what="The keystore"))
    except InvalidInput as failure:
        problem = failure.message
    except ValidationError as failure:
        first = failure.errors(include_url=False, include_context=False, include_input=False)[0]
        problem = f"In {'.'.join(map(str, first['loc'])) or 'the document'}: {first['msg']}."
    raise KmsUnavailable(
        f"The keystore is malformed. {problem}",
        rule="keystore-format",
        hint="Restore the keystore from a backup.",
    )
