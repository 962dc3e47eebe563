package org.apache.spark.sql.lakewarden.read

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.lakewarden.schema.FieldIds

/** Reads aggregates on the executors: each file passes the guard, then its footer answers, or else its rows, out of
  * the file as it was opened for the footer; of a file with deletes, the rows that are left.
  *
  * @param masked
  *   ids of columns that are shown through masks: footers tell of what the masks hide, so that rows answer
  */
private[read] final class AggregateReaderFactory(
    table: String, aggregates: PushedAggregates, masked: Set[Int], rows: GuardedReaderFactory)
    extends PartitionReaderFactory {

  override def createReader(partition: InputPartition): PartitionReader[InternalRow] = {
    val splits = partition.asInstanceOf[GuardedPartition].splits
    val files = rows.files
    // Once a task, so that nothing counts files without a row for the user.
    val none = aggregates.ofNone.iterator
    if (splits.isEmpty) new Answer(aggregates.ofNone)
    else new GuardedReader[InternalRow](table, splits.iterator, (split, errors) =>
      files.answer(split, errors)(ofFooter(_, split.file)) match {
        case Left(answer) => new Answer(answer)
        case Right(rows)  => new RowByRow(rows, aggregates, none)
      })
  }

  private def ofFooter(footer: FooterSummary, file: PlannedFile): Option[Option[InternalRow]] =
    if (FieldIds.all(aggregates.wanted).exists(masked)) None else aggregates.ofFooter(footer, file)
}

/** The answer, if there is one, of a footer or of nothing at all. */
private final class Answer(answer: Option[InternalRow]) extends FileReader with PartitionReader[InternalRow] {
  private val rows = answer.iterator
  private var row: InternalRow = _

  override def next(): Boolean = {
    val more = rows.hasNext
    if (more) row = rows.next()
    more
  }

  override def current: AnyRef = row
  override def get(): InternalRow = row
  override def close(): Unit = ()
}

/** Each row of a file as an answer, after that of no row, if there is one: all of them may be deleted.
  *
  * @param first
  *   the answer of no row, where the task has not given it
  */
private final class RowByRow(rows: FileReader, aggregates: PushedAggregates, first: Iterator[InternalRow])
    extends FileReader {
  private var answer: InternalRow = _

  override def next(): Boolean = {
    val more = first.hasNext || rows.next()
    if (first.hasNext) answer = first.next()
    else if (more) answer = aggregates.ofRow(rows.current.asInstanceOf[InternalRow])
    more
  }

  override def current: AnyRef = answer
  override def close(): Unit = rows.close()
}
