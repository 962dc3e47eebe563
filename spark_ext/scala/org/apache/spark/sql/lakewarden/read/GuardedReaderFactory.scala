package org.apache.spark.sql.lakewarden.read

import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.CatalogV2Implicits.parseColumnPath
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.lakewarden.write.DataFormat
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.vectorized.ColumnarBatch
import org.apache.spark.util.SerializableConfiguration

/** How rows are read, from settings of the session that change no row.
  *
  * @param columnar
  *   in batches; else row by row out of batches
  */
private[read] final case class ReadMode(columnar: Boolean, offHeap: Boolean, batchRows: Int)

/** Reads partitions on the executors: each file passes the guard, then the reader of its format reads what was
  * judged.
  *
  * @param wanted
  *   the columns, with ids
  * @param masked
  *   ids of those that are shown through masks
  * @param filters
  *   by which parts of files are left out; Spark filters again
  */
private[read] final class GuardedReaderFactory(
    table: String,
    gate: FileGate,
    wanted: StructType,
    masked: Set[Int],
    filters: Seq[Filter],
    mode: ReadMode,
    conf: Broadcast[SerializableConfiguration])
    extends PartitionReaderFactory {

  override def supportColumnarReads(partition: InputPartition): Boolean = mode.columnar

  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    reader[InternalRow](partition, batches = false)

  override def createColumnarReader(partition: InputPartition): PartitionReader[ColumnarBatch] =
    reader[ColumnarBatch](partition, batches = true)

  /** A masked column is filtered by what its mask shows, once that is read. */
  private def unmasked: Seq[Filter] = filters.filterNot { filter =>
    filter.references.exists { name =>
      val column = parseColumnPath(name).head
      wanted.find(_.name == column).forall(field => masked(FieldIds.of(field)))
    }
  }

  private def reader[T](partition: InputPartition, batches: Boolean): PartitionReader[T] = {
    val opening = readings
    val splits = partition.asInstanceOf[GuardedPartition].splits.iterator
    new GuardedReader[T](table, splits, (split, errors) => opening(split).open(split, batches, errors))
  }

  /** What reads each file of one task. */
  def readings: FileSplit => FormatReading = {
    val hadoop = conf.value.value
    val parquet = new ParquetReading(new GuardedFiles(gate, wanted, masked), wanted, masked, unmasked, mode, hadoop)
    val orc = new OrcReading(new OrcFiles(gate, wanted, masked), wanted, masked, unmasked, mode, hadoop)
    split => split.file.format match {
      case DataFormat.Parquet => parquet
      case DataFormat.Orc     => orc
    }
  }
}
