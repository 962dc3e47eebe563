package org.apache.spark.sql.lakewarden.read

import java.util

import org.roaringbitmap.RoaringBitmap

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.lakewarden.restrictions.RowTest
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.vectorized.{ColumnarBatch, ColumnVector}

/** The rows of equality deletes that compare the same columns.
  *
  * @param columns
  *   ids of these
  */
private[read] final case class DeletedKeys(columns: Seq[Int], sets: Seq[util.Set[UnsafeRow]])

/** Which rows of one file are read.
  *
  * @param deleted
  *   those that are not
  * @param only
  *   those that are, and no others; none: all others
  * @param filter
  *   the row filter for the user; none: all rows are
  */
private[read] final class KeptRows(deleted: Option[Deleted], only: Option[Deleted], filter: Option[RowTest]) {
  private var all = Array.emptyIntArray

  /** Finds the rows of a batch that are read.
    *
    * @param numbers
    *   of its rows in the file, ascending, where there are positions
    * @param left
    *   is filled with their places
    * @return
    *   how many there are
    */
  def select(batch: ColumnarBatch, numbers: => ColumnVector, left: Array[Int]): Int = {
    val count = batch.numRows
    if (all.length < count) all = Array.range(0, count)
    System.arraycopy(all, 0, left, 0, count)
    val allowed = filter.fold(count)(_.keep(batch, left, count))
    if (deleted.isEmpty && only.isEmpty) allowed else undeleted(batch, numbers, left, allowed)
  }

  private def undeleted(batch: ColumnarBatch, numbers: => ColumnVector, left: Array[Int], some: Int): Int = {
    val (gone, chosen) = (deleted.map(_.in(batch, numbers)), only.map(_.in(batch, numbers)))
    var count = 0
    for (at <- 0 until some) {
      val row = left(at)
      if (!gone.exists(_(row)) && chosen.forall(_(row))) {
        left(count) = row
        count += 1
      }
    }
    count
  }
}

/** Which rows of one file are deleted.
  *
  * @param schema
  *   what is read of the file, with ids
  * @param positions
  *   numbers of deleted rows
  */
private[read] final class Deleted(schema: StructType, positions: Option[RoaringBitmap], keys: Seq[DeletedKeys]) {
  private val byKey = keys.map(each => new RowKeys(schema, each.columns) -> each.sets)

  /** Whether a row of a batch is deleted, by its place in it.
    *
    * @param numbers
    *   of its rows in the file, ascending, where there are positions
    */
  def in(batch: ColumnarBatch, numbers: => ColumnVector): Int => Boolean = {
    val here = positions.map(_ -> numbers).filter { case (deleted, of) =>
      batch.numRows > 0 && deleted.intersects(of.getLong(0), of.getLong(batch.numRows - 1) + 1)
    }
    row => here.exists { case (deleted, of) => deleted.contains(of.getLong(row).toInt) } || isEqual(batch, row)
  }

  private def isEqual(batch: ColumnarBatch, row: Int): Boolean = byKey.exists { case (keys, sets) =>
    val key = keys.of(batch.getRow(row))
    sets.exists(_.contains(key))
  }
}
