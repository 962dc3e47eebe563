"""Refusals in the words of Hadoop's KMS, beside our own.

Standard clients throw the Java exception that `RemoteException` names. ORC takes each `IOException` for a
lack of rights and shows masks, or counts nothing, without a word. So whatever goes wrong at the KMS endpoint
is an exception of another kind, and a query fails with its message; only a key that says so is masked.

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
#: By class; a class that is not listed is answered as the nearest of its ancestors. An `IOException` is none
#: of them but the first.
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
    """The member `RemoteException` of an answer.

    Args:
        error: the class of the error; None for one that nobody foresaw.
        message: what is told of it.
    """
    ancestors = () if error is None else error.__mro__
    name = next((JAVA_CLASSES[each] for each in ancestors if each in JAVA_CLASSES), _UNFORESEEN)
    # Standard clients show the first line alone.
    return {"message": " ".join(message.split()), "exception": name.rpartition(".")[2], "javaClassName": name}
