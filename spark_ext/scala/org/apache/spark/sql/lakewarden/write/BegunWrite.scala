package org.apache.spark.sql.lakewarden.write

import java.util.{Base64, UUID}

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.parquet.crypto.ParquetCipher

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.crypto.{Footer, KeyLabel, OrcKeys, Secret, TransportKey}

/** How the files of a write are encrypted: data keys of each file are made by its writer, wrapped for the commit.
  *
  * @param algorithm
  *   one of Parquet's, or ORC's only one (`OrcKeys.Algorithm`)
  * @param footerKey
  *   whose key encrypts or signs the footer, and encrypts the whole file where no columns have keys
  * @param columns
  *   groups of columns that have a key of their own in each file; where there are some, other columns are in plaintext
  * @param stock
  *   what the files say of their keys to stock readers, where the table lets them in
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
  */
final class BegunWrite(
    val id: String, val tableUuid: UUID, val location: String, val encryption: Option[WriteEncryption])
    extends Serializable

object BegunWrite {

  /** Reads an answer of `POST …/writes`, or the `write` of a staged one (docs/rest-api.md, "Engines").
    *
    * Throws `NotSupportedYet` for a way of encrypting that this engine cannot do.
    */
  def parse(answer: JsonNode): BegunWrite = new BegunWrite(
    text(answer, "write-id"),
    UUID.fromString(text(answer, "table-uuid")),
    text(answer, "location"),
    present(answer, "encryption").map(encryption(_, answer)))

  private def encryption(node: JsonNode, answer: JsonNode): WriteEncryption = {
    val columns = node.required("column-keys").asScala.map(columnKey).toSeq
    val length = node.required("data-key-length").asInt
    val transport = transportKey(answer.required("transport-key"))
    val uuid = UUID.fromString(text(answer, "table-uuid"))
    new WriteEncryption(
      algorithm(text(node, "algorithm")), Footer.of(text(node, "footer")), KeyLabel(text(node, "footer-key-name")),
      columns, length, transport, present(node, "stock-readers").map(StockKeyMaterial.parse(_, uuid, transport)),
      node.required("digest").asBoolean, masks(node.required("masks")))
  }

  private def algorithm(name: String): String =
    if (name == OrcKeys.Algorithm || ParquetCipher.values.exists(_.name == name)) name
    else throw unsupported(s"the algorithm $name")

  private def masks(groups: JsonNode): Map[Int, String] = {
    for (group <- groups.asScala; id <- group.required("field-ids").asScala)
      yield id.intValue -> text(group, "mask")
  }.toMap

  private def columnKey(node: JsonNode): KeyLabel =
    KeyLabel(text(node, "key-name"), node.required("field-ids").asScala.map(_.intValue).toSeq)

  private def transportKey(node: JsonNode): TransportKey = {
    val decode = Base64.getDecoder.decode(_: String)
    new TransportKey(decode(text(node, "id")), "write", new Secret(decode(text(node, "key"))))
  }

  private def text(node: JsonNode, name: String): String = node.required(name).asText

  private def present(node: JsonNode, name: String): Option[JsonNode] =
    Option(node.get(name)).filterNot(_.isNull)

  private def unsupported(what: String): LakewardenException = new LakewardenException(
    "NotSupportedYet", s"Writing files with $what is not supported in Spark.", Some("write-encryption"),
    Some("Install the plugin of the catalog's release."))
}
