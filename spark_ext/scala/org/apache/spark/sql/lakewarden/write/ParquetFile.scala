package org.apache.spark.sql.lakewarden.write

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}
import org.apache.hadoop.conf.Configuration
import org.apache.parquet.column.ParquetProperties
import org.apache.parquet.crypto.{ColumnEncryptionProperties, FileEncryptionProperties, ParquetCipher}
import org.apache.parquet.hadoop.metadata.ColumnPath
import org.apache.parquet.schema.MessageType
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName.BOOLEAN
import org.apache.parquet.schema.Type.Repetition.REPEATED

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lakewarden.crypto.{DataKeys, FileIdentity, Footer, KeyLabel, Secret, WrappedKey}
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
    extends Serializable {

  @transient private lazy val message: MessageType =
    new IcebergWriteSupport(schema).init(new Configuration(conf.value)).getSchema

  /** Of each column the path in the files, by field id. */
  @transient private[write] lazy val leaves: Map[Int, ColumnPath] = message.getColumns.asScala.map { column =>
    column.getPrimitiveType.getId.intValue -> ColumnPath.get(column.getPath: _*)
  }.toMap

  /** The paths of the columns that the table wants bloom filters of. Booleans have none, and a name that no column
    * has any more is passed over, as other writers do.
    */
  @transient private[write] lazy val bloomFilters: Map[String, BloomFilter] = {
    for {
      column <- message.getColumns.asScala if column.getPrimitiveType.getPrimitiveTypeName != BOOLEAN
      filter <- settings.bloomFilters.get(dotted(column.getPath.toSeq))
    } yield ColumnPath.get(column.getPath: _*).toDotString -> filter
  }.toMap

  /** How Iceberg names a column: without what repeats in lists and maps. */
  private def dotted(path: Seq[String]): String =
    path.indices.filterNot(depth => message.getType(path.take(depth + 1): _*).isRepetition(REPEATED)).map(path)
      .mkString(".")
}

/** One Parquet file while it is written, with data keys of its own where the table is encrypted.
  *
  * The keys are made here and leave this object wrapped under the write's key alone. The file's id is part of its
  * name; table and file id are the AAD prefix, which the file does not store (docs/key-metadata.md), unless stock
  * readers are let in. Columns are put under keys by field id; those without a key are in plaintext where others have one.
  *
  * @param location
  *   as it is committed
  */
private[write] final class ParquetFile(template: FileTemplate, location: String) extends DataFile {
  private val hadoopConf = template.conf.value
  private val dataKeys = template.write.encryption.map(new NewKeys(_))
  private val output = new CountedOutput(
    StoredPath.of(location, hadoopConf), hadoopConf, hashed = dataKeys.exists(_.how.digest),
    footerHashed = dataKeys.exists(_.columns.nonEmpty))
  private val limits = if (dataKeys.isEmpty) ModuleLimits.None else ModuleLimits.of(template.settings)
  private val identity = FileIdentity.of(template.write.tableUuid, location)
  private val writer = SQLConf.withExistingConf(ParquetFile.fixedSettings) {
    new ParquetRows(
      output, new IcebergWriteSupport(template.schema), hadoopConf, template.settings.codec,
      template.settings.rowGroupSize, properties, dataKeys.map(keys => new CompactEncryptor(encryption(keys))))
  }
  private var rows = 0L

  override def write(row: InternalRow): Unit = {
    writer.write(row)
    rows += 1
  }

  /** Looked at seldom, since it is dear. */
  override def isFull: Boolean =
    rows >= limits.rowsInFile || rows % ParquetFile.RowsBetweenChecks == 0 && writer.size >= fullSize

  private def fullSize: Long = math.min(limits.bytesInFile, template.settings.targetFileSize)

  override def close(): ObjectNode = {
    val footer = writer.end()
    val entry = JsonNodeFactory.instance.objectNode().put("path", location).put("file-format", "parquet")
    entry.put("record-count", rows).put("file-size-in-bytes", output.length)
    val splits = entry.putArray("split-offsets")
    footer.getBlocks.forEach(block => splits.add(block.getStartingPos))
    CommitJson.put(entry, FileStatistics.of(footer))
    dataKeys.foreach { keys =>
      CommitJson.put(entry, keys.wrapped(identity))
      if (keys.how.digest) CommitJson.putDigest(entry, output.digest)
      if (keys.columns.nonEmpty) CommitJson.putDigest(entry, output.footerDigest)
    }
    entry
  }

  override def abandon(): Unit = writer.close()

  private def properties: ParquetProperties = {
    val settings = template.settings
    val start = ParquetProperties.builder()
      .withRowGroupRowCountLimit(limits.rowsInGroup)
      .withPageSize(settings.pageSize)
      .withPageRowCountLimit(settings.pageRowLimit)
      .withDictionaryPageSize(settings.dictionarySize)
      .withValuesWriterFactory(new TriedDictionaries)
      .withMaxBloomFilterBytes(settings.bloomFilterSize)
      .withPageWriteChecksumEnabled(!dataKeys.exists(haveTags))
    template.bloomFilters.foreach { case (path, filter) => addBloomFilter(start, path, filter) }
    dataKeys.filter(_.how.footer == Footer.Plaintext).foreach(withoutSizes(start, _))
    start.build()
  }

  /** Whether each page has a tag, which says more than a checksum. */
  private def haveTags(keys: NewKeys): Boolean = keys.how.parquetCipher == ParquetCipher.AES_GCM_V1 &&
    (keys.columns.isEmpty || template.leaves.keys.forall(keys.columns.flatMap(_._1.fieldIds).toSet))

  private def addBloomFilter(start: ParquetProperties.Builder, path: String, filter: BloomFilter): Unit = {
    start.withBloomFilterEnabled(path, true).withBloomFilterFPP(path, filter.falsePositives)
    filter.distinct.foreach(start.withBloomFilterNDV(path, _))
  }

  /** A footer in plaintext shows of encrypted columns no bounds, but it would how many values they have of which depth,
    * NULL among them, and how long texts are.
    */
  private def withoutSizes(start: ParquetProperties.Builder, keys: NewKeys): Unit = {
    val columns = if (keys.columns.isEmpty) template.leaves.values else columnKeys(keys).keys
    columns.foreach(each => start.withSizeStatisticsEnabled(each.toDotString, false))
  }

  private def encryption(keys: NewKeys): FileEncryptionProperties = {
    val properties = FileEncryptionProperties.builder(keys.footer.reveal)
      .withAlgorithm(keys.how.parquetCipher)
      .withAADPrefix(identity.aadPrefix)
    keys.material(keys.how.footerKey, keys.footer) match {
      case Some(material) => properties.withFooterKeyMetadata(material)
      case None           => properties.withoutAADPrefixStorage()
    }
    if (keys.how.footer == Footer.Plaintext) properties.withPlaintextFooter()
    if (keys.columns.isEmpty) properties.build()
    else properties.withEncryptedColumns(columnKeys(keys).asJava).build()
  }

  private def columnKeys(keys: NewKeys): Map[ColumnPath, ColumnEncryptionProperties] = {
    for {
      (label, dek) <- keys.columns
      material = keys.material(label, dek)
      id <- label.fieldIds
      path <- template.leaves.get(id)
    } yield {
      val properties = ColumnEncryptionProperties.builder(path).withKey(dek.reveal)
      material.foreach(properties.withKeyMetaData)
      path -> properties.build()
    }
  }.toMap
}

/** The data keys of one new file: the footer's, and one for each group of columns with a key of its own. */
private final class NewKeys(val how: WriteEncryption) {
  val footer: Secret = DataKeys.create(how.dataKeyLength)
  val columns: Seq[(KeyLabel, Secret)] = how.columns.map(_ -> DataKeys.create(how.dataKeyLength))

  /** What the file says of a key to standard readers, where the table lets them in. */
  def material(label: KeyLabel, dek: Secret): Option[Array[Byte]] = how.stock.map(_.of(label, dek))

  def wrapped(file: FileIdentity): Seq[WrappedKey] = ((how.footerKey -> footer) +: columns).map { case (label, dek) =>
    DataKeys.wrap(how.transport, dek, file, label)
  }
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
}
