package org.apache.spark.sql.lakewarden.read

import java.util.concurrent.TimeUnit

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.connector.read.streaming._
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.TableHandle
import org.apache.spark.sql.lakewarden.options.StreamOptions
import org.apache.spark.sql.lakewarden.rest.{Answers, CatalogClient}

/** Reads the appends to a table, one micro-batch after the other.
  *
  * Each micro-batch is planned when it begins, as every scan is: by what its user can read then. Filters do not change
  * which files are counted, so that offsets mean the same whatever the query.
  *
  * @param plans
  *   what the catalog says of parts of the table
  */
private[read] final class GuardedStream(
    handle: TableHandle, options: StreamOptions, scan: GuardedScan, plans: StreamPlans)
    extends MicroBatchStream
    with SupportsTriggerAvailableNow {
  import GuardedStream._
  private val table = handle.table
  private val start = new StreamStart(table.fullName, options, plans)
  private var seen = Option.empty[Seen]
  private var pinned = Option.empty[Long]
  private var factory: PartitionReaderFactory = Nothing

  override def getDefaultReadLimit: ReadLimit = options.limit
  override def initialOffset(): Offset = start.of(history())
  override def deserializeOffset(json: String): Offset = StreamOffset.parse(json)
  override def commit(end: Offset): Unit = ()
  override def stop(): Unit = ()
  override def latestOffset(): Offset =
    throw new UnsupportedOperationException("Spark asks sources with limits by latestOffset(start, limit).")

  /** Trigger.AvailableNow: what comes later is left to another run. */
  override def prepareForTriggerAvailableNow(): Unit = pinned = history().head.map(_.id).orElse(Some(NoSnapshot))

  override def latestOffset(offset: Offset, limit: ReadLimit): Offset = {
    val now = history()
    val from = begun(offset, now)
    val last = pinned.orElse(now.head.map(_.id)).getOrElse(NoSnapshot)
    if (from == StreamOffset.Start || last == NoSnapshot) from
    else {
      val later = now.between(from.snapshotId, last)
      val budget = new StreamBudget(limit)
      val files = if (from.whole) plans.whole(from.snapshotId) else plans.appended(later.head)
      val at = from.copy(position = files.after(from.position, budget))
      if (at.position < files.end || (from.whole && at != from)) at
      else advanced(from, at, later.tail, budget)
    }
  }

  override def planInputPartitions(offset: Offset, end: Offset): Array[InputPartition] = {
    val (from, to) = (begun(offset, history()), StreamOffset.of(end))
    val files = if (from == to) None else part(from, to).map(each => each -> plans.of(each))
    files.fold(Array.empty[InputPartition]) { case (read, asked) =>
      factory = scan.readerFactory(asked.get)
      scan.partitions(asked, chosen(read, asked.get, from, to), () => plans.of(read))
    }
  }

  /** Spark asks for the partitions first. */
  override def createReaderFactory(): PartitionReaderFactory = factory

  /** Goes on through later snapshots as long as there is room, and ends before one that it must not skip. */
  private def advanced(
      from: StreamOffset, at: StreamOffset, later: Seq[StreamSnapshot], budget: StreamBudget): StreamOffset = {
    val readable = later.takeWhile(isReadable)
    if (readable.isEmpty && at == from) later.headOption.foreach(each => throw unreadable(each))
    if (budget.isUnlimited) readable.lastOption.fold(at)(each => StreamOffset(each.id, plans.appended(each).end))
    else {
      var (reached, full) = (at, false)
      val next = readable.iterator
      while (next.hasNext && !full) {
        val snapshot = next.next()
        val files = plans.appended(snapshot)
        val taken = files.after(0, budget)
        full = taken < files.end
        if (taken > 0 || !full) reached = StreamOffset(snapshot.id, taken)
      }
      reached
    }
  }

  /** What a micro-batch reads; none: nothing. */
  private def part(from: StreamOffset, to: StreamOffset): Option[StreamPart] =
    if (to == StreamOffset.Start) None
    else if (to.whole) Some(WholeSnapshot(to.snapshotId))
    else {
      val all = history().between(from.snapshotId, to.snapshotId)
      val done = from.whole || plans.isComplete(from)
      val appends = (if (done) all.tail else all).filter(_.appends)
      appends.headOption.map(Appends(_, appends.last))
    }

  /** The files between two offsets. */
  private def chosen(part: StreamPart, plan: Plan, from: StreamOffset, to: StreamOffset): Seq[PlannedFile] =
    part match {
      case WholeSnapshot(id) =>
        val read = if (from.snapshotId == id) from.position else 0L
        StreamPlans.ordered(plan.files).slice(read.toInt, to.position.toInt)
      case Appends(first, last) =>
        val added = plan.files.groupBy(_.sequence)
        history().between(first.id, last.id).flatMap { snapshot =>
          val files = StreamPlans.ordered(added.getOrElse(snapshot.sequence, Nil))
          val until = if (snapshot.id == to.snapshotId) to.position.toInt else files.size
          files.slice(if (snapshot.id == from.snapshotId) from.position.toInt else 0, until)
        }
    }

  private def begun(offset: Offset, now: StreamHistory): StreamOffset = StreamOffset.of(offset) match {
    case StreamOffset.Start => start.of(now)
    case other              => other
  }

  private def isReadable(snapshot: StreamSnapshot): Boolean = snapshot.operation match {
    case "append" | "replace" => true
    case "overwrite"          => options.skipOverwrites.contains(true)
    case "delete"             => options.skipDeletes.contains(true)
    case _                    => false
  }

  private def unreadable(snapshot: StreamSnapshot): LakewardenException = {
    val option = if (snapshot.operation == "delete") StreamOptions.SkipDeletes else StreamOptions.SkipOverwrites
    LakewardenException.notSupportedYet(
      s"The snapshot ${snapshot.id} of ${table.fullName} is of the operation '${snapshot.operation}'. A stream reads " +
        "appended rows only.", "stream-snapshot", s"To skip such snapshots, set the read option $option=true.")
  }

  /** The table's snapshots, as they were a moment ago, or since this JVM changed something in the catalog. */
  private def history(): StreamHistory = synchronized {
    val (now, changes) = (System.nanoTime, CatalogClient.changes)
    val kept = seen.filter(each => now - each.at < ForNanos && each.changes == changes)
    kept.getOrElse {
      val loaded = Seen(now, changes, load())
      seen = Some(loaded)
      loaded
    }.history
  }

  private def load(): StreamHistory = {
    val metadata = Answers.field(handle.client.post(table.engineSegments("load")), "metadata")
    if (metadata.path("table-uuid").asText != table.uuid.toString) throw new LakewardenException(
      "TableChanged", s"The table ${table.fullName} was dropped and created again.", Some("table-changed"),
      Some("Start the query with another checkpoint location."))
    new StreamHistory(table.fullName, metadata, table.branch.ref)
  }
}

private object GuardedStream {
  private val ForNanos = TimeUnit.SECONDS.toNanos(1)
  private val NoSnapshot = -1L

  private final case class Seen(at: Long, changes: Long, history: StreamHistory)

  /** Of a micro-batch without files. */
  private object Nothing extends PartitionReaderFactory {
    override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
      throw new UnsupportedOperationException("The micro-batch has no files.")
  }
}
