package org.apache.spark.sql.lakewarden.write

import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}
import org.apache.hadoop.conf.Configuration
import org.apache.parquet.crypto.{FileEncryptionProperties, ParquetCipher}
import org.apache.parquet.hadoop.ParquetWriter
import org.apache.parquet.hadoop.api.WriteSupport
import org.apache.parquet.io.OutputFile

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lakewarden.crypto.{DataKeys, FileIdentity, WrappedKey}
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.SerializableConfiguration

/** What the files of one write have in common.
  *
  * @param schema
  *   the table's, field ids in the metadata
  * @param conf
  *   Hadoop's configuration of the launch, prepared for Spark's writing of Parquet
  */
final class FileTemplate(
    val write: BegunWrite,
    val schema: StructType,
    val layout: PartitionLayout,
    val settings: WriteSettings,
    val conf: SerializableConfiguration)
    extends Serializable

/** One Parquet file while it is written, with a data key of its own where the table is encrypted.
  *
  * The key is made here and leaves this object wrapped under the write's key alone. The file's id is part of its
  * name; table and file id are the AAD prefix, which the file does not store (docs/key-metadata.md).
  *
  * @param location
  *   as it is committed
  */
final class ParquetFile(template: FileTemplate, location: String) {
  private val hadoopConf = template.conf.value
  private val output = new CountedOutput(StoredPath.of(location, hadoopConf), hadoopConf)
  private val dataKey = template.write.encryption.map(each => DataKeys.create(each.dataKeyLength))
  private val identity = FileIdentity.of(template.write.tableUuid, location)
  private val writer = SQLConf.withExistingConf(ParquetFile.fixedSettings)(builder.build())
  private var rows = 0L

  def write(row: InternalRow): Unit = {
    writer.write(row)
    rows += 1
  }

  /** Whether the file has the size that the table asks for; asked seldom, since it is dear. */
  def isFull: Boolean =
    rows % ParquetFile.RowsBetweenChecks == 0 && writer.getDataSize >= template.settings.targetFileSize

  /** Ends the file.
    *
    * @return the file as the commit takes it (docs/rest-api.md, "Engines"), still without its partition
    */
  def close(): ObjectNode = {
    writer.close()
    val footer = writer.getFooter
    val entry = JsonNodeFactory.instance.objectNode().put("path", location).put("file-format", "parquet")
    entry.put("record-count", rows).put("file-size-in-bytes", output.length)
    val splits = entry.putArray("split-offsets")
    footer.getBlocks.forEach(block => splits.add(block.getStartingPos))
    // Of encrypted columns no statistics are shown in clear.
    if (dataKey.isEmpty) CommitJson.put(entry, FileStatistics.of(footer))
    wrappedKey.foreach(CommitJson.put(entry, _))
    entry
  }

  /** Ends the file in whatever state it is; nobody will read it. */
  def abandon(): Unit = writer.close()

  private def wrappedKey: Option[WrappedKey] = for (how <- template.write.encryption; dek <- dataKey)
    yield DataKeys.wrap(how.transport, dek, identity, how.keyLabel)

  private def builder: ParquetFile.Builder = {
    val settings = template.settings
    val start = new ParquetFile.Builder(output, template.schema).withConf(hadoopConf)
      .withCompressionCodec(settings.codec)
      .withRowGroupSize(settings.rowGroupSize)
      .withPageSize(settings.pageSize)
      .withPageRowCountLimit(settings.pageRowLimit)
      .withDictionaryPageSize(settings.dictionarySize)
    dataKey.fold(start)(dek => start.withEncryption(encryption(dek.reveal)))
  }

  private def encryption(dek: Array[Byte]): FileEncryptionProperties =
    FileEncryptionProperties.builder(dek)
      .withAlgorithm(ParquetCipher.AES_GCM_V1)
      .withAADPrefix(identity.aadPrefix)
      .withoutAADPrefixStorage()
      .build()
}

private object ParquetFile {
  private val RowsBetweenChecks = 1000L

  /** What the session may not decide: Spark's writer takes it from the task's settings. */
  private def fixedSettings: SQLConf = {
    val conf = new SQLConf
    conf.setConfString(SQLConf.PARQUET_REBASE_MODE_IN_WRITE.key, "CORRECTED")
    conf.setConfString(SQLConf.PARQUET_INT96_REBASE_MODE_IN_WRITE.key, "CORRECTED")
    conf
  }

  private final class Builder(file: OutputFile, schema: StructType)
      extends ParquetWriter.Builder[InternalRow, Builder](file) {
    override def self(): Builder = this
    override def getWriteSupport(conf: Configuration): WriteSupport[InternalRow] = new IcebergWriteSupport(schema)
  }
}
