"""Names of the KMS endpoint's keys and key versions.

- A key is named by lower-case ASCII letters, digits and ``_ . -``, beginning with a letter or digit: two
  names that policies would not tell apart, or that an address could spell in two ways, are never both there.
- Version 0 of the key ``pii`` is ``pii@0`` (Hadoop, `KeyProvider.buildVersionName`).
- Policies know the key as ``door/pii``: a permission on a master key
  grants none on a key of the KMS endpoint.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from policy.encryption.governed_values import ENDPOINT_PREFIX
from policy.errors import RequestInvalid
from policy.privileges.requests import Resource

MAX_NAME_LENGTH: Final = 128
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,127}", re.ASCII)
_VERSION: Final = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)


class VersionName(NamedTuple):
    """A version of a key.

    Attributes:
        key: name of the key.
        version: its number, from 0.
    """

    key: str
    version: int

    def __str__(self) -> str:
        return f"{self.key}@{self.version}"

    @classmethod
    def parse(cls, text: str) -> VersionName:
        """Parse the name of a version.

        Raises:
            RequestInvalid: that cannot name one.
        """
        name, separator, number = text.rpartition("@")
        if not separator or _VERSION.fullmatch(number) is None:
            raise RequestInvalid(
                "The name of the key version is not valid.",
                rule="key-version-name",
                hint="Use the name that the KMS returned, such as pii@0.",
            )
        return cls(key_name(name), int(number))


def key_name(text: str) -> str:
    """Check the name of a key.

    Raises:
        RequestInvalid: it cannot.
    """
    if _NAME.fullmatch(text) is None:
        raise RequestInvalid(
            "The name of the key is not valid.",
            rule="key-name",
            hint=f"Use lower-case letters, digits and _ . -, at most {MAX_NAME_LENGTH} of them.",
        )
    return text


def resource_of(name: str) -> Resource:
    """Return the resource of a key in policies."""
    return Resource.key(ENDPOINT_PREFIX + name)
