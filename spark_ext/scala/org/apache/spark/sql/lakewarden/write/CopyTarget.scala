package org.apache.spark.sql.lakewarden.write

import java.nio.charset.StandardCharsets.UTF_8
import java.security.MessageDigest
import java.util.HexFormat

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.connector.write.LogicalWriteInfo
import org.apache.spark.sql.lakewarden.catalog.{CachedRows, TableHandle}

/** Rows that are copied from files outside of a table, and appended to its branch.
  *
  * @param sources
  *   the names of these files
  * @param once
  *   whether files are refused that were copied into the table before
  * @param check
  *   refuses sources that were changed meanwhile
  */
final class CopyTarget(handle: TableHandle, sources: Seq[String], once: Boolean, check: () => Unit)
    extends BegunTarget(handle) {
  private var written = Seq.empty[JsonNode]
  private var summary = Map.empty[String, String]

  override def name: String = Append.name

  /** How many files were committed. */
  def added: Int = written.size

  /** Of how many partitions they are. */
  def partitions: Int = written.map(file => (file.path("spec-id"), file.path("partition"))).distinct.size

  /** With entries for the snapshot's summary. */
  def summarized(entries: Map[String, String]): CopyTarget = {
    summary = entries
    this
  }

  override def commit(files: Seq[JsonNode]): Unit = {
    check()
    send(files, Append) { body =>
      handle.table.branch.put(body)
      WriteRequests.summarize(body, summary)
      val digests = body.putObject("copied").put("once", once).putArray("files")
      sources.foreach(each => digests.add(digest(each)))
    }
    written = files
    handle.table.readNames.foreach(CachedRows.drop)
  }

  private def digest(name: String): String =
    HexFormat.of.formatHex(MessageDigest.getInstance("SHA-256").digest(name.getBytes(UTF_8)))
}

/** Builds the append of copied rows. */
private[lakewarden] final class CopyWriteBuilder(handle: TableHandle, info: LogicalWriteInfo, copy: CopyTarget)
    extends GuardedWriteBuilder(handle, info) {
  override protected def target: CommitTarget = copy.summarized(summary)
}
