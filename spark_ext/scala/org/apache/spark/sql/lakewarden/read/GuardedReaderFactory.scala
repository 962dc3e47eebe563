package org.apache.spark.sql.lakewarden.read

import java.util.UUID

import scala.collection.mutable

import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.CatalogV2Implicits.parseColumnPath
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.lakewarden.write.DataFormat
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.vectorized.{ColumnarBatch, ColumnVector}
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
  * @param plan
  *   an id of the scan's plan
  * @param wanted
  *   the columns, with ids
  * @param compared
  *   the columns that equality deletes compare, with ids
  * @param metadata
  *   the metadata columns
  * @param enforced
  *   what the user sees of the rows and columns
  * @param telling
  *   whether Spark's metrics can tell of all rows in the files
  * @param filters
  *   by which parts of files are left out; Spark filters again
  */
private[read] final class GuardedReaderFactory(
    table: String,
    plan: UUID,
    gate: FileGate,
    wanted: StructType,
    compared: StructType,
    metadata: MetadataColumns,
    enforced: EnforcedReads,
    telling: Boolean,
    filters: Seq[Filter],
    mode: ReadMode,
    conf: Broadcast[SerializableConfiguration])
    extends PartitionReaderFactory {

  override def supportColumnarReads(partition: InputPartition): Boolean = mode.columnar

  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    reader[InternalRow](partition, batches = false)

  override def createColumnarReader(partition: InputPartition): PartitionReader[ColumnarBatch] =
    reader[ColumnarBatch](partition, batches = true)

  private def reader[T](partition: InputPartition, batches: Boolean): PartitionReader[T] = {
    val files = new TaskFiles
    val splits = partition.asInstanceOf[GuardedPartition].splits.iterator
    new GuardedReader[T](table, splits, files.open(_, batches, _))
  }

  /** The files of one task. */
  def files: TaskFiles = new TaskFiles

  /** Reads the files of one task. */
  private[read] final class TaskFiles {
    private val hadoop = conf.value.value
    private val readings = mutable.Map.empty[(StructType, DataFormat, Boolean), FormatReading]
    private val deletes =
      new DeleteFiles(table, plan, compared, columns => split => reading(columns, split.file.format, whole = true))
    private val masks = enforced.masks

    /** The rows of a split, one by one or in batches. */
    def open(split: FileSplit, batches: Boolean, errors: ReadErrors): FileReader = quietly {
      val columns = read(split.file)
      // First, so that nothing is open if these are refused.
      val kept = deletes.of(split.file, columns, enforced.test(columns))
      val numbered = metadata.numbered || split.file.allDeletes.exists(_.equalityIds.isEmpty)
      shown(split, reading(columns, split.file.format).open(split, numbered, errors), kept, batches)
    }

    /** What the footer of a file answers, or else its rows one by one. Of a file with deletes or hidden rows the footer
      * does not answer: it counts them.
      */
    def answer[T](split: FileSplit, errors: ReadErrors)(asked: FooterSummary => Option[T]): Either[T, FileReader] =
      if (split.file.allDeletes.nonEmpty || !enforced.isEmpty) Right(open(split, batches = false, errors))
      else quietly {
        reading(wanted, split.file.format).answer(split, errors)(asked).map(shown(split, _, None, batches = false))
      }

    private def shown(split: FileSplit, source: BatchReader, kept: Option[KeptRows], batches: Boolean): FileReader = {
      val reader = if (isTold) source else new UncountedBatches(source)
      new ShownRows(reader, kept, columns, metadata.of(split.file, mode.batchRows), batches)
    }

    /** Whether Spark's metrics can tell how many bytes are read. */
    private def isTold: Boolean = telling && enforced.isEmpty

    private def quietly[R](part: => R): R = if (isTold) part else UncountedBatches.uncounted(part)

    /** The wanted columns as the query sees them. */
    private def columns(batch: ColumnarBatch): Seq[ColumnVector] = wanted.fields.toSeq.zipWithIndex.map {
      case (field, at) => masks.fold(batch.column(at))(_.shown(field, batch.column(at)))
    }

    /** The wanted columns, and those that the row filter reads or deletes of the file compare. */
    private def read(file: PlannedFile): StructType = {
      val ids = file.allDeletes.flatMap(_.equalityIds).toSet
      RowKeys.beside(RowKeys.beside(wanted, enforced.filtered), RowKeys.only(compared, ids))
    }

    /** @param whole
      *   whether every row is read as it is
      */
    private def reading(columns: StructType, format: DataFormat, whole: Boolean = false): FormatReading =
      readings.getOrElseUpdate((columns, format, whole), {
        val (unseen, by) =
          if (whole) (Set.empty[Int], Nil) else (enforced.unread, unmasked ++ enforced.skippingBy(columns))
        format match {
          case DataFormat.Parquet =>
            new ParquetReading(new GuardedFiles(gate, columns, unseen), columns, unseen, by, mode, hadoop)
          case DataFormat.Orc => new OrcReading(new OrcFiles(gate, columns, unseen), columns, unseen, by, mode, hadoop)
        }
      })
  }

  /** A masked column is filtered by what its mask shows, once that is read. */
  private def unmasked: Seq[Filter] = filters.filterNot { filter =>
    filter.references.exists { name =>
      val column = parseColumnPath(name).head
      wanted.find(_.name == column).forall(field => enforced.masked(FieldIds.of(field)))
    }
  }
}
