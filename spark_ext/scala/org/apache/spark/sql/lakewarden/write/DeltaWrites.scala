package org.apache.spark.sql.lakewarden.write

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.distributions.{Distribution, Distributions, UnspecifiedDistribution}
import org.apache.spark.sql.connector.expressions.{Expressions, SortOrder}
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.lakewarden.catalog.LoadedTable
import org.apache.spark.sql.lakewarden.read.MetadataColumns
import org.apache.spark.sql.types.StructType

/** How the rows of a merge-on-read are to come: those to delete with those of their file, as they can, and new rows
  * with those of their partition.
  *
  * @param deletes
  *   whether the command only deletes rows
  * @param partitions
  *   of the files that the command reads, see `DeleteTemplate`; asked when the rows are written
  */
private[write] final class GuardedDeltaWrite(
    table: LoadedTable, target: CommitTarget, settings: WriteSettings, deletes: Boolean, rowId: StructType,
    partitions: () => Map[String, (Int, String)])
    extends DeltaWrite with RequiresDistributionAndOrdering {
  private val rows = new GuardedWrite(table, target, settings)

  override def description: String = rows.description
  override def toString: String = description
  override def toBatch: DeltaBatchWrite =
    new GuardedDeltaBatchWrite(table, rows.layout, settings, target, rowId, partitions)

  override def requiredDistribution: Distribution =
    if (deletes) Distributions.unspecified
    else rows.order.distribution(settings, Expressions.column(MetadataColumns.File))

  override def advisoryPartitionSizeInBytes: Long =
    if (requiredDistribution.isInstanceOf[UnspecifiedDistribution]) 0 else settings.partitionSize

  override def distributionStrictlyRequired: Boolean = false
  override def requiredOrdering: Array[SortOrder] = if (deletes) Array.empty else rows.requiredOrdering
}

/** A write job of data files and position delete files. */
private final class GuardedDeltaBatchWrite(
    table: LoadedTable, layout: PartitionLayout, settings: WriteSettings, target: CommitTarget, rowId: StructType,
    partitions: () => Map[String, (Int, String)])
    extends GuardedBatchWrite(table, layout, settings, target) with DeltaBatchWrite {

  override def createBatchWriterFactory(info: PhysicalWriteInfo): DeltaWriterFactory = begun { write =>
    new GuardedDeltaWriterFactory(template(write), DeleteTemplate.of(write, settings, partitions()), rowId)
  }
}

/** Makes the writers of tasks. It carries the write's transport key and prints none of it. */
private final class GuardedDeltaWriterFactory(rows: FileTemplate, deletes: DeleteTemplate, rowId: StructType)
    extends DeltaWriterFactory {
  private val (file, position) = (rowId.fieldIndex(MetadataColumns.File), rowId.fieldIndex(MetadataColumns.Position))

  override def createWriter(partitionId: Int, taskId: Long): DeltaWriter[InternalRow] =
    new GuardedDeltaWriter(
      new GuardedDataWriter(rows), new PositionDeletes(deletes), file, position,
      each => StoredPath.delete(each, rows.conf.value))

  override def toString: String = s"GuardedDeltaWriterFactory(${rows.write.id})"
}

/** Writes what one task attempt adds and deletes. Spark says an update as a row that goes and one that comes.
  *
  * @param file
  *   where the file stands in a row's id
  * @param position
  *   where the row's number in it stands
  */
private final class GuardedDeltaWriter(
    rows: GuardedDataWriter, deletes: PositionDeletes, file: Int, position: Int, remove: String => Unit)
    extends DeltaWriter[InternalRow] with Logging {

  override def insert(row: InternalRow): Unit = rows.write(row)
  override def delete(metadata: InternalRow, id: InternalRow): Unit =
    deletes.add(id.getUTF8String(file), id.getLong(position))
  override def update(metadata: InternalRow, id: InternalRow, row: InternalRow): Unit = {
    delete(metadata, id)
    insert(row)
  }

  override def commit(): WriterCommitMessage =
    new FilesWritten(rows.commit().files ++ deletes.finish().map(_.toString))

  override def abort(): Unit = {
    rows.abort()
    quietly(deletes.abandon())
    deletes.written.foreach(each => quietly(remove(each)))
  }

  override def close(): Unit = rows.close()

  private def quietly(action: => Unit): Unit =
    try action
    catch { case NonFatal(problem) => logWarning(
      s"A file is left for garbage collection: ${problem.getClass.getName}") }
}
