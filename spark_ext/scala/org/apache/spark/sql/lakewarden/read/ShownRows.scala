package org.apache.spark.sql.lakewarden.read

import org.apache.spark.sql.vectorized.{ColumnarBatch, ColumnVector}

/** The rows of one file as a query sees them: without those that are deleted, without the columns that only deletes
  * need, and with the metadata columns behind the others.
  *
  * @param source
  *   reads the rows of the file
  * @param kept
  *   which rows are shown; none: all
  * @param columns
  *   the columns that the query wants, as it sees them
  * @param metadata
  *   the metadata columns; of the position none
  */
private[read] final class ShownRows(
    source: BatchReader, kept: Option[KeptRows], columns: ColumnarBatch => Seq[ColumnVector],
    metadata: Seq[Option[ColumnVector]], batches: Boolean)
    extends FileReader {
  private lazy val all = shown(identity)
  private var left = Array.emptyIntArray
  private var (now, row) = (Option.empty[ColumnarBatch], 0)

  override def next(): Boolean = {
    row += 1
    if (!batches && now.exists(row < _.numRows)) return true
    row = 0
    now = None
    while (now.isEmpty && source.next()) now = following
    now.nonEmpty
  }

  override def current: AnyRef = if (batches) now.get else now.get.getRow(row)

  override def close(): Unit = source.close()

  /** What is left of the batch; none: nothing. */
  private def following: Option[ColumnarBatch] = {
    val count = source.batch.numRows
    if (kept.nonEmpty && left.length < count) left = new Array[Int](count)
    kept.map(_.select(source.batch, source.positions, left)) match {
      case Some(0)                    => None
      case Some(some) if some < count => Some(sized(shown(new SelectedVector(_, left)), some))
      case _                          => Some(sized(all, count))
    }
  }

  private def shown(part: ColumnVector => ColumnVector): ColumnarBatch = {
    new ColumnarBatch((columns(source.batch) ++ metadata.map(_.getOrElse(source.positions))).map(part).toArray)
  }

  private def sized(batch: ColumnarBatch, rows: Int): ColumnarBatch = {
    batch.setNumRows(rows)
    batch
  }
}
