package org.apache.spark.sql.lakewarden.write

import scala.collection.mutable

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.roaringbitmap.longlong.Roaring64Bitmap

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.crypto.DataKeys
import org.apache.spark.unsafe.types.UTF8String
import org.apache.spark.util.SerializableConfiguration

/** What the delete files of one write have in common.
  *
  * @param partitions
  *   of the data files that the command reads, by path: partition spec and partition, as JSON
  */
private[write] final class DeleteTemplate(
    val files: FileTemplate, val perFile: Boolean, val partitions: Map[String, (Int, String)])
    extends Serializable

private[write] object DeleteTemplate {

  /** Throws `NotSupportedYet` for delete files that this engine does not write. */
  def of(write: BegunWrite, settings: WriteSettings, partitions: Map[String, (Int, String)]): DeleteTemplate = {
    val form = write.deletes()
    val own = settings.copy(format = form.format, bloomFilters = Map.empty)
    val conf = new SerializableConfiguration(WriterConfiguration.of(DeleteForm.Schema, own))
    val files = new FileTemplate(
      write.encryptedAs(form.encryption), DeleteForm.Schema, PartitionLayout.Unpartitioned, own, conf)
    new DeleteTemplate(files, form.perFile, partitions)
  }
}

/** The rows that one task attempt deletes, as numbers in their files; they may come in any order. */
private[write] final class PositionDeletes(template: DeleteTemplate) {
  private val deleted = mutable.HashMap.empty[UTF8String, Roaring64Bitmap]
  private val locations = mutable.ArrayBuffer.empty[String]
  private var open = Option.empty[DataFile]
  private lazy val json = new ObjectMapper

  def add(file: UTF8String, position: Long): Unit =
    deleted.getOrElse(file, {
      val positions = new Roaring64Bitmap
      deleted.put(file.copy(), positions)
      positions
    }).addLong(position)

  /** Writes the files; each is for one data file, or for those of a partition. */
  def finish(): Seq[JsonNode] = {
    val paths = deleted.keys.toSeq.sorted(Ordering.comparatorToOrdering[UTF8String](_.compareTo(_)))
    val groups = if (template.perFile) paths.map(Seq(_)) else paths.groupBy(partition).values.toSeq
    WriteErrors.translated(template.files.write.location)(groups.map(write))
  }

  def abandon(): Unit = open.foreach(_.abandon())

  /** Where the files are, complete or not. */
  def written: Seq[String] = locations.toSeq

  /** @param paths in ascending order */
  private def write(paths: Seq[UTF8String]): JsonNode = {
    val files = template.files
    val location = s"${files.write.location}/deletes-${DataKeys.newFileId()}.${files.settings.format.name}"
    locations += location
    val file = files.settings.format.start(files, location)
    open = Some(file)
    paths.foreach { path =>
      val positions = deleted(path).getLongIterator
      while (positions.hasNext) file.write(InternalRow(path, positions.next()))
    }
    val entry = file.close()
    open = None
    val (specId, values) = partition(paths.head)
    val referenced = entry.put("content", 1).put("spec-id", specId).putArray("referenced-data-files")
    paths.foreach(path => referenced.add(path.toString))
    entry.set[JsonNode]("partition", json.readTree(values))
  }

  private def partition(path: UTF8String): (Int, String) = template.partitions.getOrElse(
    path.toString,
    throw new LakewardenException(
      "TableChanged", "A row to delete is in a file that the statement did not plan to read.", Some("row-level"),
      Some("Run the statement again.")))
}
