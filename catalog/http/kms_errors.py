"""Converts refusals to the errors of Hadoop's KMS, which are sent beside our own.

Standard clients throw the Java exception that `RemoteException` names. ORC treats every `IOException` as a
missing permission, and then shows masks or counts nothing, without an error. So every error of the KMS
endpoint is another exception, and the query fails with its message. Only the refusal of a key that has masks
is an `IOException`.

Source: Hadoop 3.4.3, `HttpExceptionUtils.validateResponse`; ORC 2.3.0, `ReaderEncryptionVariant`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from catalog.kms_server.endpoint import KeyMasked
from policy import errors as policy_errors
from policy.errors import LakewardenError

PREFIX: Final = "/kms/v1/"

_UNFORESEEN: Final = "java.lang.IllegalStateException"
#: By class; a class that is not listed is answered like its nearest listed ancestor. Only the first is an
#: `IOException`.
JAVA_CLASSES: Final[Mapping[type[LakewardenError], str]] = MappingProxyType(
    {
        KeyMasked: "org.apache.hadoop.security.authorize.AuthorizationException",
        policy_errors.Refused: "java.lang.SecurityException",
        policy_errors.NotAuthenticated: "java.lang.SecurityException",
        policy_errors.InvalidInput: "java.lang.IllegalArgumentException",
        policy_errors.NotSupportedYet: "java.lang.UnsupportedOperationException",
    }
)


def remote_exception(error: type[LakewardenError] | None, message: str) -> dict[str, str]:
    """Return the member `RemoteException` of an answer.

    Args:
        error: the class of the error; None for an unexpected error.
        message: its message for the client.
    """
    ancestors = () if error is None else error.__mro__
    name = next((JAVA_CLASSES[each] for each in ancestors if each in JAVA_CLASSES), _UNFORESEEN)
    # Standard clients show only the first line.
    return {"message": " ".join(message.split()), "exception": name.rpartition(".")[2], "javaClassName": name}
