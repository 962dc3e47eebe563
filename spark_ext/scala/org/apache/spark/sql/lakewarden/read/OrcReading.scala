package org.apache.spark.sql.lakewarden.read

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.hive.ql.exec.vector.VectorizedRowBatch
import org.apache.orc.{DataMask, Reader, RecordReader, TypeDescription}

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.vectorized.{ColumnarBatch, ColumnVector}

/** Reads ORC files of one task: ORC's own reader fills its vectors, which Spark is shown as they are, columns found
  * by field id.
  */
private[read] final class OrcReading(
    files: OrcFiles, wanted: StructType, masked: Set[Int], filters: Seq[Filter], mode: ReadMode, conf: Configuration)
    extends FormatReading {
  private val filterColumns = new FilterColumns(wanted)

  override def open(split: FileSplit, numbered: Boolean, errors: ReadErrors): BatchReader =
    opened(split, errors)((file, columns) => rows(file, columns, split))

  override def answer[T](split: FileSplit, errors: ReadErrors)(asked: FooterSummary => Option[T]): Either[T, BatchReader] =
    opened(split, errors) { (file, columns) =>
      asked(new OrcSummary(file, columns, split)) match {
        case Some(answer) =>
          file.close()
          Left(answer)
        case None => Right(rows(file, columns, split))
      }
    }

  /** Uses a file that has passed the guard, with its columns; it is closed if anything fails. */
  private def opened[T](split: FileSplit, errors: ReadErrors)(use: (Reader, OrcColumns) => T): T = {
    val file = files.open(split, conf, errors)
    try {
      val unseen = masked -- OrcReading.shownByMasks(file)
      use(file, new OrcColumns(file.getSchema, wanted, split.file.withoutLike, unseen, errors))
    } catch {
      case failure: Throwable =>
        file.close()
        throw failure
    }
  }

  private def rows(file: Reader, columns: OrcColumns, split: FileSplit): BatchReader = {
    val options = file.options
      .range(split.start, split.length)
      .include(columns.included)
      .skipCorruptRecords(false)
      .useZeroCopy(false)
      .allowPluginFilters(false)
      .allowSARGToFilter(false)
    new OrcPredicates(columns, filterColumns).of(filters).foreach { found =>
      options.searchArgument(found, Array.empty[String])
    }
    val batch = file.getSchema.createRowBatch(TypeDescription.RowBatchVersion.USE_DECIMAL64, mode.batchRows)
    val shown = new ColumnarBatch(columns.vectors(batch, mode.batchRows))
    new OrcReading.Batches(file, file.rows(options), batch, shown)
  }
}

private object OrcReading {

  /** Ids of the columns that the file shows to those without their keys as other values. A mask that only makes NULL of
    * them is left out: a column that cannot be NULL would be shown with whatever stands in its vector then.
    */
  private def shownByMasks(file: Reader): Set[Int] = {
    val masks = file.getFileTail.getFooter.getEncryption.getMaskList.asScala
    val others = masks.filter(_.getName != DataMask.Standard.NULLIFY.getName).flatMap(_.getColumnsList.asScala).toSet
    file.getEncryptionVariants.map(_.getRoot).filter(root => others(root.getId)).flatMap(OrcColumns.idOf(_)).toSet
  }

  private final class Batches(file: Reader, rows: RecordReader, filled: VectorizedRowBatch, shown: ColumnarBatch)
      extends BatchReader {
    private val numbers = new RowNumbers

    /** Before it reads a batch, the reader stands on its first row, whatever it leaves out on the way there; the rows of
      * a batch follow each other.
      */
    override def next(): Boolean = {
      numbers.startAt(rows.getRowNumber)
      var more = rows.nextBatch(filled)
      while (more && filled.size == 0) {
        numbers.startAt(rows.getRowNumber)
        more = rows.nextBatch(filled)
      }
      shown.setNumRows(filled.size)
      more
    }

    override def batch: ColumnarBatch = shown
    override def positions: ColumnVector = numbers

    override def close(): Unit = {
      rows.close()
      file.close()
    }
  }
}
