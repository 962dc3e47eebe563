package org.apache.spark.sql.lakewarden.write

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}
import org.apache.orc.{OrcFile => Orc, TypeDescription}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.schema.OrcSchema

/** One ORC file while it is written.
  *
  * Dates and times are written as Iceberg's own writers do: days and instants as they are, in no other calendar or
  * time zone.
  *
  * @param location
  *   as it is committed
  */
private[write] final class OrcFile(template: FileTemplate, location: String) extends DataFile {
  if (template.write.encryption.nonEmpty) throw LakewardenException.notSupportedYet(
    "ORC files of encrypted tables are not written yet.", "file-format", "Write the table as Parquet.")
  private val conf = template.conf.value
  private val schema = OrcSchema.of(template.schema)
  private val path = StoredPath.of(location, conf)
  private val storage = new OneNewFile(StoredPath.fileSystem(path, conf))
  private val writer = Orc.createWriter(path, options)
  private val batch = schema.createRowBatch(TypeDescription.RowBatchVersion.USE_DECIMAL64, OrcFile.BatchRows)
  private val rows = new OrcRows(template.schema)

  override def write(row: InternalRow): Unit = {
    rows.put(row, batch)
    if (batch.size == batch.getMaxSize) flush()
  }

  /** Of what is still in memory a part reaches the file, since it is encoded and compressed. */
  override def isFull: Boolean = batch.size == 0 &&
    storage.length + (writer.estimateMemory * OrcFile.Encoded).toLong >= template.settings.targetFileSize

  override def close(): ObjectNode = {
    flush()
    writer.close()
    val entry = JsonNodeFactory.instance.objectNode().put("path", location).put("file-format", "orc")
    entry.put("record-count", writer.getNumberOfRows).put("file-size-in-bytes", storage.length)
    val splits = entry.putArray("split-offsets")
    writer.getStripes.asScala.foreach(stripe => splits.add(stripe.getOffset))
    CommitJson.put(entry, OrcStatistics.of(schema, writer.getStatistics, writer.getNumberOfRows, Set.empty))
    entry
  }

  override def abandon(): Unit = writer.close()

  private def flush(): Unit = if (batch.size > 0) {
    writer.addRowBatch(batch)
    batch.reset()
  }

  private def options: Orc.WriterOptions = {
    val settings = template.settings.orc
    Orc.writerOptions(conf)
      .fileSystem(storage)
      .setSchema(schema)
      .overwrite(false)
      .useUTCTimestamp(true)
      .compress(settings.codec)
      .stripeSize(settings.stripeSize)
      .blockPadding(false)
  }
}

private object OrcFile {
  private val BatchRows = 1024
  private val Encoded = 0.2
}
