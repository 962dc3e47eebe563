package org.apache.spark.sql.lakewarden.catalog

import java.util

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.connector.catalog.{SupportsRead, SupportsWrite, TableCapability}
import org.apache.spark.sql.connector.catalog.TableCapability.{BATCH_READ, BATCH_WRITE}
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, WriteBuilder}
import org.apache.spark.sql.lakewarden.rest.Answers
import org.apache.spark.sql.lakewarden.read.GuardedScan
import org.apache.spark.sql.lakewarden.write.{CommitTarget, NewFilesBuilder, WriteSettings}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Files of a table that are rewritten together.
  *
  * @param snapshotId
  *   the head of their branch when they were found
  * @param sizes
  *   of each file, its bytes
  */
final case class FileGroup(branch: String, snapshotId: Long, paths: Seq[String], sizes: Seq[Long]) {
  def bytes: Long = sizes.sum

  /** The first half of the files, and the others. */
  def halves: Seq[FileGroup] = {
    val (first, others) = paths.zip(sizes).splitAt(paths.size / 2)
    Seq(first, others).map(half => copy(paths = half.map(_._1), sizes = half.map(_._2)))
  }
}

object FileGroup {

  /** Out of an answer of `POST …/rewrites` (docs/rest-api.md, "Engines"). */
  def of(answered: JsonNode): FileGroup = FileGroup(
    Answers.text(answered, "branch"),
    Answers.field(answered, "snapshot-id").longValue,
    Answers.field(answered, "paths").elements.asScala.map(_.asText).toSeq,
    Answers.field(answered, "sizes").elements.asScala.map(_.longValue).toSeq)
}

/** The files of a group as a table of their own: read by a plan of them alone, and written in their place. */
private[catalog] final class GroupTable(handle: TableHandle, group: FileGroup, target: CommitTarget)
    extends ShownTable(handle)
    with SupportsRead
    with SupportsWrite {

  /** How many files are to come of them, by the size that the table wants its files to have. */
  def wanted: Int = {
    val size = WriteSettings.of(handle.table.writeSettings).targetFileSize
    math.max(1, math.min(Int.MaxValue.toLong, (group.bytes - 1) / size + 1)).toInt
  }

  override def capabilities: util.Set[TableCapability] = util.EnumSet.of(BATCH_READ, BATCH_WRITE)

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    () => new GuardedScan(handle, None, handle.table.schema, Nil, Some(group))

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = new NewFilesBuilder(handle, info, _ => target)
}
