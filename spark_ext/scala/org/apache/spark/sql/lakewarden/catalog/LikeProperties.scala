package org.apache.spark.sql.lakewarden.catalog

import java.util.Locale

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.connector.catalog.{Table, TableCatalog}
import org.apache.spark.sql.lakewarden.LakewardenException

/** The properties of a table that is made like another one.
  *
  * It is encrypted as the source is: under the same master keys, with PEKs of its own. A statement can encrypt what the
  * source does not, and cannot say otherwise of a source that is encrypted. The allow-list, and where writers put
  * files, are the new table's own.
  */
object LikeProperties {
  private val Encryption = "encryption."
  private val Mechanism = "encryption.mechanism"

  /** Of the source alone: names in the allow-list and of directories, and the ids of its keys. */
  private val Own = Set(
    "read.allowed.data.paths", "encryption.pek-id", "write.data.path", "write.metadata.path",
    "write.object-storage.path", "write.folder-storage.path")

  /** What Spark shows of a table beside its properties. */
  private val Shown = Set(
    TableCatalog.PROP_PROVIDER, TableCatalog.PROP_LOCATION, TableCatalog.PROP_OWNER, TableCatalog.PROP_EXTERNAL,
    TableCatalog.PROP_IS_MANAGED_LOCATION)

  /** Throws `PropertyInvalid` where the statement contradicts the encryption of the source.
    *
    * @param said
    *   what the statement says
    */
  def of(source: Table, said: Map[String, String]): Map[String, String] = source match {
    case ours: GuardedTable =>
      val kept = ours.properties.asScala.toMap -- Own -- Shown
      val encrypted = kept.get(Mechanism).exists(_ != "plaintext")
      if (encrypted) said.foreach { case (name, value) => requireSame(source, kept, name, value) }
      val copied = if (encrypted) kept else kept.filterNot(_._1.startsWith(Encryption))
      copied ++ said
    case _ => said
  }

  private def requireSame(source: Table, kept: Map[String, String], name: String, value: String): Unit = {
    val folded = name.trim.toLowerCase(Locale.ROOT)
    if (folded.startsWith(Encryption) && !kept.get(folded).contains(value)) throw new LakewardenException(
      "PropertyInvalid", s"$folded differs from that of ${source.name}, which is encrypted.", Some("create-table-like"),
      Some("Leave it out, and alter the new table; or list the columns in CREATE TABLE."))
  }
}
