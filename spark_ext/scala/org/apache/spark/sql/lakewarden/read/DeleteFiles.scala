package org.apache.spark.sql.lakewarden.read

import java.util
import java.util.UUID

import scala.collection.mutable

import org.roaringbitmap.RoaringBitmap

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.restrictions.RowTest
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** Reads the delete files of one scan, on an executor. They pass the same guard as data files, and the same readers.
  *
  * A delete file is read once an executor, and kept. One that takes too much memory to be kept is read once a task
  * and data file: of position deletes then only those of the data file. What takes too much even so is refused.
  *
  * Source: Iceberg table specification, "Position Delete Files", "Equality Delete Files".
  *
  * @param plan
  *   an id of the scan's plan
  * @param compared
  *   the columns that equality deletes compare, with ids
  * @param readings
  *   how files are read of which some columns are wanted
  */
private[read] final class DeleteFiles(
    table: String, plan: UUID, compared: StructType, readings: StructType => FileSplit => FormatReading) {
  import DeleteFiles._

  private val most = DeleteCache.maxBytes
  private val mostKept = most / 2

  /** Which rows of a file are read; none: no delete file applies to it, and all are shown.
    *
    * @param schema
    *   what is read of it
    * @param filter
    *   which rows are shown; none: all
    */
  def of(file: PlannedFile, schema: StructType, filter: Option[RowTest]): Option[KeptRows] =
    Option.when(file.allDeletes.nonEmpty || filter.nonEmpty)(
      new KeptRows(deleted(file, file.deletes, schema), deleted(file, file.deletedBy, schema), filter))

  private def deleted(file: PlannedFile, by: Seq[PlannedFile], schema: StructType): Option[Deleted] = Option.when(by.nonEmpty) {
    val (equality, positions) = by.partition(_.equalityIds.nonEmpty)
    val budget = new Budget(file, most)
    val numbers = positions.flatMap(positionsIn(_, file, budget))
    val keys = equality.groupBy(_.equalityIds.sorted).toSeq.map { case (ids, files) =>
      DeletedKeys(ids, files.map(keysOf(_, ids, budget)))
    }
    new Deleted(schema, Option.when(numbers.nonEmpty)(RoaringBitmap.or(numbers: _*)), keys)
  }

  /** The positions of one data file in a delete file. */
  private def positionsIn(deletes: PlannedFile, file: PlannedFile, budget: Budget): Option[RoaringBitmap] = {
    val path = UTF8String.fromString(file.path)
    val kept = DeleteCache.of(plan, deletes.path)(tryRead(new Budget(deletes, mostKept))(readPositions(deletes, None, _)))
    val found = kept.content.getOrElse(readPositions(deletes, Some(path), budget.own)).get(path)
    found.foreach(each => budget.take(sizeOf(each)))
    found
  }

  private def keysOf(deletes: PlannedFile, ids: Seq[Int], budget: Budget): util.Set[UnsafeRow] = {
    val kept = DeleteCache.of(plan, deletes.path)(tryRead(new Budget(deletes, mostKept))(readKeys(deletes, ids, _)))
    if (kept.content.nonEmpty) budget.take(kept.bytes)
    kept.content.getOrElse(readKeys(deletes, ids, budget))
  }

  /** None if it takes more than is kept. */
  private def tryRead[T](budget: Budget)(read: Budget => T): ReadDeletes[Option[T]] =
    try ReadDeletes(Some(read(budget)), budget.taken)
    catch { case full: LakewardenException if full.kind == ReadErrors.DeletesTooLarge => ReadDeletes(None, 1) }

  private def readPositions(
      deletes: PlannedFile, only: Option[UTF8String], budget: Budget): Map[UTF8String, RoaringBitmap] = {
    val found = mutable.Map.empty[UTF8String, RoaringBitmap]
    var (path, numbers, rows) = (UTF8String.EMPTY_UTF8, new RoaringBitmap, 0L)
    def size: Long = found.iterator.map { case (name, each) => name.numBytes + BytesOfEntry + sizeOf(each) }.sum
    read(deletes, Positions) { (row, errors) =>
      if (rows == 0 || row.getUTF8String(0) != path) {
        path = row.getUTF8String(0).copy()
        numbers = if (only.forall(_ == path)) found.getOrElseUpdate(path, new RoaringBitmap) else new RoaringBitmap
      }
      numbers.add(position(row.getLong(1), errors))
      rows += 1
      if (rows % RowsBetweenChecks == 0) budget.taken(size)
    }
    budget.taken(size)
    found.toMap
  }

  private def position(number: Long, errors: ReadErrors): Int =
    if (number < 0) throw errors.damaged(s"It deletes the row $number.", "delete-position")
    else if (number > MostRows) throw errors.unsupported(
      "It deletes rows of a file with more than 4,294,967,296 rows. This is not supported.", "delete-position")
    else number.toInt

  private def readKeys(deletes: PlannedFile, ids: Seq[Int], budget: Budget): util.Set[UnsafeRow] = {
    val schema = RowKeys.only(compared, ids.toSet)
    val (keys, found) = (new RowKeys(schema, ids), new util.HashSet[UnsafeRow])
    read(deletes, schema) { (row, _) =>
      val key = keys.of(row)
      if (!found.contains(key)) {
        budget.take(key.getSizeInBytes + BytesOfEntry)
        found.add(key.copy())
      }
    }
    found
  }

  private def read(deletes: PlannedFile, schema: StructType)(use: (InternalRow, ReadErrors) => Unit): Unit = {
    val (errors, split) = (ReadErrors.of(table, deletes), FileSplit(deletes, 0, deletes.size))
    errors.translated {
      val rows = readings(schema)(split).open(split, numbered = false, errors)
      try while (rows.next()) (0 until rows.batch.numRows).foreach(row => use(rows.batch.getRow(row), errors))
      finally rows.close()
    }
  }

  /** What may be held in memory.
    *
    * @param file
    *   the file that is refused if it is more
    */
  private final class Budget(file: PlannedFile, limit: Long) {
    private var bytes = 0L

    def taken: Long = bytes

    /** So much is held by now. */
    def taken(now: Long): Unit = {
      bytes = now
      if (bytes > limit) throw ReadErrors.of(table, file).tooManyDeletes
    }

    def take(more: Long): Unit = taken(bytes + more)

    /** The same limit, for what is read on the way. */
    def own: Budget = new Budget(file, limit)
  }
}

private[read] object DeleteFiles {
  private val MostRows = 0xffffffffL
  private val RowsBetweenChecks = 1L << 16

  /** What an entry takes beside its own bytes, on the safe side. */
  private val BytesOfEntry = 200L

  /** A bitmap of few positions takes more than it says. */
  private def sizeOf(positions: RoaringBitmap): Long = 4 * positions.getLongSizeInBytes

  /** The columns of position deletes. */
  private val Positions: StructType = StructType(Seq(
    FieldIds.put(StructField("file_path", StringType, nullable = false), 2147483546, Map.empty),
    FieldIds.put(StructField("pos", LongType, nullable = false), 2147483545, Map.empty)))
}
