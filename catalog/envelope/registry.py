"""Loads encryption mechanisms by name: built-in ones, and others by entry point.

Entry point group ``lakewarden.encryption_managers``: a callable without arguments that returns an
`EncryptionManager`. The rules for KMS back ends (`catalog.kms.registry`) apply to mechanisms too.
"""

from __future__ import annotations

from typing import Final

from catalog.envelope.mechanisms import EncryptionManager, EnvelopeManager, PlaintextManager
from catalog.kms.back_ends import misconfigured
from catalog.kms.registry import from_entry_point

MANAGER_GROUP: Final = "lakewarden.encryption_managers"


def load_encryption_manager(name: str) -> EncryptionManager:
    """Load an encryption mechanism.

    Args:
        name: ``envelope``, ``plaintext``, or the name of an entry point.

    Raises:
        PropertyInvalid: an unknown name, or an entry point that fails.
    """
    if name == EnvelopeManager.identifier:
        return EnvelopeManager()
    if name == PlaintextManager.identifier:
        return PlaintextManager()
    manager = from_entry_point(MANAGER_GROUP, name)
    if not isinstance(manager, EncryptionManager):
        raise misconfigured(
            f"The entry point {name!r} of {MANAGER_GROUP} does not return an EncryptionManager."
        )
    return manager
