"""The key metadata of many files, most of which differ in their wrapped keys alone.

Rules:
- What was not seen before is parsed as strictly as ever. What has the same length and the same bytes
  everywhere but in its wrapped keys is taken apart in the same places: it says the same, so it parses the
  same.
- A form is compared by identity: what holds for one file of a form and a regime holds for all of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from catalog.keys.key_metadata import KeyEntry, KeyMetadata

#: The header, and of the first key the role, the id of its PEK and the version.
_BEGINNING: Final = 4 + 1 + 16 + 4


class Form:
    """What files of one form share.

    Args:
        data: the key metadata of the first one.
        metadata: the same, parsed.
    """

    __slots__ = ("_fixed", "_places", "metadata")

    def __init__(self, data: bytes, metadata: KeyMetadata) -> None:
        self.metadata = metadata
        fixed, places, at = [], [], 4
        start = 0
        for binding, wrapped in metadata.entries:
            begin = at + len(binding) + 1
            at = begin + len(wrapped)
            fixed.append((start, begin, data[start:begin]))
            places.append((binding, begin, at))
            start = at
        self._fixed, self._places = tuple(fixed), tuple(places)

    def fits(self, data: bytes) -> bool:
        """Whether key metadata of the same length is of this form."""
        return all(data[start:end] == same for start, end, same in self._fixed)

    def read(self, data: bytes) -> KeyMetadata:
        """Key metadata that is of this form."""
        entries = tuple([KeyEntry(binding, data[start:end]) for binding, start, end in self._places])
        return KeyMetadata(self.metadata.header, entries)


class Formed(NamedTuple):
    """The key metadata of a file, and its form."""

    metadata: KeyMetadata
    form: Form


class FormReader:
    """Reads the key metadata of one table's files; for one thread."""

    def __init__(self) -> None:
        self._latest: dict[tuple[int, bytes], Form] = {}

    def read(self, data: bytes) -> Formed:
        """The key metadata of one file.

        Raises:
            DecryptionRefused: see `KeyMetadata.parse`.
        """
        looks = len(data), data[:_BEGINNING]
        form = self._latest.get(looks)
        if form is not None and form.fits(data):
            return Formed(form.read(data), form)
        metadata = KeyMetadata.parse(data)
        form = self._latest[looks] = Form(data, metadata)
        return Formed(metadata, form)
