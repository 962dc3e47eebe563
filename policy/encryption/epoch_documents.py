"""Encryption epochs as JSON values, as the catalog's database and its interface have them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from policy.encryption.encrypted_columns import KeyedFields
from policy.encryption.epochs import Epoch, PekRef
from policy.encryption.specification import EncryptionSpec


def epoch_document(epoch: Epoch) -> dict[str, object]:
    """Return an epoch as JSON values."""
    return {
        "from": epoch.from_sequence_number,
        "spec": epoch.spec.to_properties(),
        "columns": [[group.key_id, list(group.field_ids)] for group in epoch.columns],
        "peks": [[str(ref.pek_id), ref.version, ref.master_key_id] for ref in epoch.peks],
        "masks": epoch.masks,
    }


def epoch_of(document: Any) -> Epoch:
    """Return the epoch that `epoch_document` made JSON values of.

    Raises:
        PropertyInvalid, EncryptionPolicyViolation: it is malformed.
    """
    spec = EncryptionSpec.parse(document["spec"], catalog_master_key_id=None)
    columns = tuple(KeyedFields(key, tuple(ids)) for key, ids in document["columns"])
    peks = tuple(PekRef(UUID(pek_id), version, key_id) for pek_id, version, key_id in document["peks"])
    # Older versions have no masks.
    masks = tuple((field_id, mask) for field_id, mask in document.get("masks", ()))
    return Epoch(document["from"], spec, columns, peks, masks)
