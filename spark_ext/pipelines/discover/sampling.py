"""Counts, on executors, how many sampled values of each column the detectors match.

What comes back from an executor is numbers of columns, ids of detectors, and counts. Values are compared in
the memory of the Python worker, and leave it in no answer, message or log. So nothing here raises an error
that has a value in its text: texts are decoded without refusing any, and detectors answer yes or no.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds_of
from pyspark.sql import DataFrame, Row
from pyspark.sql.functions import col

from spark_ext.pipelines.discover.detectors import LONGEST, Detector, detectors, matching
from spark_ext.pipelines.discover.evidence import Looked
from spark_ext.pipelines.lake import quoted

ANSWER: Final = "leaf INT, detector STRING, hits BIGINT"
_ARROW: Final = pa.schema([("leaf", pa.int32()), ("detector", pa.string()), ("hits", pa.int64())])
#: The place of a detector's id, in the row that counts all values.
_ALL: Final = ""
#: Distinct values of a column that a task looks at.
_MOST_VALUES: Final = 20_000


@dataclass(frozen=True, slots=True)
class Looking:
    """What executors look for.

    Attributes:
        roots: the full dotted names of what is read.
        leaves: the full dotted names of the columns to look at; counts name them by their position.
        rows: how many rows each task looks at.
        ids: the national identification numbers to look for.
        regions: regions whose telephone numbers are known as they are written there.
    """

    roots: tuple[str, ...]
    leaves: tuple[str, ...]
    rows: int
    ids: tuple[str, ...]
    regions: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Look at the first rows of a task, and yield the counts; the function of `DataFrame.mapInArrow`."""
        known = detectors(self.ids, self.regions)
        found = {name: _Counts() for name in self.leaves}
        for batch in _first(batches, self.rows):
            for root, array in zip(self.roots, batch.columns, strict=True):
                for leaf, values in leaves_of(root, array):
                    if leaf in found:
                        found[leaf].add(values, known)
        rows = [
            {"leaf": number, "detector": detector, "hits": hits}
            for number, leaf in enumerate(self.leaves)
            for detector, hits in found[leaf].hits.items()
        ]
        yield pa.RecordBatch.from_pylist(rows, _ARROW)


def _first(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, rows)
        rows -= batch.num_rows
        if rows <= 0:
            return


@dataclass
class _Counts:
    """How many distinct values of a column each detector matches; the values themselves are not kept."""

    hits: Counter[str] = field(default_factory=Counter)
    _seen: set[int] = field(default_factory=set, repr=False)

    def add(self, array: pa.Array, known: Sequence[Detector]) -> None:
        """Look at values, as far as there is room."""
        if len(self._seen) >= _MOST_VALUES:
            return
        for text in texts_of(array):
            if len(self._seen) < _MOST_VALUES and hash(text) not in self._seen:
                self._seen.add(hash(text))
                self.hits[_ALL] += 1
                self.hits.update(matching(known, text))


def texts_of(array: pa.Array) -> Iterator[str]:
    """Yield the distinct values of a leaf as texts, without spaces around them, and without empty ones.

    A text is cut after some thousand bytes. Binary values that are not UTF-8 are left out; in strings, what
    is not UTF-8 is replaced.
    """
    binary = kinds_of.is_binary(array.type) or kinds_of.is_large_binary(array.type)
    if binary or kinds_of.is_string(array.type) or kinds_of.is_large_string(array.type):
        cut = pc.binary_slice(array.cast(pa.large_binary()), 0, LONGEST)
        decoded = (_decoded(each, binary) for each in cut.unique().to_pylist() if each)
    else:
        decoded = (str(each) for each in array.unique().to_pylist() if each is not None)
    yield from filter(None, (each.strip() for each in decoded))


def _decoded(value: bytes, binary: bool) -> str:
    # A cut can be in the middle of a character: it leaves up to three bytes of it.
    text = value.decode(errors="replace")
    return "" if binary and "\ufffd" in text[:-3] else text


def leaves_of(name: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield the arrays of the leaves in an array, by their full dotted names.

    Args:
        name: the name of the array, with those of structs around it.
        array: the array.
    """
    if kinds_of.is_struct(array.type):
        for part, inner in zip(array.type, array.flatten(), strict=True):
            yield from leaves_of(f"{name}.{part.name}", inner)
    elif kinds_of.is_map(array.type):
        # `keys` and `items` of a map have those of rows outside of the slice, too.
        entry = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
        for part, inner in zip(entry, array.cast(pa.list_(entry)).flatten().flatten(), strict=True):
            yield from leaves_of(f"{name}.{part.name}", inner)
    elif kinds_of.is_list(array.type) or kinds_of.is_large_list(array.type):
        yield from leaves_of(f"{name}.element", array.flatten())
    else:
        yield name, array


def sample(frame: DataFrame, roots: Mapping[str, Sequence[str]], looking: Looking) -> list[Row]:
    """Read a sample of a table, and return the counts.

    Args:
        frame: the table.
        roots: by full dotted name, the parts of the name of each thing to read.
        looking: what to look for.

    Raises:
        PySparkException: the table cannot be read.
    """
    chosen = [
        col(".".join(map(quoted, parts))).alias(f"c{number}") for number, parts in enumerate(roots.values())
    ]
    return frame.select(*chosen).mapInArrow(looking, ANSWER).collect()


def looked(counts: Sequence[Row], leaves: Sequence[str]) -> dict[str, Looked]:
    """Sum up what the tasks of a sample counted, by the names of the columns.

    A value that two tasks have is counted twice.
    """
    hits: dict[str, Counter[str]] = defaultdict(Counter)
    for leaf, detector, found in counts:
        hits[leaves[leaf]][detector] += found
    return {name: Looked(each.pop(_ALL, 0), dict(each)) for name, each in hits.items()}
