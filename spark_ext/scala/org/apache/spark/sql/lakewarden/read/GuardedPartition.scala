package org.apache.spark.sql.lakewarden.read

import scala.collection.mutable.{ArrayBuffer, PriorityQueue}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.{HasPartitionKey, InputPartition}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lakewarden.options.ReadOptions

/** A part of a file: the row groups whose middle lies in this range of bytes. */
private[read] final case class FileSplit(file: PlannedFile, start: Long, length: Long)

/** What one task reads. Keys in it are wrapped, and not printed.
  *
  * @param lease
  *   whether the plan counts yet; it stays with the driver
  */
private[read] sealed abstract class GuardedPartition(@transient lease: PlanLease) extends InputPartition {
  def splits: Seq[FileSplit]

  /** No place is preferred. Spark asks for it each time that it begins to run tasks, on the driver. */
  override def preferredLocations(): Array[String] = {
    lease.require()
    Array.empty
  }

  override def toString: String = s"GuardedPartition(${splits.map(_.file.path).mkString(", ")})"
}

/** Parts of any files. */
private[read] final case class AnySplits(splits: Seq[FileSplit])(lease: PlanLease) extends GuardedPartition(lease)

/** Files of one partition value, in Spark's types. */
private[read] final case class KeyedSplits(splits: Seq[FileSplit], partitionKey: InternalRow)(lease: PlanLease)
    extends GuardedPartition(lease)
    with HasPartitionKey

private[read] object GuardedPartition {

  /** No more parts than this, of one file and of all, whatever sizes the table's metadata claims. */
  private val (maxSplitsOfFile, maxSplits) = (10000, 200000)

  /** Packs files into tasks by the settings of Spark's own file sources: large files are split, small ones put together.
    * There are as many tasks as Spark would make. Spark fills one after the other, so that the last ones can be almost
    * empty; here all read about as much.
    *
    * @param options
    *   go before the settings
    * @param parallelism
    *   how many tasks the cluster runs at once
    * @param alone
    *   whether a task reads parts of one file alone
    */
  def pack(
      files: Seq[PlannedFile], lease: PlanLease, conf: SQLConf, options: ReadOptions, parallelism: Int,
      alone: Boolean = false): Array[InputPartition] = {
    val openCost = options.openCost.getOrElse(conf.filesOpenCostInBytes)
    val wanted = math.max(conf.filesMinPartitionNum.getOrElse(parallelism), 1)
    val total = files.map(file => file.size.toDouble + openCost).sum
    val bySettings = math.min(conf.filesMaxPartitionBytes.toDouble, math.max(openCost.toDouble, total / wanted))
    val most = math.max(math.max(options.splitSize.fold(bySettings)(_.toDouble), total / maxSplits), 1).toLong
    val splits = files.flatMap(split(_, most)).sortBy(-_.length)
    val tasks = if (alone) splits.map(Seq(_)) else spread(splits, filled(splits, most, openCost), openCost)
    tasks.map(each => AnySplits(each)(lease): InputPartition).toArray
  }

  /** How many tasks a core has, if their number does not depend on the files. */
  private val tasksPerCore = 4

  /** Puts whole files into a number of tasks that settings alone decide, each file into the same task whatever other files
    * there are: neither the tasks, nor which one reads a row, tell of files with hidden rows alone or of the size of a file.
    *
    * @param parallelism
    *   how many tasks the cluster runs at once
    */
  def scatter(files: Seq[PlannedFile], lease: PlanLease, conf: SQLConf, parallelism: Int): Array[InputPartition] = {
    val cores = math.max(parallelism, 1)
    val wanted = conf.filesMinPartitionNum.fold(cores.toLong * tasksPerCore)(_.toLong)
    val shares = new TaskShares(math.min(math.max(wanted, 1), maxSplits).toInt, cores)
    val tasks = Array.fill(shares.tasks)(new ArrayBuffer[FileSplit])
    files.foreach(each => tasks(shares.of(each.path)) += FileSplit(each, 0, each.size))
    tasks.map(each => AnySplits(each.toSeq)(lease): InputPartition)
  }

  /** Every byte of the file in exactly one split; a file without bytes is read too, and refused as damaged. */
  private def split(file: PlannedFile, most: Long): Seq[FileSplit] = {
    val part = math.max(most, file.size / maxSplitsOfFile)
    if (file.size <= part) Seq(FileSplit(file, 0, file.size))
    else (0L until file.size by part).map(start => FileSplit(file, start, math.min(part, file.size - start)))
  }

  /** How many tasks there are if each is filled before the next. */
  private def filled(splits: Seq[FileSplit], most: Long, openCost: Long): Int = {
    val (tasks, _) = splits.foldLeft((0, 0L)) { case ((count, size), split) =>
      if (count > 0 && size + split.length <= most) (count, size + split.length + openCost)
      else (count + 1, split.length + openCost)
    }
    tasks
  }

  /** Gives each split, the largest first, to the task that has the least to read so far. */
  private def spread(splits: Seq[FileSplit], count: Int, openCost: Long): Seq[Seq[FileSplit]] = {
    val tasks = Array.fill(count)(new ArrayBuffer[FileSplit])
    val least = PriorityQueue.from(tasks.indices.map(0.0 -> _))(Ordering[(Double, Int)].reverse)
    splits.foreach { split =>
      val (size, task) = least.dequeue()
      tasks(task) += split
      least.enqueue((size + split.length + openCost, task))
    }
    tasks.toSeq.map(_.toSeq)
  }
}
