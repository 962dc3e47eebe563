package org.apache.spark.sql.lakewarden.write

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}
import org.apache.orc.{OrcFile => Orc, TypeDescription}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.lakewarden.crypto.{FileIdentity, OrcKeys, Secret}
import org.apache.spark.sql.lakewarden.schema.OrcSchema

/** One ORC file while it is written, its columns under data keys of its own where the table is encrypted.
  *
  * Dates and times are written as Iceberg's own writers do: days and instants as they are, in no other calendar or
  * time zone.
  *
  * @param location
  *   as it is committed
  */
private[write] final class OrcFile(template: FileTemplate, location: String) extends DataFile {
  template.write.encryption.foreach(_.requireOrc())
  private val conf = template.conf.value
  private val dataKeys = template.write.encryption.map(new NewKeys(_))
  private val identity = FileIdentity.of(template.write.tableUuid, location)
  private val schema = OrcSchema.of(template.schema)
  dataKeys.foreach(OrcFile.encrypt(schema, _))
  private val path = StoredPath.of(location, conf)
  private val storage = new OneNewFile(StoredPath.fileSystem(path, conf), hashed = dataKeys.exists(_.how.digest))
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
    CommitJson.put(entry, OrcStatistics.of(schema, writer.getStatistics, writer.getNumberOfRows))
    dataKeys.foreach { keys =>
      CommitJson.put(entry, keys.wrapped(identity))
      if (keys.how.digest) CommitJson.putDigest(entry, storage.digest)
    }
    entry
  }

  override def abandon(): Unit = writer.close()

  private def flush(): Unit = if (batch.size > 0) {
    writer.addRowBatch(batch)
    batch.reset()
  }

  private def options: Orc.WriterOptions = {
    val settings = template.settings
    val plain = Orc.writerOptions(conf)
      .fileSystem(storage)
      .setSchema(schema)
      .overwrite(false)
      .useUTCTimestamp(true)
      .compress(settings.orcCodec)
      .stripeSize(settings.orcStripeSize)
      .blockPadding(false)
    dataKeys.fold(plain)(keys => plain.setKeyProvider(new OrcKeys(identity, OrcFile.keyOf(_, keys))))
  }
}

private object OrcFile {
  private val BatchRows = 1024
  private val Encoded = 0.2

  /** Says of each top-level column whether it is encrypted, and what stands in its place for those without the key. */
  private def encrypt(schema: TypeDescription, keys: NewKeys): Unit =
    schema.getChildren.asScala.foreach { column =>
      val id = column.getAttributeValue(OrcSchema.Id).toInt
      keyOf(id, keys).foreach { _ =>
        column.setAttribute(TypeDescription.ENCRYPT_ATTRIBUTE, OrcKeys.nameOf(id))
        keys.how.masks.get(id).foreach(column.setAttribute(TypeDescription.MASK_ATTRIBUTE, _))
      }
    }

  /** All columns are under the one key, or some under those of their groups. */
  private def keyOf(fieldId: Int, keys: NewKeys): Option[Secret] =
    if (keys.columns.isEmpty) Some(keys.footer)
    else keys.columns.collectFirst { case (label, dek) if label.fieldIds.contains(fieldId) => dek }
}
