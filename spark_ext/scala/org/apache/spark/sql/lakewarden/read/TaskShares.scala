package org.apache.spark.sql.lakewarden.read

import java.util

import scala.util.hashing.MurmurHash3

/** Shares files out among tasks, each file by its name alone.
  *
  * So some tasks get more than others, and one that begins late keeps the query waiting. Spark begins tasks in their order,
  * as soon as a core is free. So the later a task begins, the less it gets: of the rounds of one task for each core, the
  * last one has one share, the one before three, then five, and so on.
  *
  * @param tasks
  *   how many there are
  * @param cores
  *   how many run at once
  */
private[read] final class TaskShares(val tasks: Int, cores: Int) {

  /** For each task, the shares of this and all tasks before it. */
  private val upTo: Array[Long] = {
    val rounds = (tasks - 1) / cores
    Array.tabulate(tasks)(task => 2L * (rounds - task / cores) + 1).scanLeft(0L)(_ + _).tail
  }

  /** The task that reads a file. */
  def of(name: String): Int = {
    val hash = Integer.toUnsignedLong(MurmurHash3.stringHash(name))
    val share = (hash / (1L << 32).toDouble * upTo.last).toLong
    val found = util.Arrays.binarySearch(upTo, share + 1)
    if (found >= 0) found else -found - 1
  }
}
