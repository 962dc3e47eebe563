"""Reads and authenticates the keystore file (JSON) of the local KMS.

Rules:
- Every member is known and of its type, or the file is refused.
- An HMAC-SHA256 under a key derived from the root key covers the whole document: whoever can write the file
  but does not have the root key can neither enable a disabled master key nor exchange one for another. (An
  older version of the whole file can be put back; keep its directory private.)
- Each version of a master key is wrapped by AES-256-GCM, bound to its id and version.
- A master key that was rotated has the member ``older``: its earlier versions from version 1 on. One that
  never was has no such member, as in the keystores of the first release.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Final

from catalog.crypto.aead import OVERHEAD
from catalog.crypto.secret import SecretBytes
from catalog.kms.root_key import SALT_LENGTH, SCRYPT_LOG2_N_RANGE, RootDescription, subkey
from policy import strict_json
from policy.encryption.governed_values import is_master_key_id
from policy.errors import InvalidInput, KmsUnavailable

FORMAT: Final = "lakewarden-keystore"
VERSION: Final = 1
MAX_KEYSTORE_BYTES: Final = 4 * 1024 * 1024
MASTER_KEY_LENGTH: Final = 32


@dataclass(frozen=True, slots=True)
class MasterKey:
    """A master key in the keystore.

    Attributes:
        id: its id.
        enabled: whether it may be used.
        versions: its versions under the root key from version 1 on, each nonce | ciphertext | tag.
    """

    id: str
    enabled: bool
    versions: tuple[bytes, ...]

    @property
    def version(self) -> int:
        """The newest version."""
        return len(self.versions)


@dataclass(frozen=True, slots=True)
class Keystore:
    """The contents of a keystore.

    Attributes:
        root: where the root key comes from.
        master_keys: the master keys in order of creation.
    """

    root: RootDescription
    master_keys: tuple[MasterKey, ...]


@dataclass(frozen=True, slots=True)
class Unverified:
    """A well-formed keystore whose HMAC is not verified yet."""

    keystore: Keystore
    mac: bytes

    def verify(self, root_key: SecretBytes) -> Keystore:
        """Return the keystore if its HMAC matches this root key.

        Raises:
            KmsUnavailable: another root key, or the file was changed.
        """
        if not hmac.compare_digest(self.mac, _mac(_document(self.keystore), root_key)):
            raise KmsUnavailable(
                "The keystore was changed, or the passphrase or key file does not belong to it.",
                rule="keystore-authentic",
                hint="Give the passphrase or key file that the keystore was created with, or restore "
                "it from a backup.",
            )
        return self.keystore


def encode(keystore: Keystore, root_key: SecretBytes) -> bytes:
    """The bytes of the keystore file."""
    document = _document(keystore)
    return json.dumps({**document, "mac": _mac(document, root_key).hex()}, indent=1).encode("ascii") + b"\n"


def decode(data: bytes) -> Unverified:
    """Parse the keystore file; the content is untrusted until `Unverified.verify`.

    Raises:
        KmsUnavailable: the bytes are not exactly a keystore.
    """
    try:
        document = strict_json.parse(data, what="The keystore")
    except InvalidInput as failure:
        raise _malformed(failure.message) from failure
    members = _members(document, "format", "version", "root", "master_keys", "mac")
    if members["format"] != FORMAT or members["version"] != VERSION or isinstance(members["version"], bool):
        raise _malformed("Its format or version is not supported.")
    keystore = Keystore(_root(members["root"]), _master_keys(members["master_keys"]))
    return Unverified(keystore, _hex(members["mac"], hashlib.sha256().digest_size))


def _document(keystore: Keystore) -> dict[str, object]:
    root = keystore.root
    parameters = {"salt": root.salt.hex(), "log2_n": root.log2_n} if root.kind == "passphrase" else {}
    return {
        "format": FORMAT,
        "version": VERSION,
        "root": {"kind": root.kind, **parameters},
        "master_keys": [_key_document(key) for key in keystore.master_keys],
    }


def _key_document(key: MasterKey) -> dict[str, object]:
    *older, newest = (base64.b64encode(wrapped).decode("ascii") for wrapped in key.versions)
    document = {"id": key.id, "version": key.version, "enabled": key.enabled, "wrapped": newest}
    return {**document, "older": older} if older else document


def _mac(document: dict[str, object], root_key: SecretBytes) -> bytes:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hmac.digest(subkey(root_key, "mac").reveal(), text.encode("ascii"), "sha256")


def _root(value: object) -> RootDescription:
    if isinstance(value, dict) and value.get("kind") == "key-file":
        _members(value, "kind")
        return RootDescription("key-file")
    members = _members(value, "kind", "salt", "log2_n")
    if members["kind"] != "passphrase":
        raise _malformed("The kind of its root key is unknown.")
    log2_n = _integer(members["log2_n"])
    if log2_n not in SCRYPT_LOG2_N_RANGE:
        raise _malformed("The scrypt cost of its passphrase is out of range.")
    return RootDescription("passphrase", _hex(members["salt"], SALT_LENGTH), log2_n)


def _master_keys(value: object) -> tuple[MasterKey, ...]:
    if not isinstance(value, list):
        raise _malformed("Its master keys are not a list.")
    keys = tuple(_master_key(item) for item in value)
    if len({key.id for key in keys}) != len(keys):
        raise _malformed("A master key id appears twice.")
    return keys


def _master_key(value: object) -> MasterKey:
    rotated = ("older",) if isinstance(value, dict) and "older" in value else ()
    members = _members(value, "id", "version", "enabled", "wrapped", *rotated)
    key_id, enabled, older = members["id"], members["enabled"], members.get("older", [])
    if not isinstance(key_id, str) or not is_master_key_id(key_id) or not isinstance(enabled, bool):
        raise _malformed("A master key is malformed.")
    if not isinstance(older, list) or (rotated and not older):
        raise _malformed("The earlier versions of a master key are not a non-empty list.")
    versions = tuple(_base64(each, MASTER_KEY_LENGTH + OVERHEAD) for each in (*older, members["wrapped"]))
    if _integer(members["version"]) != len(versions):
        raise _malformed("The number of versions of a master key differs from its version number.")
    return MasterKey(key_id, enabled, versions)


def _members(value: object, *names: str) -> dict[str, object]:
    if not isinstance(value, dict) or set(value) != set(names):
        raise _malformed(f"An object must have exactly the members {', '.join(names)}.")
    return value


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _malformed("A number is not an integer.")
    return value


def _hex(value: object, length: int) -> bytes:
    try:
        data = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError as failure:
        raise _malformed("A hexadecimal value is malformed.") from failure
    if len(data) != length or data.hex() != value:
        raise _malformed("A hexadecimal value is malformed.")
    return data


def _base64(value: object, length: int) -> bytes:
    try:
        data = base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except binascii.Error as failure:
        raise _malformed("A base64 value is malformed.") from failure
    if len(data) != length:
        raise _malformed("A wrapped key has the wrong length.")
    return data


def _malformed(message: str) -> KmsUnavailable:
    return KmsUnavailable(
        f"The keystore is malformed. {message}",
        rule="keystore-format",
        hint="Restore the keystore from a backup.",
    )
