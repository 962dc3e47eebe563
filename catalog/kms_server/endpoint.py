"""Serves keys to Hadoop and ORC clients: policies decide each use, which is recorded before it happens.

- The rows `door.*` of `policy.privileges.operations` say which privilege on the key each use requires.
- Writers of ORC make their keys by decrypting (`encrypted_keys`), so they need `release` too; the KMS
  endpoint cannot tell them from readers.
- Material of versions never leaves; Hadoop's KMS would hand it to every user who can `GET` it.
- Users without a permission on a key are not told whether it exists. One thing shows: a key that says so
  answers that its readers see masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.table_access import require_on
from catalog.crypto.secret import SecretBytes
from catalog.envelope.peks import PekState
from catalog.kms_server import encrypted_keys
from catalog.kms_server.encrypted_keys import EncryptedKey
from catalog.kms_server.names import VersionName, key_name, resource_of
from catalog.kms_server.store import Denial, EndpointKey, EndpointKeyStore, KeySpec
from policy.errors import KeyNotUsable, NotAuthorized, RequestInvalid
from policy.privileges.operations import On
from policy.privileges.requests import ANY, AccessRequest

#: The maximum number of keys that one request generates or re-encrypts.
MAX_BATCH: Final = 1_000


class KeyMasked(NotAuthorized):
    """The key is not released; its readers get masks instead of an error."""


class KmsEndpoint:
    """Hadoop's KMS protocol without HTTP.

    Args:
        store: the keys.
        authorizer: decides and records.
    """

    def __init__(self, store: EndpointKeyStore, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer

    def names(self, caller: Caller) -> list[str]:
        """Return the names of the keys on which the caller has any permission, in order."""
        return [
            name
            for name in self._store.names()
            if self._authorizer.decide([AccessRequest(caller.principal, resource_of(name), ANY)]).allowed
        ]

    def keys(self, caller: Caller) -> list[EndpointKey]:
        """Return the keys on which the caller has any permission, ordered by name."""
        found = (self._store.find(name) for name in self.names(caller))
        return [key for key in found if key is not None]

    def metadata(self, caller: Caller, name: str) -> EndpointKey | None:
        """Return the metadata of a key; None if it does not exist.

        Raises:
            NotAuthorized: the caller has no right on it.
        """
        self._require(caller, "metadata", key_name(name))
        return self._store.find(name)

    def create(self, caller: Caller, spec: KeySpec) -> EndpointKey:
        """Create a key.

        Raises:
            NotAuthorized: `rotate` is not granted.
            RequestInvalid: there is one of that name.
            KeyNotUsable, KmsUnavailable: the master key cannot be used.
        """
        self._require(caller, "create", key_name(spec.name))
        return self._store.create(spec, caller.principal.name)

    def roll(self, caller: Caller, name: str) -> EndpointKey:
        """Add a version to a key.

        Raises:
            NotAuthorized: `rotate` is not granted.
            KeyNotUsable: there is no such key, or its master key is disabled.
            CommitConflict: another request did so at the same time.
            KmsUnavailable: the KMS does not answer.
        """
        self._require(caller, "roll", key_name(name))
        return self._store.roll(self._found(name), caller.principal.name)

    def disable(self, caller: Caller, name: str) -> EndpointKey:
        """Disable a key until it is enabled; takes effect with its next use.

        Raises:
            NotAuthorized: `destroy` is not granted.
            KeyNotUsable: there is no such key.
            CommitConflict: another request changed it at the same time.
        """
        self._require(caller, "disable", key_name(name))
        return self._store.move(self._known(name), PekState.DISABLED)

    def enable(self, caller: Caller, name: str) -> EndpointKey:
        """Enable a disabled key.

        Raises:
            NotAuthorized: `destroy` is not granted.
            KeyNotUsable: there is no such key.
            CommitConflict: another request changed it at the same time.
        """
        self._require(caller, "enable", key_name(name))
        return self._store.move(self._known(name), PekState.ACTIVE)

    def invalidate(self, caller: Caller, name: str) -> None:
        """Do nothing: no stale state is kept. Clients send this after each roll.

        Raises:
            NotAuthorized: `rotate` is not granted.
        """
        self._require(caller, "roll", key_name(name))

    def generate(self, caller: Caller, name: str, count: int) -> list[EncryptedKey]:
        """Generate encrypted keys under the current version.

        Raises:
            NotAuthorized: `use` is not granted.
            RequestInvalid: too many at once.
            KeyNotUsable, KmsUnavailable, DecryptionRefused: the key cannot be used.
        """
        _check_count(count)
        self._require(caller, "generate", key_name(name))
        key = self._found(name)
        material = self._store.open(key, key.current.version)
        return [encrypted_keys.generate(key.current, material) for _ in range(count)]

    def decrypt(self, caller: Caller, encrypted: EncryptedKey) -> SecretBytes:
        """Decrypt an encrypted key.

        Raises:
            KeyMasked: `release` is not granted, and the key's readers see masks.
            NotAuthorized: `release` is not granted.
            KeyNotUsable, KmsUnavailable, DecryptionRefused: the key cannot be used.
        """
        name = encrypted.version.key
        try:
            self._require(caller, "decrypt", name)
        except NotAuthorized as refusal:
            key = self._store.find(name)
            if key is None or key.spec.denial is not Denial.MASK:
                raise
            raise KeyMasked(refusal.message, rule=refusal.rule, hint=refusal.hint) from refusal
        return encrypted_keys.decrypt(
            encrypted, self._store.open(self._found(name), encrypted.version.version)
        )

    def reencrypt(self, caller: Caller, name: str, items: Sequence[EncryptedKey]) -> list[EncryptedKey]:
        """Re-encrypt keys under the current version, in order; current ones stay as they are.

        Raises:
            NotAuthorized: `use` is not granted.
            RequestInvalid: too many at once, or one that is under another key.
            KeyNotUsable, KmsUnavailable, DecryptionRefused: the key cannot be used.
        """
        _check_count(len(items))
        if any(each.version.key != name for each in items):
            raise RequestInvalid(
                "An encrypted key is under a different key than the request names.",
                rule="encrypted-key",
                hint="Send encrypted keys of one key per request.",
            )
        self._require(caller, "reencrypt", key_name(name))
        key = self._found(name)
        opened = self._opened(key, {each.version.version for each in items} | {key.current.version})
        new = opened[key.current.version]
        return [
            each
            if each.version == key.current
            else encrypted_keys.reencrypt(each, opened[each.version.version], key.current, new)
            for each in items
        ]

    def _opened(self, key: EndpointKey, versions: Iterable[int]) -> dict[int, SecretBytes]:
        return {version: self._store.open(key, version) for version in versions}

    def _found(self, name: str) -> EndpointKey:
        """Return a key that can be used."""
        key = self._known(name)
        if key.state is not PekState.ACTIVE:
            raise KeyNotUsable(
                f"The key {name!r} is {key.state}.",
                rule="key-state",
                hint="An administrator can enable it with `lakewarden kms-endpoint enable`.",
            )
        return key

    def _known(self, name: str) -> EndpointKey:
        key = self._store.find(name)
        if key is None:
            raise KeyNotUsable(
                f"The key {name!r} does not exist.", rule="key", hint="Create the key, or name another one."
            )
        return key

    def _require(self, caller: Caller, use: str, name: str) -> None:
        on = On(caller.principal, resource_of(name))
        require_on(self._authorizer, caller, f"door.{use}", str(on.resource), on)


def version_of(key: EndpointKey, name: VersionName) -> VersionName | None:
    """Return a version of a key, if it has it."""
    return name if name.version < key.versions else None


def _check_count(count: int) -> None:
    if not 1 <= count <= MAX_BATCH:
        raise RequestInvalid(
            f"A request must contain 1 to {MAX_BATCH} keys.", rule="key-count", hint="Split the request."
        )
