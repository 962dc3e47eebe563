package org.apache.spark.sql.lakewarden.catalog

import java.util

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.catalog.TableCapability.{BATCH_READ, BATCH_WRITE}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, Write, WriteBuilder}
import org.apache.spark.sql.lakewarden.read.PositionDeletesBuilder
import org.apache.spark.sql.lakewarden.rest.Answers
import org.apache.spark.sql.lakewarden.write.{CommitTarget, PackedDeletes, PackedDeletesWrite}
import org.apache.spark.sql.types.{LongType, StringType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Position delete files that are rewritten together.
  *
  * @param deleteNumbers
  *   of each delete file, its data sequence number
  * @param dataNumbers
  *   of each data file that they can apply to, its data sequence number
  * @param partitions
  *   of these data files: partition spec and partition, as JSON
  */
private[lakewarden] final case class DeleteGroup(
    files: FileGroup, deleteNumbers: Map[String, Long], dataNumbers: Map[String, Long],
    partitions: Map[String, (Int, String)])
    extends RewriteGroup {
  override def halves: Seq[DeleteGroup] = files.halves.map(half => copy(files = half))
}

private[catalog] object DeleteGroup {

  /** Out of an answer of `POST …/rewrites/position-deletes` (docs/rest-api.md, "Engines"). */
  def of(answered: JsonNode): DeleteGroup = {
    val found = FileGroup(
      Answers.text(answered, "branch"), Answers.field(answered, "snapshot-id").longValue,
      texts(answered, "paths"), numbers(answered, "sizes"), Answers.field(answered, "outputs").intValue, 0)
    val partitions = Answers.field(answered, "partitions").elements.asScala.toSeq
    DeleteGroup(
      found,
      found.paths.zip(numbers(answered, "sequence-numbers")).toMap,
      partitions.flatMap(each => texts(each, "paths").zip(numbers(each, "sequence-numbers"))).toMap,
      partitions.flatMap { each =>
        val place = (Answers.field(each, "spec-id").intValue, Answers.text(each, "partition"))
        texts(each, "paths").map(_ -> place)
      }.toMap)
  }

  private def texts(node: JsonNode, name: String): Seq[String] =
    Answers.field(node, name).elements.asScala.map(_.asText).toSeq

  private def numbers(node: JsonNode, name: String): Seq[Long] =
    Answers.field(node, name).elements.asScala.map(_.longValue).toSeq
}

/** The rows of a group of delete files as a table of their own. */
private[catalog] final class DeleteGroupTable(handle: TableHandle, group: DeleteGroup, target: CommitTarget)
    extends Table
    with SupportsRead
    with SupportsWrite {
  override def name: String = s"${handle.table.fullName}.${MetadataTables.PositionDeletes}"
  override def partitioning: Array[Transform] = Array.empty

  override def columns: Array[Column] = Array(
    Column.create(PackedDeletes.Path, StringType, false), Column.create(PackedDeletes.Position, LongType, false),
    Column.create(PackedDeletes.DeleteFile, StringType, false))

  override def capabilities: util.Set[TableCapability] = util.EnumSet.of(BATCH_READ, BATCH_WRITE)

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    () => PositionDeletesBuilder.ofGroup(handle, group.files)

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = new WriteBuilder {
    override def build(): Write = new PackedDeletesWrite(handle, group, target)
  }
}
