"""Rebuilds the paths of a scan plan's files from directories and names.

What is checked later is the whole path. So a directory and a name have to give one path in one way: a name is
one segment, and no directory is there twice.

Source: docs/plan-format.md, "Files".
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_NO_NAMES: Final = pa.array(["", ".", ".."])


def whole_paths(directories: pa.ChunkedArray, names: pa.ChunkedArray) -> pa.ChunkedArray:
    """Join directories and names to paths.

    Args:
        directories: by file, encoded by a dictionary.
        names: by file.

    Raises:
        ValueError: a part is missing, a directory is empty or is twice in a dictionary, or a name is not one
            segment of a path.
        ArrowInvalid: the index of a directory is outside of its dictionary.
    """
    directories.validate(full=True)
    for chunk in directories.chunks:
        known = chunk.dictionary
        if known.null_count or len(known.unique()) != len(known) or pc.any(pc.equal(known, "")).as_py():
            raise ValueError("a directory is missing, empty, or there twice")
    if directories.null_count or names.null_count:
        raise ValueError("a part of a path is missing")
    no_segment = pc.or_(pc.match_substring(names, "/"), pc.is_in(names, value_set=_NO_NAMES))
    if pc.any(no_segment).as_py():
        raise ValueError("a name that is not one segment of a path")
    return pc.binary_join_element_wise(directories.cast(pa.string()), names, "/")
