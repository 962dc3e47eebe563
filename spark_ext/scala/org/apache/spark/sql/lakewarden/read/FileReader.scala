package org.apache.spark.sql.lakewarden.read

import org.apache.spark.sql.connector.read.PartitionReader
import org.apache.spark.sql.vectorized.{ColumnarBatch, ColumnVector}

/** Reads one file that has passed the guard: in batches or row by row, as it was opened for. */
private[read] trait FileReader {
  def next(): Boolean

  /** The batch or row; valid until the next. */
  def current: AnyRef

  def close(): Unit
}

/** Reads all rows of one file that has passed the guard, deleted ones too, in batches that are used again. */
private[read] trait BatchReader {

  /** Whether there is another batch; it has rows. */
  def next(): Boolean

  /** The columns that are read. */
  def batch: ColumnarBatch

  /** The number of each row in the file, whatever was left out before it; where it was opened for that. */
  def positions: ColumnVector

  def close(): Unit
}

/** Reads the files of one task that are of one format. */
private[read] trait FormatReading {

  /** @param numbered
    *   whether positions are needed
    */
  def open(split: FileSplit, numbered: Boolean, errors: ReadErrors): BatchReader

  /** What the footer of a file answers, or else its rows: the file is opened once for both.
    *
    * @param asked
    *   of the footer; none: it does not answer
    */
  def answer[T](split: FileSplit, errors: ReadErrors)(asked: FooterSummary => Option[T]): Either[T, BatchReader]
}

/** Reads file after file of a partition.
  *
  * @param open
  *   opens one; its failures are translated, as those of reading are
  */
private[read] final class GuardedReader[T](
    table: String, splits: Iterator[FileSplit], open: (FileSplit, ReadErrors) => FileReader)
    extends PartitionReader[T] {
  private var current: Option[(FileReader, ReadErrors)] = None

  override def next(): Boolean = {
    while (!current.exists { case (reader, errors) => errors.translated(reader.next()) }) {
      close()
      if (!splits.hasNext) return false
      val split = splits.next()
      val errors = ReadErrors.of(table, split.file)
      current = Some((errors.translated(open(split, errors)), errors))
    }
    true
  }

  override def get(): T = current.get._1.current.asInstanceOf[T]

  override def close(): Unit = {
    current.foreach(_._1.close())
    current = None
  }
}
