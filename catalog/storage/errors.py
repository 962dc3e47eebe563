"""Storage errors, and their translation from errors of the operating system and PyArrow.

Rules:

- `translated` is the only place where errors of the operating system and of PyArrow are understood.
- What is recognised gets its own type; every other fault is `StorageUnavailable`. Nothing is swallowed.
- A message of the storage is never repeated in ours, since it may carry credentials or another's path; the
  foreign error stays attached as the cause.

The types defined here hang in the tree of `policy.errors`:

    MetadataInvalid
    ├── ObjectMissing    a name that stored metadata, or a caller, refers to and that does not exist
    └── ObjectTooLarge   an object larger than its reader is ready to take into memory
    Refused
    └── ObjectExists     an exclusive create met an object of that name; nothing is ever overwritten
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from policy.errors import (
    LakewardenError,
    LocationInvalid,
    LocationNotAllowed,
    MetadataInvalid,
    Refused,
    StorageUnavailable,
)
from policy.location.location import Location


class ObjectMissing(MetadataInvalid):
    """The object does not exist."""


class MetadataMissing(ObjectMissing):
    """The metadata.json of a table does not exist."""


class ObjectTooLarge(MetadataInvalid):
    """The object is larger than the limit."""


class ObjectExists(Refused):
    """An object with that name exists; objects are never overwritten."""


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_DOWN = frozenset(
    {
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.EPIPE,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)
# PyArrow puts the AWS error code only into the text of an OSError without errno.
_DENIED_AWS = (
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "INVALID_CLIENT_TOKEN_ID",
    "SIGNATURE_DOES_NOT_MATCH",
    "ExpiredToken",
    "(HTTP status 403)",
)
_DOWN_AWS = (
    "NETWORK_CONNECTION",
    "REQUEST_TIMEOUT",
    "SERVICE_UNAVAILABLE",
    "SLOW_DOWN",
    "THROTTLING",
    "(HTTP status 429)",
    "(HTTP status 502)",
    "(HTTP status 503)",
    "(HTTP status 504)",
)


@contextmanager
def translated(location: Location) -> Iterator[None]:
    """Translate errors of the operating system and of PyArrow inside the block.

    Raises:
        ObjectMissing, ObjectExists, LocationInvalid, StorageUnavailable: each naming the location, with the
            foreign error as its cause.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise _ours(error, location) from error


def no_object(location: Location) -> LocationNotAllowed:
    """The error for a location that names a bucket or file system instead of an object."""
    return LocationNotAllowed(
        "The location names a bucket or a file system, not an object inside it.",
        path=location.canonical,
        rule="object-name",
        hint="Give the full path of an object.",
    )


def too_large(location: Location, limit: int) -> ObjectTooLarge:
    """The error for an object that is larger than `limit` bytes."""
    return ObjectTooLarge(
        f"The object is larger than the limit of {limit} bytes.",
        path=location.canonical,
        rule="object-size",
        hint="Rewrite the table's manifests into smaller ones (`rewrite_manifests`), or raise the "
        "limit in the settings.",
    )


def already_exists(location: Location) -> ObjectExists:
    """The error for creating an object that exists."""
    return ObjectExists(
        "An object with this name exists, and objects are never overwritten.",
        path=location.canonical,
        rule="exclusive-create",
        hint="Write under a new random name.",
    )


def _ours(error: Exception, location: Location) -> LakewardenError:
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, FileNotFoundError):
        return ObjectMissing(
            "The object does not exist.",
            path=location.canonical,
            rule="object-missing",
            hint="It was deleted outside of the catalog, or was never written. Restore it from a backup.",
        )
    if isinstance(error, FileExistsError):
        return already_exists(location)
    if number == errno.ENAMETOOLONG:
        return LocationInvalid(
            "A name in the location is longer than this file system permits.",
            path=location.canonical,
            rule="name-length",
            hint="Use shorter names.",
        )
    return _unavailable(error, number, location)


def _unavailable(error: Exception, number: int | None, location: Location) -> StorageUnavailable:
    text = str(error)
    if number in _DENIED or any(mark in text for mark in _DENIED_AWS):
        rule, message = "storage-access", "The storage denied the catalog access."
        hint = "Grant the catalog's own identity access to this location, or correct its credentials."
    elif number in _FULL:
        rule, message = "storage-full", "The storage has no free space, or a quota is exhausted."
        hint = "Free space or raise the quota, then try again."
    elif number in _DOWN or isinstance(error, TimeoutError) or any(mark in text for mark in _DOWN_AWS):
        rule, message = "storage-down", "The storage did not respond in time."
        hint = "Check the endpoint and the network, then try again."
    else:
        rule, message = "storage-fault", "The storage returned an error."
        hint = "See the cause in the catalog's log, then try again."
    return StorageUnavailable(message, path=location.canonical, rule=rule, hint=hint)
