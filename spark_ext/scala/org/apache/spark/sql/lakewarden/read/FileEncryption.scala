package org.apache.spark.sql.lakewarden.read

import scala.jdk.CollectionConverters._

import org.apache.parquet.crypto._
import org.apache.parquet.format.BlockCipher
import org.apache.parquet.hadoop.metadata.{ColumnChunkMetaData, ColumnPath, ParquetMetadata}
import org.apache.parquet.hadoop.metadata.FileMetaData.EncryptionType
import org.apache.parquet.schema.MessageType

import org.apache.spark.sql.lakewarden.crypto.{Footer, Secret}

/** How one file has to be encrypted, and with which keys; its footer is read with them and held against it.
  *
  *   - It has as many rows as the table says, every column whose key was released, and no column with the field id or
  *     the path of another.
  *   - Without column keys, every column is under the footer's key.
  *   - With them, a column is under the key of its group, or in clear; never under the footer's key. A column whose
  *     key was released has to be under that very key; one that is read without a key, in clear: the catalog
  *     releases the key of every group that the scan touches, so the regime says nothing else of it.
  *
  * A footer is encrypted or signed with the footer's key, as the regime says and not as the file does. What the
  * file says of its keys is not looked at. Which key is whose follows from the field ids in the footer, which the
  * footer's key authenticates either way, and the labels of the plan. So the footer is read twice where columns have
  * keys: once for the ids, and then with a key for each path.
  *
  * @param footer
  *   whether the regime has it encrypted, or in clear and signed
  * @param columnKeys
  *   the released keys by field id; none for a file that is encrypted whole
  * @param wanted
  *   ids of the fields that are read
  */
private[read] final class FileEncryption(
    algorithm: String,
    footer: Footer,
    footerKey: Secret,
    columnKeys: Option[Map[Int, Secret]],
    aadPrefix: Array[Byte],
    wanted: Set[Int],
    errors: ReadErrors) {

  /** The footer, judged. Throws `DecryptionRefused` if it is another file's, or not as the regime says.
    *
    * @param footers
    *   of the stream that is going to be read
    * @param records
    *   how many rows the table says that it has
    */
  def read(footers: FooterReader, records: Long): ParquetMetadata = {
    val first = footers.whole(properties(Map.empty))
    val schema = first.getFileMetaData.getSchema
    requireApart(schema)
    requirePresent(schema)
    if (first.getBlocks.asScala.map(_.getRowCount).sum != records)
      throw errors.refused("The file has more or fewer rows than the table says.", "record-count")
    val keys = keysByPath(schema)
    val found = if (keys.isEmpty && footers.isWhole) first else footers.read(properties(keys))
    if (found.getFileMetaData.getEncryptionType != wantedType)
      throw errors.refused(s"The footer of the file is not ${footer.name}, as the table says that it is.", "footer")
    if (found.getFileMetaData.getSchema != schema) throw refused("The file is being changed.")
    found.getBlocks.asScala.foreach(_.getColumns.asScala.foreach(judge(_, found)))
    found
  }

  /** What is judged of one column is not read of another. */
  private def requireApart(schema: MessageType): Unit = {
    val leaves = schema.getColumns.asScala.toSeq
    val ids = leaves.flatMap(each => Option(each.getPrimitiveType.getId)).map(_.intValue)
    def twice(all: Seq[Any]): Boolean = all.distinct.size < all.size
    if (twice(ids) || twice(leaves.map(_.getPath.toSeq)) || columnKeys.nonEmpty && ids.size < leaves.size)
      throw errors.refused("The file has a column without a field id, or an id or a name twice.", "field-id")
  }

  /** A column that was left out would read as NULL. */
  private def requirePresent(schema: MessageType): Unit = columnKeys.foreach { own =>
    val missing = own.keySet -- FileColumns.idsIn(schema)
    if (missing.nonEmpty)
      throw errors.refused(s"The file lacks the column ${missing.min}, of which it has a key.", "column-key")
  }

  private def wantedType: EncryptionType = footer match {
    case Footer.Encrypted => EncryptionType.ENCRYPTED_FOOTER
    case Footer.Plaintext => EncryptionType.PLAINTEXT_FOOTER
  }

  /** Parquet's own reader verifies the signature of a footer in clear with the key that is given here. */
  private def properties(keys: Map[ColumnPath, Secret]): FileDecryptionProperties = {
    val builder = FileDecryptionProperties.builder.withFooterKey(footerKey.reveal).withAADPrefix(aadPrefix)
    val columns = keys.map { case (path, key) =>
      path -> ColumnDecryptionProperties.builder(path).withKey(key.reveal).build()
    }
    if (columns.isEmpty) builder.build() else builder.withColumnKeys(columns.asJava).build()
  }

  private def keysByPath(schema: MessageType): Map[ColumnPath, Secret] = {
    for {
      own <- columnKeys.toSeq
      column <- schema.getColumns.asScala
      id <- Option(column.getPrimitiveType.getId)
      key <- own.get(id.intValue)
    } yield ColumnPath.get(column.getPath: _*) -> key
  }.toMap

  private def judge(chunk: ColumnChunkMetaData, footer: ParquetMetadata): Unit = {
    val id = Option(footer.getFileMetaData.getSchema.getColumnDescription(chunk.getPath.toArray).getPrimitiveType.getId)
    def isOf(ids: Set[Int]): Boolean = id.exists(each => ids(each.intValue))
    columnKeys match {
      case None => if (chunk.isEncrypted || !isEncrypted(chunk, footer)) throw mistaken(chunk)
      case Some(own) if isOf(own.keySet) =>
        if (!chunk.isEncrypted) throw mistaken(chunk)
        chunk.getTotalSize // opens what the file says of the column, with the released key
        if (!isEncrypted(chunk, footer)) throw mistaken(chunk)
      // Of a column that is not read, it does not matter whose key it has.
      case Some(_) if chunk.isEncrypted => if (isOf(wanted)) throw mistaken(chunk)
      case Some(_)                      => if (setupOf(chunk, footer).isEncrypted) throw mistaken(chunk)
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
    case None    => refused(s"The file is not encrypted as a whole with $algorithm.")
    case Some(_) => errors.refused(s"The column ${chunk.getPath.toDotString} is not under the key that it has to be.", "column-key")
  }

  private def refused(problem: String): Exception = errors.refused(problem, "algorithm")
}

private object FileEncryption {
  private def is(algorithm: String, decryptor: BlockCipher.Decryptor): Boolean = (algorithm, decryptor) match {
    case ("AES_GCM_V1", _: AesGcmDecryptor)     => true
    case ("AES_GCM_CTR_V1", _: AesCtrDecryptor) => true
    case _                                      => false
  }
}
