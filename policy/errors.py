"""The errors that users of Lakewarden meet, in one tree.

    LakewardenError
    ├── InvalidInput                 what was handed in cannot be understood
    │   ├── LocationInvalid          a location that is ambiguous or malformed
    │   ├── PropertyInvalid          a governed property with a wrong, unknown or contradictory value
    │   ├── PolicyInvalid            a policy document that cannot be evaluated
    │   ├── MetadataInvalid          metadata.json, a manifest list or a manifest that cannot be parsed safely
    │   ├── RequestInvalid           a request that is malformed in another way
    │   ├── UnsupportedFormatVersion a table format version that is not written (or read) here
    │   └── NotSupportedYet          understood, but without effect in this release, therefore refused
    ├── Refused                      understood, and not allowed
    │   ├── LocationNotAllowed       a path outside `read.allowed.data.paths`
    │   ├── NotAuthorized            no policy grants the request, or one denies it
    │   ├── EncryptionPolicyViolation a file or property that breaks the table's encryption rules
    │   ├── MetadataTampered         bytes, identity or pointer differ from what was sealed
    │   ├── MetadataUnsealed         metadata that did not come through the catalog, where that is not enough
    │   ├── DecryptionRefused        key metadata that is malformed, transplanted or does not open
    │   └── KeyNotUsable             a key that is unknown, disabled or destroyed
    ├── NotAuthenticated             no valid credential
    ├── Unavailable                  a part that is needed does not answer; nothing was changed
    │   ├── KmsUnavailable
    │   ├── StateUnavailable         the catalog's database
    │   └── StorageUnavailable
    └── CommitStateUnknown           a commit may or may not have taken effect

Errors about the existence and naming of catalog objects live in `catalog.base.errors`, because they are
pyiceberg's exceptions too.

An error never carries key bytes, tokens or passwords. A foreign path is put into `path` only where the
caller may see it; the code that raises decides that.
"""

from __future__ import annotations


class LakewardenError(Exception):
    """Root of every error that Lakewarden raises on purpose.

    Args:
        message: one sentence that says what was refused or went wrong, and why.
        table: dotted name of the table concerned.
        snapshot: id of the snapshot concerned.
        path: the location concerned.
        rule: short stable name of the rule that decided, such as ``allowed-paths``.
        hint: one sentence that tells the user what to do.
        why: what was found, for the logs alone: no answer repeats it.
    """

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        snapshot: int | None = None,
        path: str | None = None,
        rule: str | None = None,
        hint: str | None = None,
        why: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.table = table
        self.snapshot = snapshot
        self.path = path
        self.rule = rule
        self.hint = hint
        self.why = why

    def __str__(self) -> str:
        about = [
            f"{name}={value}"
            for name, value in (
                ("table", self.table),
                ("snapshot", self.snapshot),
                ("path", self.path),
                ("rule", self.rule),
            )
            if value is not None
        ]
        text = self.message if not about else f"{self.message} [{', '.join(about)}]"
        return text if self.hint is None else f"{text} {self.hint}"


class InvalidInput(LakewardenError):
    """What was handed in cannot be understood."""


class LocationInvalid(InvalidInput):
    """A location that is ambiguous or malformed; it is refused, never repaired."""


class PropertyInvalid(InvalidInput):
    """A governed property with a wrong, unknown or contradictory value."""


class PolicyInvalid(InvalidInput):
    """A policy document that cannot be evaluated as a whole."""


class MetadataInvalid(InvalidInput):
    """Table metadata, a manifest list or a manifest that cannot be parsed within the limits."""


class RequestInvalid(InvalidInput):
    """A request that is malformed in another way."""


class UnsupportedFormatVersion(InvalidInput):
    """A table format version that is not written, or not read, here."""


class NotSupportedYet(InvalidInput):
    """Understood, but without effect in this release, and therefore refused."""


class Refused(LakewardenError):
    """Understood, and not allowed."""


class LocationNotAllowed(Refused):
    """A path outside the table's `read.allowed.data.paths`."""


class NotAuthorized(Refused):
    """No policy grants the request, or one denies it."""


class EncryptionPolicyViolation(Refused):
    """A file or property that breaks the table's encryption rules."""


class MetadataTampered(Refused):
    """Bytes, identity or pointer differ from what the catalog sealed."""


class MetadataUnsealed(Refused):
    """Metadata that did not come through the catalog, where the operation needs sealed metadata."""


class DecryptionRefused(Refused):
    """Key metadata that is malformed, transplanted or does not open."""


class KeyNotUsable(Refused):
    """A key that is unknown, disabled or destroyed."""


class NotAuthenticated(LakewardenError):
    """No valid credential was presented."""


class Unavailable(LakewardenError):
    """A part that is needed does not answer; nothing was changed."""


class KmsUnavailable(Unavailable):
    """The key management service does not answer, or not as it should."""


class StateUnavailable(Unavailable):
    """The catalog's database does not answer, is locked, or cannot write."""


class StorageUnavailable(Unavailable):
    """The object store or file system does not answer, or cannot write."""


class CommitStateUnknown(LakewardenError):
    """A commit may or may not have taken effect; the client must look before it tries again."""
