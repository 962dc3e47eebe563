"""Which worker process runs which file of tests: few of them start the Spark that tests share.

A Spark costs seconds of CPU before it runs warm. The other workers run the tests without it meanwhile, which
wait for processes and clocks more often.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_SHARES_SPARK: Final = "tests/spark/"
#: How many workers start with the tests of the shared Spark.
_WITH_SPARK: Final = 2


class FewSparks(LoadFileScheduling):
    """Files go to workers as with `--dist loadfile`; a worker takes the files of its kind first."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        with_spark = node in self.nodes[:_WITH_SPARK]
        of_its_kind = (file for file in self.workqueue if file.startswith(_SHARES_SPARK) is with_spark)
        first = next(of_its_kind, None)
        if first is not None:
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)
