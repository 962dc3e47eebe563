package org.apache.spark.sql.lakewarden.write

import java.nio.charset.StandardCharsets.UTF_8
import java.util.{Base64, UUID}

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.JsonNodeFactory
import org.apache.parquet.crypto.keytools.KeyToolkit

import org.apache.spark.sql.lakewarden.crypto.{DataKeys, KeyLabel, Secret, TransportKey}

/** A key-encryption key (KEK) of one write: data keys stand under it in the files.
  *
  * @param sealedKek
  *   the KEK under the write's transport key
  * @param wrapped
  *   the KEK as the catalog's KMS endpoint opens it
  */
final class StockKey(val id: Array[Byte], val sealedKek: Array[Byte], val wrapped: String) extends Serializable {
  override def toString: String = "StockKey"
}

/** What the files of a write say of their keys to standard readers, in the words of Parquet's key tools with double
  * wrapping. No address of a KMS stands in a file; readers of ours look at none of it.
  *
  * Source: docs/key-metadata.md, "Keys for standard Parquet readers"; parquet-java, `KeyMaterial`.
  */
final class StockKeyMaterial(keys: Map[KeyLabel, StockKey], tableUuid: UUID, transport: TransportKey)
    extends Serializable {

  /** Opened once an executor, when the first file is written. */
  @transient private lazy val opened: Map[KeyLabel, Secret] = keys.map { case (label, key) =>
    label -> DataKeys.openKek(transport, key.sealedKek, tableUuid, key.id, label)
  }

  /** The key material of one data key of a file: the footer's key metadata, or that of a column. */
  def of(label: KeyLabel, dek: Secret): Array[Byte] = {
    val key = keys(label)
    val material = JsonNodeFactory.instance.objectNode()
      .put("keyMaterialType", "PKMT1")
      .put("internalStorage", true)
      .put("isFooterKey", label.fieldIds.isEmpty)
    if (label.fieldIds.isEmpty)
      material.put("kmsInstanceID", StockKeyMaterial.Nowhere).put("kmsInstanceURL", StockKeyMaterial.Nowhere)
    material
      .put("doubleWrapping", true)
      .put("masterKeyID", label.keyName)
      .put("keyEncryptionKeyID", Base64.getEncoder.encodeToString(key.id))
      .put("wrappedKEK", key.wrapped)
      .put("wrappedDEK", KeyToolkit.encryptKeyLocally(dek.reveal, opened(label).reveal, key.id))
    material.toString.getBytes(UTF_8)
  }
}

object StockKeyMaterial {

  /** Where the KMS is, the readers have to know: what a file says of it is to be used by nobody. */
  private val Nowhere = "lakewarden"

  /** Reads the `stock-readers` of a write that was begun (docs/rest-api.md, "Engines"). */
  def parse(node: JsonNode, tableUuid: UUID, transport: TransportKey): StockKeyMaterial = {
    def bytes(key: JsonNode, name: String): Array[Byte] = Base64.getDecoder.decode(key.required(name).asText)
    val keys = node.required("keys").asScala.map { key =>
      KeyLabel.parse(key) -> new StockKey(bytes(key, "kek-id"), bytes(key, "kek"), key.required("wrapped").asText)
    }
    new StockKeyMaterial(keys.toMap, tableUuid, transport)
  }
}
