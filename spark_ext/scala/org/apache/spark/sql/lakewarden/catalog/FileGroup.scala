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
import org.apache.spark.sql.lakewarden.write.{Arrangement, CommitTarget, GroupWriteBuilder}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** What is rewritten together. */
private[catalog] trait RewriteGroup {
  def files: FileGroup

  /** The first half of the files, and the others. */
  def halves: Seq[RewriteGroup]
}

/** Files of a table that are rewritten together.
  *
  * @param snapshotId
  *   the head of their branch when they were found
  * @param sizes
  *   of each file, its bytes
  * @param outputs
  *   how many files are to be written in their place
  * @param fileSize
  *   the size at which a file is ended, in bytes
  */
final case class FileGroup(
    branch: String, snapshotId: Long, paths: Seq[String], sizes: Seq[Long], outputs: Int, fileSize: Long)
    extends RewriteGroup {
  def bytes: Long = sizes.sum

  override def files: FileGroup = this

  override def halves: Seq[FileGroup] = {
    val (first, others) = paths.zip(sizes).splitAt(paths.size / 2)
    Seq(first, others).map(half =>
      copy(paths = half.map(_._1), sizes = half.map(_._2), outputs = (outputs + 1) / 2))
  }
}

object FileGroup {

  /** Out of an answer of `POST …/rewrites` (docs/rest-api.md, "Engines"). */
  def of(answered: JsonNode): FileGroup = FileGroup(
    Answers.text(answered, "branch"),
    Answers.field(answered, "snapshot-id").longValue,
    Answers.field(answered, "paths").elements.asScala.map(_.asText).toSeq,
    Answers.field(answered, "sizes").elements.asScala.map(_.longValue).toSeq,
    Answers.field(answered, "outputs").intValue,
    Answers.field(answered, "file-size").longValue)
}

/** The files of a group as a table of their own: read by a plan of them alone, and written in their place. */
private[catalog] final class GroupTable(
    handle: TableHandle, val group: FileGroup, target: CommitTarget, arrangement: Arrangement)
    extends ShownTable(handle)
    with SupportsRead
    with SupportsWrite {

  override def capabilities: util.Set[TableCapability] = util.EnumSet.of(BATCH_READ, BATCH_WRITE)

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    () => new GuardedScan(handle, None, handle.table.schema, Nil, group = Some(group))

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder =
    new GroupWriteBuilder(handle, info, target, group, arrangement)
}
