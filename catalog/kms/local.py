"""The local KMS: the embedded default, NOT FOR PRODUCTION.

It keeps master keys in a keystore file, wrapped by a root key that comes from a passphrase or from a private
key file. It lets a laptop, a test and a demonstration do all that a real KMS does, revocation included; but
the process that serves tables can read its master keys, which is what a real KMS prevents.

Rules:
- The file is read again on every call. Another process's change, such as a disabled key, holds at once.
- Changes happen under a lock, on what the file says then, and replace the file whole.
- A wrapped key is bound to the master key's id and version and to the context.
- The newest version of a master key wraps; every version opens. All of them are disabled together.

A wrapped key is: 0x01 | master key version, u32 | length of the id, u8 | id | nonce 12 | ciphertext | tag 16,
integers big endian; its AAD is ASCII ``lakewarden/local-kms/pek/1`` NUL | all bytes before the nonce | the
context.
"""

from __future__ import annotations

import base64
import secrets
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from catalog.crypto.aead import Aead, refused, require_key_length
from catalog.crypto.private_files import create_private, locked, read_private, replace_private
from catalog.crypto.secret import SecretBytes
from catalog.kms import keystore
from catalog.kms.interface import CreatedKey, KeyContext, KmsClient
from catalog.kms.keystore import MASTER_KEY_LENGTH, MAX_KEYSTORE_BYTES, Keystore, MasterKey
from catalog.kms.root_key import RootDescription, RootKeySource, subkey
from policy.encryption.governed_values import is_endpoint_key_name, is_master_key_id
from policy.errors import DecryptionRefused, KeyNotUsable, KmsUnavailable, RequestInvalid

_WRAPPED_FORMAT: Final = b"\x01"
_PEK_AAD: Final = b"lakewarden/local-kms/pek/1\0"
_MASTER_AAD: Final = b"lakewarden/local-kms/master/1\0"


class EmbeddedKmsWarning(UserWarning):
    """The local KMS is in use."""


def warn_embedded_default() -> None:
    """Warn that the local KMS is not for production; called at the start of a service."""
    warnings.warn(
        "The local KMS is the embedded default and not for production: this process can read its "
        "master keys. Configure an external KMS (docs/kms.md).",
        EmbeddedKmsWarning,
        stacklevel=2,
    )


class LocalKms(KmsClient):
    """The embedded default KMS, not for production.

    Args:
        path: the keystore file; `create` makes one.
        root: where its root key comes from.
    """

    identifier = "local"

    def __init__(self, path: Path, root: RootKeySource) -> None:
        self._path = path
        self._source = root
        self._derived: tuple[RootDescription, SecretBytes] | None = None

    @classmethod
    def create(cls, path: Path, root: RootKeySource) -> LocalKms:
        """Create an empty keystore.

        Raises:
            KmsUnavailable: the file is there already, or cannot be written.
        """
        description = root.describe()
        create_private(path, keystore.empty(description).encode(root.derive(description)))
        return cls(path, root)

    def create_master_key(self, master_key_id: str) -> MasterKey:
        """Create a random master key of 32 bytes.

        Raises:
            RequestInvalid: the id cannot name a master key, is for keys of the KMS endpoint, or is taken.
            KmsUnavailable: the keystore cannot be used.
        """
        if not is_master_key_id(master_key_id) or is_endpoint_key_name(master_key_id):
            raise RequestInvalid(
                "That is not a valid master key id.",
                rule="master-key-id",
                hint="Use at most 255 ASCII letters, digits and _ . / + = -, without the prefix door/.",
            )

        def create(old: MasterKey | None, root_key: SecretBytes) -> MasterKey:
            if old is not None:
                raise RequestInvalid(
                    f"The master key {master_key_id!r} already exists.",
                    rule="master-key-id",
                    hint="Choose another id.",
                )
            wrapped = _new_version(master_key_id, 1, root_key)
            return MasterKey(id=master_key_id, version=1, enabled=True, wrapped=wrapped)

        return self._change(master_key_id, create)

    def list_master_keys(self) -> tuple[MasterKey, ...]:
        """Return all master keys in order of creation.

        Raises:
            KmsUnavailable: the keystore cannot be used.
        """
        return tuple(self._load()[0].master_keys)

    def disable_master_key(self, master_key_id: str) -> MasterKey:
        """Disable a master key: keys that it wraps cannot be unwrapped until it is enabled again.

        Raises:
            KeyNotUsable: there is no such master key.
            KmsUnavailable: the keystore cannot be used.
        """
        return self._set_enabled(master_key_id, False)

    def enable_master_key(self, master_key_id: str) -> MasterKey:
        """Enable a master key again.

        Raises:
            KeyNotUsable: there is no such master key.
            KmsUnavailable: the keystore cannot be used.
        """
        return self._set_enabled(master_key_id, True)

    def rotate_master_key(self, master_key_id: str) -> MasterKey:
        """Add a random version to a master key; keys under earlier versions still unwrap.

        Raises:
            KeyNotUsable: there is no such master key, or it is disabled.
            RequestInvalid: the keystore has no room for another version.
            KmsUnavailable: the keystore cannot be used.
        """

        def rotate(old: MasterKey | None, root_key: SecretBytes) -> MasterKey:
            master = _usable(old, master_key_id)
            version = master.version + 1
            return MasterKey(
                id=master_key_id,
                version=version,
                enabled=True,
                wrapped=_new_version(master_key_id, version, root_key),
                older=[*master.older, master.wrapped],
            )

        return self._change(master_key_id, rotate)

    def create_key(self, master_key_id: str, length: int, context: KeyContext) -> CreatedKey:
        """See `KmsClient.create_key`."""
        require_key_length(length)
        found, root_key = self._load()
        master = _usable(found.find(master_key_id), master_key_id)
        key = SecretBytes(secrets.token_bytes(length))
        return CreatedKey(_seal(master, root_key, key, context), key)

    def get_key(self, wrapped: bytes, context: KeyContext) -> SecretBytes:
        """See `KmsClient.get_key`."""
        parsed = _parse_wrapped(wrapped)
        return _open(*self._load(), parsed, context)[1]

    def wrap_key(self, master_key_id: str, key: SecretBytes, context: KeyContext) -> bytes:
        """See `KmsClient.wrap_key`."""
        require_key_length(len(key))
        found, root_key = self._load()
        return _seal(_usable(found.find(master_key_id), master_key_id), root_key, key, context)

    def rewrap_keys(self, items: Sequence[tuple[bytes, KeyContext]]) -> list[bytes]:
        """See `KmsClient.rewrap_keys`."""
        parsed = [(_parse_wrapped(wrapped), context) for wrapped, context in items]
        found, root_key = self._load()
        opened = [(*_open(found, root_key, wrapped, context), context) for wrapped, context in parsed]
        return [_seal(master, root_key, key, context) for master, key, context in opened]

    def _load(self) -> tuple[Keystore, SecretBytes]:
        unverified = keystore.decode_unverified(read_private(self._path, limit=MAX_KEYSTORE_BYTES))
        root_key = self._root_key(unverified.root)
        return unverified.verified(root_key), root_key

    def _root_key(self, description: RootDescription) -> SecretBytes:
        """Derive the root key; cached per description, because scrypt is slow."""
        known = self._derived
        if known is not None and known[0] == description:
            return known[1]
        if description.kind != self._source.kind:
            raise KmsUnavailable(
                f"The keystore's root key comes from a {description.kind}, but a "
                f"{self._source.kind} was given.",
                path=str(self._path),
                rule="root-key",
                hint=f"Give the {description.kind} of the keystore.",
            )
        root_key = self._source.derive(description)
        self._derived = (description, root_key)
        return root_key

    def _change(
        self, master_key_id: str, change: Callable[[MasterKey | None, SecretBytes], MasterKey]
    ) -> MasterKey:
        """Store what `change` makes of a master key."""
        with locked(self._path):
            found, root_key = self._load()
            changed = change(found.find(master_key_id), root_key)
            keys = {key.id: key for key in (*found.master_keys, changed)}
            data = found.model_copy(update={"master_keys": list(keys.values())}).encode(root_key)
            if len(data) > MAX_KEYSTORE_BYTES:
                raise RequestInvalid(
                    "The keystore has reached its maximum size.",
                    rule="keystore-size",
                    hint="Use an external KMS for more keys.",
                )
            replace_private(self._path, data)
        return changed

    def _set_enabled(self, master_key_id: str, enabled: bool) -> MasterKey:
        return self._change(
            master_key_id,
            lambda old, _: _known(old, master_key_id).model_copy(update={"enabled": enabled}),
        )


def _known(master: MasterKey | None, master_key_id: str) -> MasterKey:
    if master is None:
        raise KeyNotUsable(
            f"The master key {master_key_id[:80]!r} does not exist in the local KMS.",
            rule="master-key",
            hint="Create it with `lakewarden key create-master`, or name another one.",
        )
    return master


def _usable(master: MasterKey | None, master_key_id: str) -> MasterKey:
    known = _known(master, master_key_id)
    if not known.enabled:
        raise KeyNotUsable(
            f"The master key {master_key_id!r} is disabled.",
            rule="master-key",
            hint="Enable it with `lakewarden key enable-master`, if it is safe to use.",
        )
    return known


class _Wrapped(NamedTuple):
    """The parts of a wrapped key; the header is everything before the sealed bytes."""

    master_key_id: str
    version: int
    header: bytes
    sealed: bytes


def _header(master: MasterKey) -> bytes:
    key_id = master.id.encode("ascii")
    return _WRAPPED_FORMAT + master.version.to_bytes(4, "big") + bytes([len(key_id)]) + key_id


def _parse_wrapped(wrapped: bytes) -> _Wrapped:
    if len(wrapped) < 6 or wrapped[:1] != _WRAPPED_FORMAT:
        raise refused()
    end = 6 + wrapped[5]
    try:
        key_id = wrapped[6:end].decode("ascii")
    except UnicodeDecodeError as failure:
        raise refused() from failure
    if len(wrapped) < end or not is_master_key_id(key_id):
        raise refused()
    return _Wrapped(key_id, int.from_bytes(wrapped[1:5], "big"), wrapped[:end], wrapped[end:])


def _seal(master: MasterKey, root_key: SecretBytes, key: SecretBytes, context: KeyContext) -> bytes:
    """Wrap a key under the newest version of a master key."""
    header = _header(master)
    aad = _PEK_AAD + header + context.to_bytes()
    return header + _open_master(master, master.version, root_key).seal(key.reveal(), aad)


def _open(
    found: Keystore, root_key: SecretBytes, wrapped: _Wrapped, context: KeyContext
) -> tuple[MasterKey, SecretBytes]:
    """Unwrap a key, and return the master key that wraps it."""
    master = _usable(found.find(wrapped.master_key_id), wrapped.master_key_id)
    if not 1 <= wrapped.version <= master.version:
        raise KeyNotUsable(
            f"The master key {master.id!r} has no version {wrapped.version}.",
            rule="master-key",
            hint="Restore the keystore that wrapped the key.",
        )
    aead = _open_master(master, wrapped.version, root_key)
    return master, SecretBytes(aead.open(wrapped.sealed, _PEK_AAD + wrapped.header + context.to_bytes()))


def _master_aad(key_id: str, version: int) -> bytes:
    encoded = key_id.encode("ascii")
    return _MASTER_AAD + bytes([len(encoded)]) + encoded + version.to_bytes(4, "big")


def _new_version(key_id: str, version: int, root_key: SecretBytes) -> str:
    """Create a version of a master key, wrapped by the root key."""
    key = secrets.token_bytes(MASTER_KEY_LENGTH)
    sealed = Aead(subkey(root_key, "wrap")).seal(key, _master_aad(key_id, version))
    return base64.b64encode(sealed).decode("ascii")


def _open_master(master: MasterKey, version: int, root_key: SecretBytes) -> Aead:
    sealed = base64.b64decode([*master.older, master.wrapped][version - 1])
    try:
        key = Aead(subkey(root_key, "wrap")).open(sealed, _master_aad(master.id, version))
    except DecryptionRefused as failure:
        raise KmsUnavailable(
            f"The master key {master.id!r} cannot be decrypted.",
            rule="keystore-format",
            hint="Restore the keystore from a backup.",
        ) from failure
    return Aead(SecretBytes(key))
