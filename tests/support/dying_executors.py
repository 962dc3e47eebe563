"""Executors that die in each of their tasks, however often these are tried, while a test wants it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from spark_ext.jar import spark_jar

#: When a task ends its executor: before it works; when it is done and files were written, and the driver does
#: not know it yet.
Moment = Literal["begin", "written"]

_TOLD: Final = "lakewarden.test.dying"
_DIRECTORY: Final = "lakewarden.test.written"
_PLUGIN: Final = f"""\
package lakewarden.test

import java.nio.file.{{Files, Path, Paths}}

import org.apache.spark.TaskContext
import org.apache.spark.api.plugin.{{DriverPlugin, ExecutorPlugin, SparkPlugin}}
import org.apache.spark.util.TaskCompletionListener

class DyingPlugin extends SparkPlugin {{
  override def driverPlugin: DriverPlugin = null
  override def executorPlugin: ExecutorPlugin = new DyingExecutor
}}

private final class DyingExecutor extends ExecutorPlugin {{
  private def path(property: String): Path = Paths.get(System.getProperty(property))

  override def onTaskStart(): Unit = if (is("begin")) die() else TaskContext.get.addTaskCompletionListener(
    new TaskCompletionListener {{
      override def onTaskCompletion(task: TaskContext): Unit = if (is("written") && hasWritten) die()
    }})

  private def is(moment: String): Boolean = {{
    val told = path("{_TOLD}")
    Files.exists(told) && Files.readString(told) == moment
  }}

  /** Whether a file is newer than what was told. */
  private def hasWritten: Boolean = {{
    val since = Files.getLastModifiedTime(path("{_TOLD}"))
    def isNew(file: Path) = Files.getLastModifiedTime(file).compareTo(since) > 0
    val files = Files.walk(path("{_DIRECTORY}"))
    try files.anyMatch(each => each.toString.contains("/data/") && isNew(each))
    finally files.close()
  }}

  private def die(): Unit = Runtime.getRuntime.halt(137)
}}
"""


class DyingExecutors:
    """Says when executors die.

    Attributes:
        settings: what Spark is launched with, beside options of the executors' JVMs.
        java_options: these options.
    """

    def __init__(self, directory: Path, warehouse: Path) -> None:
        sources = directory / "dying"
        sources.mkdir()
        (sources / "DyingPlugin.scala").write_text(_PLUGIN)
        self._told = directory / "dying.txt"
        self.settings = {
            "spark.jars": f"{spark_jar()},{spark_jar(sources=sources)}",
            "spark.plugins": "lakewarden.test.DyingPlugin",
            # Each attempt costs the start of a JVM.
            "spark.task.maxFailures": "2",
        }
        self.java_options = f"-D{_TOLD}={self._told} -D{_DIRECTORY}={warehouse}"

    @contextmanager
    def dying(self, moment: Moment) -> Iterator[None]:
        """Within the block, tasks end their executors."""
        written = self._told.with_suffix(".new")
        written.write_text(moment)
        os.replace(written, self._told)
        try:
            yield
        finally:
            self._told.unlink()
