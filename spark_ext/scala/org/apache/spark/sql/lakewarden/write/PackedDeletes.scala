package org.apache.spark.sql.lakewarden.write

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.distributions.{Distribution, Distributions}
import org.apache.spark.sql.connector.expressions.{Expression, Expressions, SortOrder}
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.{DeleteGroup, TableHandle}
import org.apache.spark.sql.lakewarden.read.AllowedPaths
import org.apache.spark.unsafe.types.UTF8String

/** Writes the rows of some position delete files into fewer ones: a path, a position, and the delete file they are of.
  *
  * All rows of a data file come to one task. Rows that delete nothing any more are left out.
  */
private[lakewarden] final class PackedDeletesWrite(handle: TableHandle, group: DeleteGroup, target: CommitTarget)
    extends RequiresDistributionAndOrdering {
  override def description: String = s"${target.name} ${handle.table.fullName}.position_deletes"
  override def toString: String = description

  override def requiredDistribution: Distribution =
    Distributions.clustered(Array[Expression](Expressions.column(PackedDeletes.Path)))

  override def requiredNumPartitions: Int = group.files.outputs
  override def requiredOrdering: Array[SortOrder] = Array.empty

  override def toBatch: BatchWrite = {
    val settings = WriteSettings.of(handle.table.writeSettings)
    new GuardedBatchWrite(handle.table, PartitionLayout.Unpartitioned, settings, target) {
      override def createBatchWriterFactory(info: PhysicalWriteInfo): DataWriterFactory =
        new PackedDeletesFactory(DeleteTemplate.of(target.begin(), settings, group.partitions), group)
    }
  }
}

object PackedDeletes {

  /** The columns of the rows. */
  val Path = "file_path"
  val Position = "pos"
  val DeleteFile = "delete_file_path"
}

/** Makes the writers of tasks. It carries the write's transport key and prints none of it. */
private final class PackedDeletesFactory(template: DeleteTemplate, group: DeleteGroup) extends DataWriterFactory {
  override def createWriter(partitionId: Int, taskId: Long): DataWriter[InternalRow] =
    new PackedDeletesWriter(
      new PositionDeletes(template), group, each => StoredPath.delete(each, template.files.conf.value))

  override def toString: String = s"PackedDeletesFactory(${template.files.write.id})"
}

private final class PackedDeletesWriter(deletes: PositionDeletes, group: DeleteGroup, remove: String => Unit)
    extends DataWriter[InternalRow] with Logging {
  private val ages = PackedDeletesWriter.byName(group.deleteNumbers)
  private val data = PackedDeletesWriter.byName(group.dataNumbers)

  /** A delete file applies to the data files that are not newer. */
  override def write(row: InternalRow): Unit = {
    if (row.isNullAt(0) || row.isNullAt(1) || row.getLong(1) < 0) throw damaged(row.getUTF8String(2).toString)
    val path = row.getUTF8String(0)
    if (data.get(path).exists(_ <= ages(row.getUTF8String(2)))) deletes.add(path, row.getLong(1))
  }

  override def commit(): WriterCommitMessage = new FilesWritten(deletes.finish().map(_.toString))

  override def abort(): Unit = {
    quietly(deletes.abandon())
    deletes.written.foreach(each => quietly(remove(each)))
  }

  override def close(): Unit = ()

  private def damaged(file: String): LakewardenException = new LakewardenException(
    "DataFileDamaged", s"The delete file has a row without a path or position. [file=${AllowedPaths.shown(file)}]",
    Some("delete-position"), Some("Restore the file, or copy the rows into another table."), file = Some(file))

  private def quietly(action: => Unit): Unit =
    try action
    catch { case NonFatal(problem) => logWarning(
      s"A file is left for garbage collection: ${problem.getClass.getName}") }
}

private object PackedDeletesWriter {
  def byName(numbers: Map[String, Long]): mutable.Map[UTF8String, Long] =
    mutable.HashMap.from(numbers.map { case (name, number) => UTF8String.fromString(name) -> number })
}
