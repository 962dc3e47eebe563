package org.apache.spark.sql.lakewarden.write

import java.util.UUID

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.parquet.crypto.ParquetCipher

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.crypto.{DataKeys, Footer, KeyLabel, OrcKeys, TransportKey}
import org.apache.spark.sql.lakewarden.read.Location
import org.apache.spark.sql.lakewarden.rest.Answers

/** How the files of a write are encrypted: data keys of each file are made by its writer, wrapped for the commit.
  *
  * @param algorithm
  *   one of Parquet's, or ORC's only one (`OrcKeys.Algorithm`)
  * @param footerKey
  *   whose key encrypts or signs the footer, and encrypts the whole file where no columns have keys
  * @param columns
  *   groups of columns that have a key of their own in each file; where there are some, other columns are in plaintext
  * @param stock
  *   what the files say of their keys to standard readers, where the table lets them in
  * @param digest
  *   whether the commit takes the digest of each file
  * @param masks
  *   by field id what ORC files show of a column to those without its key
  */
final class WriteEncryption(
    val algorithm: String,
    val footer: Footer,
    val footerKey: KeyLabel,
    val columns: Seq[KeyLabel],
    val dataKeyLength: Int,
    val transport: TransportKey,
    val stock: Option[StockKeyMaterial],
    val digest: Boolean,
    val masks: Map[Int, String])
    extends Serializable {

  /** Parquet's name of the algorithm. Throws `TableChanged` if it is not one of Parquet's. */
  def parquetCipher: ParquetCipher =
    ParquetCipher.values.find(_.name == algorithm).getOrElse(throw WriteEncryption.otherFormat)

  /** Throws `TableChanged` if the algorithm is not ORC's. */
  def requireOrc(): Unit = if (algorithm != OrcKeys.Algorithm) throw WriteEncryption.otherFormat
}

private object WriteEncryption {
  private def otherFormat: LakewardenException = new LakewardenException(
    "TableChanged", "The table's file format was changed after the write began.", Some("file-format"),
    Some("Run the statement again."))
}

/** A write that the catalog has begun.
  *
  * @param id
  *   names the write at its commit
  * @param location
  *   the directory below which all its files go; garbage collection deletes what is left there without a commit
  * @param encryption
  *   none for a table in plaintext
  * @param deletes
  *   how delete files are written, on the driver; throws `NotSupportedYet` for what this engine does not write
  */
final class BegunWrite(
    val id: String, val tableUuid: UUID, val location: String, val encryption: Option[WriteEncryption],
    @transient val deletes: () => DeleteForm)
    extends Serializable {

  /** The same write, for files that are encrypted in another way. */
  def encryptedAs(how: Option[WriteEncryption]): BegunWrite = new BegunWrite(id, tableUuid, location, how, deletes)
}

object BegunWrite {

  /** The fields of `encryption`; a write with any other is refused. */
  private val Known = Set(
    "algorithm", "data-key-length", "footer", "footer-key-name", "column-keys", "stock-readers", "digest", "masks")

  /** Reads an answer of `POST …/writes`, or the `write` of a staged one (docs/plan-format.md, "Begun write").
    *
    * Throws `NotSupportedYet` for a way of encrypting that this engine cannot do, `LocationInvalid` for a location that
    * is not canonical, and `CatalogUnavailable` for what is no begun write.
    */
  def parse(answer: JsonNode): BegunWrite = {
    val location = text(answer, "location")
    if (Location.of(location).isEmpty) throw new LakewardenException(
      "LocationInvalid", "The location of the write is not canonical.", Some("location-invalid"),
      Some("Install the plugin of the catalog's release."))
    val uuid = UUID.fromString(text(answer, "table-uuid"))
    def encrypted(how: JsonNode) = encryption(how, uuid, Answers.field(answer, "transport-key"))
    new BegunWrite(
      text(answer, "write-id"), uuid, location,
      present(answer, "encryption").map(encrypted),
      () => DeleteForm.parse(Answers.field(answer, "position-deletes"), encrypted))
  }

  private def encryption(node: JsonNode, uuid: UUID, key: JsonNode): WriteEncryption = {
    node.fieldNames.asScala.filterNot(Known).foreach(name => throw unsupported(name))
    val transport = TransportKey.parse(key, "write")
    val columns = Answers.field(node, "column-keys").asScala.map(KeyLabel.parse).toSeq
    val ids = columns.flatMap(_.fieldIds)
    if (columns.exists(_.fieldIds.isEmpty) || ids.distinct.size < ids.size)
      throw unsupported("column keys for the same column, or for none")
    new WriteEncryption(
      algorithm(text(node, "algorithm")), footer(text(node, "footer")), KeyLabel(text(node, "footer-key-name")),
      columns, length(Answers.field(node, "data-key-length").intValue), transport,
      present(node, "stock-readers").map(StockKeyMaterial.parse(_, uuid, transport)),
      Answers.field(node, "digest").asBoolean, masks(Answers.field(node, "masks")))
  }

  private def algorithm(name: String): String =
    if (name == OrcKeys.Algorithm || ParquetCipher.values.exists(_.name == name)) name
    else throw unsupported(s"the algorithm $name")

  private def footer(name: String): Footer = Footer.named(name).getOrElse(throw unsupported(s"the footer $name"))

  private def length(bytes: Int): Int =
    if (DataKeys.Lengths(bytes)) bytes else throw unsupported(s"data keys of $bytes bytes")

  private def masks(groups: JsonNode): Map[Int, String] = {
    for (group <- groups.asScala; id <- Answers.field(group, "field-ids").asScala)
      yield id.intValue -> text(group, "mask")
  }.toMap

  private def text(node: JsonNode, name: String): String = Answers.text(node, name)

  private def present(node: JsonNode, name: String): Option[JsonNode] =
    Option(Answers.field(node, name)).filterNot(_.isNull)

  private def unsupported(what: String): LakewardenException = LakewardenException.notSupportedYet(
    s"Writing files with $what is not supported in Spark.", "write-encryption",
    "Install the plugin of the catalog's release.")
}
