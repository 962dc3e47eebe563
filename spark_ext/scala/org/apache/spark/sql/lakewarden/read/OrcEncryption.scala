package org.apache.spark.sql.lakewarden.read

import scala.jdk.CollectionConverters._

import org.apache.orc.{EncryptionVariant, Reader, TypeDescription}

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.crypto.{OrcKeys, Secret}

/** How one ORC file has to be encrypted, and with which keys; the file is checked against it before a row is read.
  *
  *   - Without column keys, every top-level column is under the file's one key.
  *   - With them, a column is under the key of its group, or in plaintext. A column whose key was released has to be under
  *     that very key; one that is read without a key and without a mask, in plaintext.
  *
  * ORC itself shows masks wherever a key is missing or another's, and takes a file in plaintext for one that is not
  * encrypted: none of that is an error to it. So each key is opened here that the columns of the scan need, and
  * with it what the file says of table, file and column.
  *
  * @param masked
  *   ids of the columns that are shown through their masks; their keys are not used
  * @param wanted
  *   ids of the top-level columns that are read
  */
private[read] final class OrcEncryption(keys: OpenedKeys, masked: Set[Int], wanted: Set[Int], errors: ReadErrors) {
  if (keys.algorithm != OrcKeys.Algorithm)
    throw errors.refused(
      s"The file is in ORC, but the table lists the algorithm ${keys.algorithm}, which ORC does not have.", "algorithm")

  /** What ORC's reader asks for keys. */
  val provider: OrcKeys = new OrcKeys(keys.file, id => if (masked(id)) None else keyOf(id))

  /** Throws `DecryptionRefused` if the file is another's, or not encrypted as the epoch says.
    *
    * @param records
    *   how many rows the table says that it has
    */
  def judge(file: Reader, records: Long): Unit = {
    val columns = file.getSchema.getChildren.asScala.toSeq
    val variants = file.getEncryptionVariants.toSeq.groupBy(_.getRoot.getId)
    if (variants.isEmpty && columns.nonEmpty && (keys.columns.isEmpty || keys.columns.exists(_.nonEmpty)))
      throw errors.refused("The file is in plaintext, but the table requires encryption.", "plaintext-file")
    if (!variants.keySet.subsetOf(columns.map(_.getId).toSet) || variants.values.exists(_.size > 1))
      throw errors.refused("The file's footer does not name one encryption key for each encrypted column.", "algorithm")
    columns.foreach(column => judge(column, variants.get(column.getId).map(_.head)))
    val rows = file.getNumberOfRows
    if (rows != records)
      throw errors.refused(s"The file has $rows rows where the table's metadata lists $records.", "record-count")
  }

  private def judge(column: TypeDescription, found: Option[EncryptionVariant]): Unit = {
    val id = OrcColumns.idOf(column).getOrElse(throw mistaken(column))
    (keyOf(id), found) match {
      case (Some(key), Some(variant)) =>
        val named = variant.getKeyDescription
        if (named.getKeyName != OrcKeys.nameOf(id) || named.getAlgorithm != OrcKeys.algorithm(key)) throw mistaken(column)
        if (!masked(id) && !opens(variant)) throw errors.refused(
          s"The key of the column ${column.getFullFieldName} belongs to another file.", "data-key")
      case (Some(_), None)                                => throw mistaken(column)
      case (None, Some(_)) if wanted(id) && !masked(id)   => throw mistaken(column)
      case _                                              =>
    }
  }

  private def opens(variant: EncryptionVariant): Boolean =
    try variant.getFileFooterKey != null
    catch { case _: LakewardenException => false }

  /** The key that a column has to be under, as far as it was released. */
  private def keyOf(id: Int): Option[Secret] = keys.columns match {
    case None => Some(keys.whole)
    case Some(groups) => groups.collectFirst { case (label, dek) if label.fieldIds.contains(id) => dek }
  }

  private def mistaken(column: TypeDescription): Exception = errors.refused(
    s"The column ${column.getFullFieldName} is not encrypted with the key that the table requires.", "column-key")
}
