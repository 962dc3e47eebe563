package org.apache.spark.sql.lakewarden.read

import scala.jdk.CollectionConverters._

import org.apache.parquet.crypto._
import org.apache.parquet.format.BlockCipher
import org.apache.parquet.hadoop.metadata.{ColumnChunkMetaData, ColumnPath, ParquetMetadata}
import org.apache.parquet.hadoop.metadata.FileMetaData.EncryptionType
import org.apache.parquet.schema.{MessageType, Type}

import org.apache.spark.sql.lakewarden.crypto.{Footer, Secret}
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.types.StructType

/** How one file has to be encrypted, and with which keys; its footer is read with them and checked against it.
  *
  *   - It has as many rows as the table says, every column whose key was released, and no column with the field id or
  *     the path of another.
  *   - Without column keys, every column is under the footer's key.
  *   - With them, a column is under the key of its group, or in plaintext; never under the footer's key. A column that is
  *     read and whose key was released has to be under that very key; one that is read without a key, in plaintext: the
  *     catalog releases the key of every group that the scan touches, so the epoch says nothing else of it.
  *
  * A footer is encrypted or signed with the footer's key, as the epoch says and not as the file does. What the
  * file says of its keys is not looked at. Which key is whose follows from the field ids in the footer, which the
  * footer's key authenticates either way, and the labels of the plan. Parquet wants keys by path before it reads
  * the ids: they are given for the columns of today's names, and where the file turns out to have others, its footer
  * is read once more. Keys serve for the columns that are read, and no others.
  *
  * @param footer
  *   whether the epoch has it encrypted, or in plaintext and signed
  * @param columnKeys
  *   the released keys by field id; none for a file that is encrypted whole
  * @param wanted
  *   the fields that are read
  * @param masked
  *   ids of those that are shown as NULL, and of elements and values: their keys are not released
  */
private[read] final class FileEncryption(
    algorithm: String,
    footer: Footer,
    footerKey: Secret,
    columnKeys: Option[Map[Int, Secret]],
    aadPrefix: Array[Byte],
    wanted: StructType,
    masked: Set[Int],
    errors: ReadErrors) {
  private val wantedIds = FieldIds.all(wanted)
  private val wantedColumns = wanted.map(FieldIds.of).toSet

  /** The footer, judged. Throws `DecryptionRefused` if it is another file's, or not as the epoch says.
    *
    * @param footers
    *   of the stream that is going to be read
    * @param records
    *   how many rows the table says that it has
    */
  def read(footers: FooterReader, records: Long): ParquetMetadata = {
    val expected = keysOfToday
    val first = footers.whole(properties(expected))
    val schema = first.getFileMetaData.getSchema
    requireApart(schema)
    requirePresent(schema)
    val rows = first.getBlocks.asScala.map(_.getRowCount).sum
    if (rows != records)
      throw errors.refused(s"The file has $rows rows where the table's metadata lists $records.", "record-count")
    val keys = keysByPath(schema)
    val found = if (keys == expected && footers.isWhole) first else footers.read(properties(keys))
    if (found.getFileMetaData.getEncryptionType != wantedType)
      throw errors.refused(s"The table requires the file's footer to be ${footer.name}, and it is not.", "footer")
    if (found.getFileMetaData.getSchema != schema) throw refused("The file changed while it was read.")
    found.getBlocks.asScala.foreach(_.getColumns.asScala.foreach(judge(_, found)))
    found
  }

  /** What is judged of one column is not read of another. */
  private def requireApart(schema: MessageType): Unit = {
    val leaves = schema.getColumns.asScala.toSeq
    val ids = leaves.flatMap(each => Option(each.getPrimitiveType.getId)).map(_.intValue)
    def twice(all: Seq[Any]): Boolean = all.distinct.size < all.size
    if (twice(ids) || twice(leaves.map(_.getPath.toSeq)) || columnKeys.nonEmpty && ids.size < leaves.size)
      throw errors.refused("The file's schema has a column without a field id, or repeats an id or a name.", "field-id")
  }

  /** A column that was left out would read as NULL. */
  private def requirePresent(schema: MessageType): Unit = columnKeys.foreach { own =>
    val missing = own.keySet -- FileColumns.idsIn(schema)
    if (missing.nonEmpty)
      throw errors.refused(s"The file has no column with the field id ${missing.min} that one of its keys is for.",
        "column-key")
  }

  private def wantedType: EncryptionType = footer match {
    case Footer.Encrypted => EncryptionType.ENCRYPTED_FOOTER
    case Footer.Plaintext => EncryptionType.PLAINTEXT_FOOTER
  }

  /** Parquet's own reader verifies the signature of a footer in plaintext with the key that is given here. */
  private def properties(keys: Map[ColumnPath, Secret]): FileDecryptionProperties = {
    val builder = FileDecryptionProperties.builder.withFooterKey(footerKey.reveal).withAADPrefix(aadPrefix)
    val columns = keys.map { case (path, key) =>
      path -> ColumnDecryptionProperties.builder(path).withKey(key.reveal).build()
    }
    if (columns.isEmpty) builder.build() else builder.withColumnKeys(columns.asJava).build()
  }

  /** As a file has them that was written with today's names; of what is nested there are none. */
  private def keysOfToday: Map[ColumnPath, Secret] = {
    for (field <- wanted; own <- columnKeys; key <- own.get(FieldIds.of(field)))
      yield ColumnPath.get(field.name) -> key
  }.toMap

  private def keysByPath(schema: MessageType): Map[ColumnPath, Secret] = {
    for (column <- schema.getColumns.asScala; key <- keyOf(column.getPath, schema))
      yield ColumnPath.get(column.getPath: _*) -> key
  }.toMap

  /** The released key of a leaf that is read, or stands in a struct that something is read of: Spark may look at any
    * leaf of it to see whether it is NULL.
    */
  private def keyOf(path: Array[String], schema: MessageType): Option[Secret] = for {
    own <- columnKeys
    id <- leafId(path, schema)
    key <- own.get(id) if wantedIds(id) || Option(schema.getType(path.take(1): _*).getId).exists(isWanted)
  } yield key

  private def isWanted(column: Type.ID): Boolean = wantedColumns(column.intValue)

  private def leafId(path: Array[String], schema: MessageType): Option[Int] =
    Option(schema.getColumnDescription(path).getPrimitiveType.getId).map(_.intValue)

  private def judge(chunk: ColumnChunkMetaData, footer: ParquetMetadata): Unit = {
    val (path, schema) = (chunk.getPath.toArray, footer.getFileMetaData.getSchema)
    def isOf(ids: Set[Int]): Boolean = leafId(path, schema).exists(ids)
    columnKeys match {
      case None => if (chunk.isEncrypted || !isEncrypted(chunk, footer)) throw mistaken(chunk)
      case Some(_) if keyOf(path, schema).nonEmpty =>
        if (!chunk.isEncrypted) throw mistaken(chunk)
        chunk.getTotalSize // opens what the file says of the column, with the released key
        if (!isEncrypted(chunk, footer)) throw mistaken(chunk)
      // Of a column that is not read, it does not matter whose key it has.
      case Some(_) if chunk.isEncrypted =>
        if (isOf(wantedIds & masked)) throw withheld(chunk)
        if (isOf(wantedIds)) throw mistaken(chunk)
      case Some(own) => if (isOf(own.keySet) || setupOf(chunk, footer).isEncrypted) throw mistaken(chunk)
    }
  }

  /** Whether its pages are encrypted as the algorithm says. */
  private def isEncrypted(chunk: ColumnChunkMetaData, footer: ParquetMetadata): Boolean = {
    val setup = setupOf(chunk, footer)
    setup.isEncrypted && FileEncryption.is(algorithm, setup.getDataDecryptor)
  }

  private def setupOf(chunk: ColumnChunkMetaData, footer: ParquetMetadata): InternalColumnDecryptionSetup =
    footer.getFileMetaData.getFileDecryptor.getColumnSetup(chunk.getPath)

  private def mistaken(chunk: ColumnChunkMetaData): Exception = columnKeys match {
    case None    => refused(s"Not every column of the file is encrypted with $algorithm.")
    case Some(_) => errors.refused(
      s"The column ${chunk.getPath.toDotString} is not encrypted with the key that the table requires.", "column-key")
  }

  /** What is NULL in lists and maps is read all the same: it says how many elements there are. */
  private def withheld(chunk: ColumnChunkMetaData): Exception = errors.unsupported(
    s"A mask shows NULL for ${chunk.getPath.toDotString}, whose column key also tells how long the list or map is. The " +
      "key is not released. Ask for a mask of the whole column.", "mask-type")

  private def refused(problem: String): Exception = errors.refused(problem, "algorithm")
}

private object FileEncryption {
  private def is(algorithm: String, decryptor: BlockCipher.Decryptor): Boolean = (algorithm, decryptor) match {
    case ("AES_GCM_V1", _: AesGcmDecryptor)     => true
    case ("AES_GCM_CTR_V1", _: AesCtrDecryptor) => true
    case _                                      => false
  }
}
