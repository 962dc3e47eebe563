package org.apache.spark.sql.lakewarden.write

import java.util.{Base64, UUID}

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.crypto.{KeyLabel, Secret, TransportKey}

/** How the files of a write are encrypted: data keys of each file are made by its writer, wrapped for the commit.
  *
  * @param footer
  *   whose key encrypts the footer, and the whole file where no columns have keys
  * @param columns
  *   groups of columns that have a key of their own in each file; where there are some, other columns are in clear
  */
final class WriteEncryption(
    val footer: KeyLabel, val columns: Seq[KeyLabel], val dataKeyLength: Int, val transport: TransportKey)
    extends Serializable {

  /** Ids of the fields that have a key of their own. */
  def ownKeys: Set[Int] = columns.flatMap(_.fieldIds).toSet
}

/** A write that the catalog has begun.
  *
  * @param id
  *   names the write at its commit
  * @param location
  *   the directory below which all its files go; what is left there without a commit is swept
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
    val algorithm = text(node, "algorithm")
    if (algorithm != "AES_GCM_V1") throw unsupported(s"the algorithm $algorithm")
    if (text(node, "footer") != "encrypted") throw unsupported("plaintext footers")
    val columns = node.required("column-keys").asScala.map(columnKey).toSeq
    val length = node.required("data-key-length").asInt
    val footer = KeyLabel(text(node, "footer-key-name"))
    new WriteEncryption(footer, columns, length, transportKey(answer.required("transport-key")))
  }

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
    "NotSupportedYet", s"Spark does not write files with $what yet.", Some("write-encryption"),
    Some("Encrypt the table with AES_GCM_V1 and encrypted footers."))
}
