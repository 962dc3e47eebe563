"""Computes file identities, and an index of them for each manifest.

Rules:

- The identity of a file is its path, for any spelling of scheme and host: readers keep what they read of a
  file by its path, so one file has one entry, whatever the content type and the columns that it compares. An
  entry with an offset is a deletion vector. A Puffin file has many, so the referenced file and the offset are
  added (Iceberg specification, "Data File Fields").
- The keys of an encrypted file are bound to its file id. In an encrypted table, two files with one id count
  as the same file.
- An index is the sorted 64-bit hashes of the live files of one manifest. If a hash is missing, the file is
  not in the manifest. If a hash is found, the manifest has to be opened and compared.
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catalog.envelope.file_ids import shown_file_ids
from catalog.snapshot_checks.entries import alive
from policy.location.location import Location

Hashes = npt.NDArray[np.uint64]

_HASH_BYTES: Final = 8
_SEPARATOR: Final = "\n"
#: The scheme and the slashes after it. Spellings of one location can differ in them.
_SCHEME: Final = "^[A-Za-z0-9]+:/*"
#: Spellings can also differ in the case of the host, which hardly any writer capitalizes.
_CAPITALS: Final = "^[A-Za-z0-9]+://[^/]*[A-Z]"


def identities(entries: pa.Table) -> pa.Array:
    """Return one text per entry, equal for the same file only."""
    texts = _places(entries["file_path"])
    vectors = pc.is_valid(entries["content_offset"])
    if not pc.any(vectors).as_py():
        return texts
    # The text of an entry does not depend on the other entries of its manifest.
    longer = _joined(texts, entries["referenced_data_file"], entries["content_offset"])
    return _flat(pc.if_else(vectors, longer, texts))


def file_ids(entries: pa.Table) -> pa.Array:
    """Return the file id in each entry's path, which never equals an identity; null if there is none."""
    return _flat(shown_file_ids(entries["file_path"]))


def hashes(texts: pa.Array | pa.ChunkedArray) -> Hashes:
    """Return the hash of each text that is not null."""
    values = texts.drop_null().cast(pa.binary()).to_pylist()
    digests = b"".join(hashlib.blake2b(value, digest_size=_HASH_BYTES).digest() for value in values)
    return np.frombuffer(digests, np.uint64)


def index(entries: pa.Table) -> Hashes:
    """Return the index of a manifest with these entries: identities and file ids of its live files."""
    files = alive(entries)
    return np.unique(np.concatenate([hashes(identities(files)), hashes(file_ids(files))]))


def may_share(one: Hashes, other: Hashes) -> bool:
    """Return whether two sets of hashes have a common element; `one` is sorted."""
    if not len(one) or not len(other):
        return False
    places = np.searchsorted(one, other)
    return bool((one[np.minimum(places, len(one) - 1)] == other).any())


def _places(paths: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return paths without the parts in which spellings differ."""
    paths = _flat(paths)
    capital = pc.fill_null(pc.match_substring_regex(paths, _CAPITALS), False)
    if pc.any(capital).as_py():
        canonical = [Location.parse(path).canonical for path in paths.filter(capital).to_pylist()]
        paths = pc.replace_with_mask(paths, capital, pa.array(canonical, pa.string()))
    return pc.replace_substring_regex(paths, _SCHEME, "")


def _joined(*parts: pa.Array | pa.ChunkedArray) -> pa.Array:
    texts = [_flat(part.cast(pa.string())) for part in parts]
    return pc.binary_join_element_wise(*texts, _SEPARATOR, null_handling="replace", null_replacement="")


def _flat(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Combine chunks into one array: texts of a commit's files are below Arrow's limit of 2 GiB."""
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
