"""Reads metadata files for an audit: what cannot be read becomes a finding."""

from __future__ import annotations

from catalog.iceberg.manifests import DEFAULT_LIMITS
from catalog.storage.base import Storage
from catalog.storage.errors import ObjectMissing, ObjectTooLarge
from catalog.storage.volumes import stored_before
from policy.errors import LocationNotAllowed
from policy.location.location import Location
from spark_ext.pipelines.audit import rules
from spark_ext.pipelines.audit.facts import Facts
from spark_ext.pipelines.audit.partial import Partial

_LOCATION_INVALID = "location-invalid"


def readable(facts: Facts, path: str, what: str, found: Partial) -> bool:
    """Return whether a metadata file can be opened by its path; add a finding if not."""
    decision = facts.allowed.decide(path)
    if decision.allowed:
        return True
    outside = decision.reasons[0].rule != _LOCATION_INVALID
    rule = rules.FOREIGN_PATH if outside else rules.INVALID_PATH
    found.add(rule, f"The {what}: {decision.explanation}", path=path)
    return False


def fetch(
    storage: Storage, path: str, what: str, found: Partial, limit: int = DEFAULT_LIMITS.max_file_bytes
) -> bytes | None:
    """Read a metadata file whole; None, and a finding, if that is not possible.

    Raises:
        StorageUnavailable: the storage does not answer, or denies access.
    """
    location = Location.parse(path)
    try:
        with stored_before(storage, location):
            return storage.read(location, limit=limit)
    except ObjectMissing:
        found.add(rules.METADATA_MISSING, f"The {what} does not exist.", path=path)
    except ObjectTooLarge as error:
        found.add(rules.INVALID_METADATA, f"The {what}: {error.message}", path=path)
    except LocationNotAllowed as error:
        found.add(rules.FILE_LINK, f"The {what}: {error.message}", path=path)
    return None
