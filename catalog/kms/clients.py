"""The KMSs that a catalog calls, by name.

A catalog has one KMS for new master key ids, and can have others, so that keys move from one to another
without an interval in which either is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from catalog.kms.calls import CountedKms
from policy.errors import KeyNotUsable


class KmsKey(NamedTuple):
    """A master key in a KMS.

    Attributes:
        kms: what the catalog calls the KMS.
        key_id: id of the master key in it.
    """

    kms: str
    key_id: str

    def __str__(self) -> str:
        return f"{self.key_id} in the KMS {self.kms}"


class KmsClients:
    """The clients of the KMSs, by name.

    Args:
        main: the KMS of master key ids that no key was made under yet.
        others: further KMSs.
    """

    def __init__(self, main: CountedKms, others: Iterable[CountedKms] = ()) -> None:
        self.main = main
        self.by_name: Mapping[str, CountedKms] = MappingProxyType(
            {each.identifier: each for each in (*others, main)}
        )

    def named(self, name: str) -> CountedKms:
        """Return the client of a KMS.

        Raises:
            KeyNotUsable: no KMS of that name is configured.
        """
        client = self.by_name.get(name)
        if client is None:
            raise KeyNotUsable(
                f"The KMS {name!r} is not configured. Configured: {', '.join(sorted(self.by_name))}.",
                rule="kms",
                hint=f"Configure it as [kms], or as [other_kms.{name}] beside the main KMS.",
            )
        return client
