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
    if (splits.isEmpty) new OneRow(aggregates.ofNone)
    else new GuardedReader[InternalRow](table, splits.iterator, (split, errors) =>
      files.answer(split, errors)(ofFooter) match {
        case Left(answer) => new OneRow(answer)
        case Right(rows)  => new RowByRow(rows, aggregates)
      })
  }

  private def ofFooter(footer: FooterSummary): Option[InternalRow] =
    if (FieldIds.all(aggregates.wanted).exists(masked)) None else aggregates.ofFooter(footer)
}

/** One answer, of a footer or of nothing at all. */
private final class OneRow(answer: InternalRow) extends FileReader with PartitionReader[InternalRow] {
  private var left = true

  override def next(): Boolean = {
    val more = left
    left = false
    more
  }

  override def current: AnyRef = answer
  override def get(): InternalRow = answer
  override def close(): Unit = ()
}

/** Each row of a file as an answer, after that of no row: all of them may be deleted. */
private final class RowByRow(rows: FileReader, aggregates: PushedAggregates) extends FileReader {
  private var answer = Option.empty[InternalRow]

  override def next(): Boolean = {
    val more = answer.isEmpty || rows.next()
    if (more) answer = Some(answer.fold(aggregates.ofNone)(_ => aggregates.ofRow(rows.current.asInstanceOf[InternalRow])))
    more
  }

  override def current: AnyRef = answer.get
  override def close(): Unit = rows.close()
}
