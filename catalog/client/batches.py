"""Cuts rows into batches by their own number.

Rows come row group by row group. Where a row filter hides some of them, such batches would tell between which
rows a row group ends, and so about how many hidden rows lie there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

#: In a batch.
ROWS: Final = 65_536


def rebatched(batches: Iterable[pa.RecordBatch], rows: int = ROWS) -> Iterator[pa.RecordBatch]:
    """Cut batches anew by their rows.

    Args:
        batches: rows in their order.
        rows: the number of rows of each new batch; the last one can have fewer.
    """
    waiting, count = list[pa.RecordBatch](), 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count >= rows:
            joined = pa.concat_batches(waiting)
            full = count - count % rows
            yield from (joined.slice(start, rows) for start in range(0, full, rows))
            waiting, count = [joined.slice(full)], count - full
    if count:
        yield pa.concat_batches(waiting)
