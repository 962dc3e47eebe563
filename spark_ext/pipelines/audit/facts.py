"""What is known of a table before its files are opened, as executors get it: names, seals and numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from uuid import UUID

from catalog.iceberg.manifests.sealed_files import Digest, FileKind, SealedFile
from policy.encryption.epoch_documents import epoch_of
from policy.encryption.epochs import Epochs
from policy.location.allow_list import AllowList
from policy.location.location import Location

GOVERNED: Final = "governed"
POINTERLESS: Final = "pointerless"
#: A table of another catalog.
FOREIGN: Final = "foreign"


@dataclass(frozen=True)
class Facts:
    """A table as the catalog describes it (docs/rest-api.md, "The lake").

    Attributes:
        state: the description, as JSON values.
        seals: the seals of its manifest lists and manifests, as JSON values.
        garbage_before_ms: unreferenced files that were modified before then are garbage.
        allowed: the locations that it can be read from.
    """

    state: Mapping[str, Any]
    seals: tuple[Mapping[str, Any], ...] = ()
    garbage_before_ms: int = 0
    allowed: AllowList = field(default_factory=lambda: AllowList(()))

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Facts:
        """Make facts of what `document` returned."""
        allowed = AllowList.of(document["allowed"])
        return cls(document["state"], tuple(document["seals"]), document["garbage_before_ms"], allowed)

    @classmethod
    def governed_by(
        cls, state: Mapping[str, Any], seals: Iterable[Mapping[str, Any]], garbage_before_ms: int
    ) -> Facts:
        """Make facts of a table of this catalog."""
        governed = state["governed"]
        allowed = AllowList.of(() if governed is None else governed["allowed"])
        return cls(state, tuple(seals), garbage_before_ms, allowed)

    @property
    def version(self) -> tuple[object, ...]:
        """What changes with each commit, and with each change of what governs the table."""
        return self.pointer, self.state["sealed-location"], self.state["governed"], self.state["table-uuid"]

    def document(self, sealed: frozenset[str] | None = None) -> dict[str, Any]:
        """Return the facts as JSON values.

        Args:
            sealed: the paths whose seals are kept; None for all.
        """
        return {
            "state": self.state,
            "seals": [each for each in self.seals if sealed is None or each["path"] in sealed],
            "garbage_before_ms": self.garbage_before_ms,
            "allowed": [each.canonical for each in self.allowed.entries],
        }

    def allowing(self, allowed: AllowList) -> Facts:
        """Return the facts with other allowed locations."""
        return Facts(self.state, self.seals, self.garbage_before_ms, allowed)

    @property
    def table(self) -> str:
        """The dotted name."""
        name: str = self.state["table"]
        return name

    @property
    def pointer(self) -> str | None:
        """The metadata.json that the pointer names."""
        location: str | None = self.state["metadata-location"]
        return location

    @property
    def is_governed(self) -> bool:
        """Whether the catalog governs the table."""
        return self.state["governed"] is not None

    @property
    def seal(self) -> Digest | None:
        """The seal of the metadata that the pointer names; None if it is unsealed."""
        found = self.state["seal"]
        if found is None or self.pointer != self.state["sealed-location"]:
            return None
        return Digest(found["sha256"], found["length"])

    @property
    def uuid(self) -> UUID | None:
        """The table's UUID, if the catalog governs it."""
        return UUID(self.state["table-uuid"]) if self.state["table-uuid"] else None

    @cached_property
    def epochs(self) -> Epochs | None:
        """The encryption epochs; None for a table that the catalog does not govern."""
        if not self.is_governed:
            return None
        return Epochs.of(epoch_of(each) for each in self.state["governed"]["epochs"])

    @property
    def ever_encrypted(self) -> bool:
        """Whether any epoch encrypts."""
        return self.epochs is not None and any(each.spec.encrypts for each in self.epochs.entries)

    @cached_property
    def sealed(self) -> dict[str, SealedFile]:
        """The sealed files by path."""
        return {each["path"]: _sealed(each) for each in self.seals}

    @cached_property
    def others(self) -> tuple[tuple[str, Location], ...]:
        """The locations of other tables, which are not dropped, that meet one of this table."""
        return tuple(
            (each["table"], Location.parse(each["location"]))
            for each in self.state["others"]
            if not each["dropped"]
        )


def _sealed(seal: Mapping[str, Any]) -> SealedFile:
    return SealedFile(
        seal["path"],
        FileKind(seal["kind"]),
        Digest(seal["sha256"], seal["length"]),
        seal["snapshot-id"],
        seal["sequence-number"],
        seal["partition-spec-id"],
        seal["content"],
    )
