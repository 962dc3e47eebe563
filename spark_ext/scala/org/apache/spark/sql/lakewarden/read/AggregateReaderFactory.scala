package org.apache.spark.sql.lakewarden.read

import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.lakewarden.write.DataFormat
import org.apache.spark.util.SerializableConfiguration

/** Reads aggregates on the executors: each file passes the guard, then its footer answers, or else its rows.
  *
  * @param masked
  *   ids of columns that are shown through masks: footers tell of what the masks hide, so that rows answer
  */
private[read] final class AggregateReaderFactory(
    table: String,
    gate: FileGate,
    aggregates: PushedAggregates,
    masked: Set[Int],
    rows: GuardedReaderFactory,
    conf: Broadcast[SerializableConfiguration])
    extends PartitionReaderFactory {

  override def createReader(partition: InputPartition): PartitionReader[InternalRow] = {
    val splits = partition.asInstanceOf[GuardedPartition].splits
    val open = rows.opener(batches = false)
    if (splits.isEmpty) new OneRow(aggregates.ofNone)
    else new GuardedReader[InternalRow](table, splits.iterator, (split, errors) =>
      ofFooter(split, errors).map(new OneRow(_)).getOrElse(new RowByRow(open(split, errors), aggregates)))
  }

  private def ofFooter(split: FileSplit, errors: ReadErrors): Option[InternalRow] = split.file.format match {
    case DataFormat.Parquet if !FieldIds.all(aggregates.wanted).exists(masked) =>
      val opened = new GuardedFiles(gate, aggregates.wanted, masked).open(split, conf.value.value, errors)
      try {
        val schema = opened.footer.getFileMetaData.getSchema
        new FileColumns(schema, split.file.withoutLike, errors).renamed(aggregates.wanted) // refuses what reading refuses
        aggregates.ofFooter(new FooterSummary(opened.footer))
      } finally opened.stream.close()
    case _ => None
  }
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

/** Each row of a file as an answer. */
private final class RowByRow(rows: FileReader, aggregates: PushedAggregates) extends FileReader {
  override def next(): Boolean = rows.next()
  override def current: AnyRef = aggregates.ofRow(rows.current.asInstanceOf[InternalRow])
  override def close(): Unit = rows.close()
}
