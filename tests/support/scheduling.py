"""Which worker process runs which file of tests: few of them start the Spark that tests share.

A Spark costs seconds of CPU before it runs, and more before it runs warm. The other workers run the tests
without it, which wait for processes and clocks more often, and end when there are no more of these.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_SHARES_SPARK: Final = "tests/spark/"
#: How many workers run the tests of the shared Spark.
_WITH_SPARK: Final = 2


class FewSparks(LoadFileScheduling):
    """Files go to workers as with `--dist loadfile`, but those of the shared Spark to two workers alone."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        shares_spark = self._shares_spark(node)
        of_its_kind = (file for file in self.workqueue if file.startswith(_SHARES_SPARK) is shares_spark)
        first = next(of_its_kind, None)
        if first is not None:
            self.workqueue.move_to_end(first, last=False)
        elif not shares_spark:
            node.shutdown()
            return
        super()._assign_work_unit(node)

    def _shares_spark(self, node: WorkerController) -> bool:
        # A worker that crashed is replaced by a new one, behind those that have ended.
        return node in [each for each in self.nodes if not each.shutting_down][:_WITH_SPARK]
