package org.apache.spark.sql.lakewarden.write

import java.util.Base64

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.lakewarden.crypto.{FooterDigest, WrappedKey}

/** Parts of a file's description as the catalog's commit takes it (docs/rest-api.md, "Engines"). */
private object CommitJson {
  private val base64 = Base64.getEncoder

  def put(entry: ObjectNode, statistics: FileStatistics): Unit = {
    numbers(entry, "column-sizes", statistics.columnSizes)
    numbers(entry, "value-counts", statistics.valueCounts)
    numbers(entry, "null-value-counts", statistics.nullCounts)
    bytes(entry, "lower-bounds", statistics.lower)
    bytes(entry, "upper-bounds", statistics.upper)
  }

  def put(entry: ObjectNode, keys: Seq[WrappedKey]): Unit = {
    val array = entry.putArray("keys")
    keys.foreach { key =>
      val node = array.addObject().put("key-name", key.label.keyName)
      val fieldIds = node.putArray("field-ids")
      key.label.fieldIds.foreach(id => fieldIds.add(id))
      node.put("wrapped", base64.encodeToString(key.wrapped))
    }
  }

  /** The SHA-256 of all bytes of the file. */
  def putDigest(entry: ObjectNode, sha256: Array[Byte]): Unit = {
    entry.put("sha256", base64.encodeToString(sha256))
    ()
  }

  /** That of the footer of a file with column keys. */
  def putDigest(entry: ObjectNode, footer: FooterDigest): Unit = {
    entry.put("footer-bytes", footer.length).put("footer-sha256", base64.encodeToString(footer.sha256.toArray))
    ()
  }

  private def numbers(entry: ObjectNode, name: String, values: Map[Int, Long]): Unit = {
    val node = entry.putObject(name)
    values.foreach { case (id, value) => node.put(id.toString, value) }
  }

  private def bytes(entry: ObjectNode, name: String, values: Map[Int, Array[Byte]]): Unit = {
    val node = entry.putObject(name)
    values.foreach { case (id, value) => node.put(id.toString, base64.encodeToString(value)) }
  }
}
