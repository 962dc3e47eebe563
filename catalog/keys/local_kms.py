"""The local KMS: the embedded default, NOT FOR PRODUCTION.

It keeps master keys in a keystore file, wrapped by a root key that comes from a passphrase or from a private
key file. It lets a laptop, a test and a demonstration do all that a real KMS does, revocation included; but
the process that serves tables can read its master keys, which is what a real KMS prevents.

Rules:
- The file is read anew on every call. Another process's change, such as a disabled key, holds at once.
- Changes happen under a lock, on what the file says then, and replace the file whole.
- A wrapped key is bound to the master key's id and version and to the context.

A wrapped key is: 0x01 | master key version, u32 | length of the id, u8 | id | nonce 12 | ciphertext | tag 16,
integers big endian; its AAD is ASCII ``lakewarden/local-kms/pek/1`` NUL | all bytes before the nonce | the
context.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from catalog.keys.aead import Aead, refused, require_key_length
from catalog.keys.keystore import (
    MASTER_KEY_LENGTH,
    MAX_KEYSTORE_BYTES,
    Keystore,
    MasterKey,
    decode,
    encode,
)
from catalog.keys.kms import CreatedKey, KeyContext, KmsClient
from catalog.keys.private_files import create_private, locked, read_private, replace_private
from catalog.keys.root_key import RootDescription, RootKeySource, subkey
from catalog.keys.secret import SecretBytes
from policy.errors import DecryptionRefused, KeyNotUsable, KmsUnavailable, RequestInvalid
from policy.governed_values import is_master_key_id

_WRAPPED_FORMAT: Final = b"\x01"
_PEK_AAD: Final = b"lakewarden/local-kms/pek/1\0"
_MASTER_AAD: Final = b"lakewarden/local-kms/master/1\0"


class EmbeddedKmsWarning(UserWarning):
    """The local KMS is in use."""


def warn_embedded_default() -> None:
    """Say that the local KMS is not for production; called by whoever starts a service with it."""
    warnings.warn(
        "The local KMS is the embedded default and not for production: its master keys are in reach of this "
        "process. Configure an external KMS.",
        EmbeddedKmsWarning,
        stacklevel=2,
    )


@dataclass(frozen=True, slots=True)
class MasterKeyInfo:
    """What may be told of a master key.

    Attributes:
        id: its id.
        version: its version.
        enabled: whether it may be used.
    """

    id: str
    version: int
    enabled: bool


class LocalKms(KmsClient):
    """The embedded default KMS, not for production.

    Args:
        keystore: the keystore file; `create` makes one.
        root: where its root key comes from.
    """

    identifier = "local"

    def __init__(self, keystore: Path, root: RootKeySource) -> None:
        self._path = keystore
        self._source = root
        self._derived: tuple[RootDescription, SecretBytes] | None = None

    @classmethod
    def create(cls, keystore: Path, root: RootKeySource) -> LocalKms:
        """A new, empty keystore.

        Raises:
            KmsUnavailable: the file is there already, or cannot be written.
        """
        description = root.describe()
        create_private(keystore, encode(Keystore(description, ()), root.derive(description)))
        return cls(keystore, root)

    def create_master_key(self, master_key_id: str) -> MasterKeyInfo:
        """A new random master key of 32 bytes.

        Raises:
            RequestInvalid: the id cannot name a master key, or is taken.
            KmsUnavailable: the keystore cannot be used.
        """
        if not is_master_key_id(master_key_id):
            raise RequestInvalid(
                "That cannot be the id of a master key.",
                rule="master-key-id",
                hint="Use ASCII letters, digits and _ . / + = -, at most 255 of them.",
            )

        def add(keystore: Keystore, root_key: SecretBytes) -> Keystore:
            if _find(keystore, master_key_id) is not None:
                raise RequestInvalid(
                    f"There is a master key {master_key_id!r} already.",
                    rule="master-key-id",
                    hint="Choose another id.",
                )
            return replace(
                keystore, master_keys=(*keystore.master_keys, _new_master(master_key_id, root_key))
            )

        return _info(self._change(add), master_key_id)

    def list_master_keys(self) -> tuple[MasterKeyInfo, ...]:
        """All master keys in order of creation.

        Raises:
            KmsUnavailable: the keystore cannot be used.
        """
        keystore, _ = self._load()
        return tuple(MasterKeyInfo(key.id, key.version, key.enabled) for key in keystore.master_keys)

    def disable_master_key(self, master_key_id: str) -> MasterKeyInfo:
        """Make a master key unusable until it is enabled again: every key it wraps is revoked.

        Raises:
            KeyNotUsable: there is no such master key.
            KmsUnavailable: the keystore cannot be used.
        """
        return self._set_enabled(master_key_id, False)

    def enable_master_key(self, master_key_id: str) -> MasterKeyInfo:
        """Make a master key usable again.

        Raises:
            KeyNotUsable: there is no such master key.
            KmsUnavailable: the keystore cannot be used.
        """
        return self._set_enabled(master_key_id, True)

    def create_key(self, master_key_id: str, length: int, context: KeyContext) -> CreatedKey:
        """See `KmsClient.create_key`."""
        require_key_length(length)
        keystore, root_key = self._load()
        master = _usable(keystore, master_key_id)
        key = SecretBytes(secrets.token_bytes(length))
        header = _header(master)
        sealed = _open_master(master, root_key).seal(key.reveal(), _PEK_AAD + header + context.to_bytes())
        return CreatedKey(header + sealed, key)

    def get_key(self, wrapped: bytes, context: KeyContext) -> SecretBytes:
        """See `KmsClient.get_key`."""
        master_key_id, version, header, sealed = _parse_wrapped(wrapped)
        keystore, root_key = self._load()
        master = _usable(keystore, master_key_id)
        if master.version != version:
            raise KeyNotUsable(f"Master key {master_key_id!r} has no version {version}.", rule="master-key")
        return SecretBytes(
            _open_master(master, root_key).open(sealed, _PEK_AAD + header + context.to_bytes())
        )

    def _load(self) -> tuple[Keystore, SecretBytes]:
        unverified = decode(read_private(self._path, limit=MAX_KEYSTORE_BYTES))
        root_key = self._root_key(unverified.keystore.root)
        return unverified.verify(root_key), root_key

    def _root_key(self, description: RootDescription) -> SecretBytes:
        """Stretching a passphrase takes long, so its result is kept while the description is the same."""
        known = self._derived
        if known is not None and known[0] == description:
            return known[1]
        if description.kind != self._source.kind:
            raise KmsUnavailable(
                f"The keystore's root key comes from a {description.kind}, not from a {self._source.kind}.",
                path=str(self._path),
                rule="root-key",
                hint=f"Give its {description.kind}.",
            )
        root_key = self._source.derive(description)
        self._derived = (description, root_key)
        return root_key

    def _change(self, change: Callable[[Keystore, SecretBytes], Keystore]) -> Keystore:
        with locked(self._path):
            keystore, root_key = self._load()
            changed = change(keystore, root_key)
            replace_private(self._path, encode(changed, root_key))
        return changed

    def _set_enabled(self, master_key_id: str, enabled: bool) -> MasterKeyInfo:
        def switch(keystore: Keystore, _: SecretBytes) -> Keystore:
            _known(keystore, master_key_id)
            keys = (replace(k, enabled=enabled) if k.id == master_key_id else k for k in keystore.master_keys)
            return replace(keystore, master_keys=tuple(keys))

        return _info(self._change(switch), master_key_id)


def _find(keystore: Keystore, master_key_id: str) -> MasterKey | None:
    return next((key for key in keystore.master_keys if key.id == master_key_id), None)


def _known(keystore: Keystore, master_key_id: str) -> MasterKey:
    master = _find(keystore, master_key_id)
    if master is None:
        raise KeyNotUsable(
            f"There is no master key {master_key_id[:80]!r}.",
            rule="master-key",
            hint="Create it, or name another.",
        )
    return master


def _usable(keystore: Keystore, master_key_id: str) -> MasterKey:
    master = _known(keystore, master_key_id)
    if not master.enabled:
        raise KeyNotUsable(
            f"Master key {master_key_id!r} is disabled.",
            rule="master-key",
            hint="Enable it, if it may be used.",
        )
    return master


def _info(keystore: Keystore, master_key_id: str) -> MasterKeyInfo:
    master = _known(keystore, master_key_id)
    return MasterKeyInfo(master.id, master.version, master.enabled)


def _header(master: MasterKey) -> bytes:
    key_id = master.id.encode("ascii")
    return _WRAPPED_FORMAT + master.version.to_bytes(4, "big") + bytes([len(key_id)]) + key_id


def _parse_wrapped(wrapped: bytes) -> tuple[str, int, bytes, bytes]:
    """Master key id, its version, the header, and what is sealed."""
    if len(wrapped) < 6 or wrapped[:1] != _WRAPPED_FORMAT:
        raise refused()
    end = 6 + wrapped[5]
    try:
        key_id = wrapped[6:end].decode("ascii")
    except UnicodeDecodeError as failure:
        raise refused() from failure
    if len(wrapped) < end or not is_master_key_id(key_id):
        raise refused()
    return key_id, int.from_bytes(wrapped[1:5], "big"), wrapped[:end], wrapped[end:]


def _master_aad(key_id: str, version: int) -> bytes:
    encoded = key_id.encode("ascii")
    return _MASTER_AAD + bytes([len(encoded)]) + encoded + version.to_bytes(4, "big")


def _new_master(key_id: str, root_key: SecretBytes) -> MasterKey:
    key = secrets.token_bytes(MASTER_KEY_LENGTH)
    wrapped = Aead(subkey(root_key, "wrap")).seal(key, _master_aad(key_id, 1))
    return MasterKey(key_id, 1, True, wrapped)


def _open_master(master: MasterKey, root_key: SecretBytes) -> Aead:
    try:
        key = Aead(subkey(root_key, "wrap")).open(master.wrapped, _master_aad(master.id, master.version))
    except DecryptionRefused as failure:
        raise KmsUnavailable(
            f"Master key {master.id!r} does not open.", rule="keystore-format", hint="Restore the keystore."
        ) from failure
    return Aead(SecretBytes(key))
