"""KMS back ends and encryption mechanisms by name: the built-in ones, and more by entry point.

Rules:
- A built-in name cannot be taken over by an installed package, and a name that two packages claim is refused.
- Nothing is imported but the one that is named.

Entry point groups: ``lakewarden.kms``, a callable that takes the options and returns a `KmsClient`;
``lakewarden.encryption_managers``, a callable without arguments that returns an `EncryptionManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from catalog.keys.kms import KmsClient
from catalog.keys.local_kms import LocalKms
from catalog.keys.managers import EncryptionManager, EnvelopeManager, PlaintextManager
from catalog.keys.root_key import KeyFile, Passphrase, RootKeySource
from catalog.keys.secret import SecretBytes
from policy.errors import PropertyInvalid

KMS_GROUP: Final = "lakewarden.kms"
MANAGER_GROUP: Final = "lakewarden.encryption_managers"

KmsOptions = Mapping[str, str | SecretBytes]


def load_kms(name: str, options: KmsOptions) -> KmsClient:
    """A KMS client.

    Args:
        name: ``local``, or the name of an entry point.
        options: the back end's options. For ``local``: ``keystore``, a path; and either ``key-file``, a path,
            or ``passphrase``, a secret.

    Raises:
        PropertyInvalid: an unknown name, or options that the back end does not have.
    """
    if name == LocalKms.identifier:
        return _local(options)
    client = _plugin(KMS_GROUP, name)(options)
    if not isinstance(client, KmsClient):
        raise _invalid(f"The entry point {name!r} of {KMS_GROUP} does not make a KmsClient.")
    return client


def load_encryption_manager(name: str) -> EncryptionManager:
    """An encryption mechanism.

    Args:
        name: ``envelope``, ``plaintext``, or the name of an entry point.

    Raises:
        PropertyInvalid: an unknown name.
    """
    if name == EnvelopeManager.identifier:
        return EnvelopeManager()
    if name == PlaintextManager.identifier:
        return PlaintextManager()
    manager = _plugin(MANAGER_GROUP, name)()
    if not isinstance(manager, EncryptionManager):
        raise _invalid(f"The entry point {name!r} of {MANAGER_GROUP} does not make an EncryptionManager.")
    return manager


def _plugin(group: str, name: str) -> Callable[..., Any]:
    found: set[EntryPoint] = set(entry_points(group=group, name=name))
    if len(found) != 1:
        state = "is claimed by more than one package" if found else "is not installed"
        raise _invalid(f"{name!r} of {group} {state}.")
    loaded: Callable[..., Any] = found.pop().load()
    return loaded


def _local(options: KmsOptions) -> LocalKms:
    given = set(options)
    if given not in ({"keystore", "key-file"}, {"keystore", "passphrase"}):
        raise _invalid("The local KMS takes keystore, and either key-file or passphrase.")
    return LocalKms(_path(options, "keystore"), _root(options))


def _root(options: KmsOptions) -> RootKeySource:
    if "key-file" in options:
        return KeyFile(_path(options, "key-file"))
    passphrase = options["passphrase"]
    if not isinstance(passphrase, SecretBytes):
        raise _invalid("The passphrase of the local KMS must be a secret, not a plain text.")
    return Passphrase(passphrase)


def _path(options: KmsOptions, name: str) -> Path:
    value = options[name]
    if not isinstance(value, str) or not value:
        raise _invalid(f"The local KMS's {name} is not a path.")
    return Path(value)


def _invalid(message: str) -> PropertyInvalid:
    return PropertyInvalid(message, rule="kms-configuration", hint="Correct the catalog's configuration.")
