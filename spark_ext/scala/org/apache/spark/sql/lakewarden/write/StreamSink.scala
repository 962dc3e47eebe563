package org.apache.spark.sql.lakewarden.write

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.connector.write.streaming.{StreamingDataWriterFactory, StreamingWrite}
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.LoadedTable
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.types.{DataType, StructType}

/** An epoch of a streaming query: the catalog commits it once (docs/rest-api.md, "Streams").
  *
  * @param queryId
  *   the same after a restart
  */
final class EpochOf(change: Change, queryId: String, number: Long) extends Change {
  override def name: String = change.name

  override def put(body: ObjectNode): Unit = {
    change.put(body)
    body.putObject("epoch").put("query-id", queryId).put("number", number)
    ()
  }

  /** An epoch without rows need not be known, since it is as empty when it is repeated. */
  override def isEmpty(files: Seq[JsonNode]): Boolean = change == Append && files.isEmpty
}

/** Writes one micro-batch after the other as a batch does, and commits each as an epoch. */
private[write] final class GuardedStreamingWrite(batch: GuardedBatchWrite, target: EpochTarget) extends StreamingWrite {
  override def createStreamingWriterFactory(info: PhysicalWriteInfo): StreamingDataWriterFactory =
    new EpochWriterFactory(batch.createBatchWriterFactory(info))

  override def useCommitCoordinator: Boolean = true

  override def commit(epoch: Long, messages: Array[WriterCommitMessage]): Unit = {
    target.begin(epoch)
    batch.commit(messages)
  }

  override def abort(epoch: Long, messages: Array[WriterCommitMessage]): Unit = batch.abort(messages)

  override def toString: String = s"stream ${batch.toString}"
}

private final class EpochWriterFactory(tasks: DataWriterFactory) extends StreamingDataWriterFactory {
  override def createWriter(partitionId: Int, taskId: Long, epoch: Long): DataWriter[InternalRow] =
    tasks.createWriter(partitionId, taskId)

  override def toString: String = tasks.toString
}

object StreamSink {

  /** Options that Spark itself uses in a stream. */
  private[write] val OptionsOfSpark: Set[String] = Set("checkpointlocation", "queryname")

  /** Spark does not adapt the rows of a stream to the table: a column is one by its place.
    *
    * Throws `RequestInvalid` where names, types or order differ, or where a value can be missing that must not.
    */
  def requireColumns(table: LoadedTable, rows: StructType): Unit = {
    val wanted = FieldIds.strip(table.schema)
    if (!DataType.equalsIgnoreCompatibleNullability(rows, wanted)) throw new LakewardenException(
      "RequestInvalid",
      s"The columns of the stream differ from those of ${table.fullName}. Stream: ${rows.toDDL.take(500)}. " +
        s"Table: ${wanted.toDDL.take(500)}.", Some("stream-columns"),
      Some("Select the columns of the table in its order, with its types and without NULL where it has none."))
  }
}
