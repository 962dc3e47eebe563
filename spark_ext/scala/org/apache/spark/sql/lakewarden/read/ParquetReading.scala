package org.apache.spark.sql.lakewarden.read

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.mapred.{FileSplit => HadoopSplit, JobConf}
import org.apache.hadoop.mapreduce.{JobID, TaskAttemptID, TaskID, TaskType}
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl
import org.apache.parquet.hadoop.ParquetInputFormat

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.datasources.DataSourceUtils
import org.apache.spark.sql.execution.datasources.parquet.{
  ParquetFileFormat, ParquetReadSupport, VectorizedParquetRecordReader}
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.{LongType, StructType}
import org.apache.spark.sql.vectorized.{ColumnarBatch, ColumnVector}

/** Reads Parquet files of one task: Spark's own vectorized reader reads the stream and footer that were judged, its
  * columns found by field id.
  *
  * The files share one configuration, which is large to copy: what it says of a file is used up when the file has
  * been opened.
  */
private[read] final class ParquetReading(
    files: GuardedFiles, wanted: StructType, masked: Set[Int], filters: Seq[Filter], mode: ReadMode,
    conf: Configuration)
    extends FormatReading {
  private lazy val own = new JobConf(conf)
  private val filterColumns = new FilterColumns(wanted)

  override def open(split: FileSplit, numbered: Boolean, errors: ReadErrors): BatchReader =
    opened(split, numbered, errors)(rows(_, split, numbered))

  override def answer[T](split: FileSplit, errors: ReadErrors)(asked: FooterSummary => Option[T]): Either[T, BatchReader] =
    opened(split, numbered = false, errors) { file =>
      asked(new ParquetSummary(file.footer)) match {
        case Some(answer) =>
          file.stream.close()
          Left(answer)
        case None => Right(rows(file, split, numbered = false))
      }
    }

  /** Uses a file that has passed the guard and whose columns are the wanted ones; it is closed if anything fails. */
  private def opened[T](split: FileSplit, numbered: Boolean, errors: ReadErrors)(use: OpenedFile => T): T = {
    val file = files.open(split, own, errors)
    try {
      val schema = file.footer.getFileMetaData.getSchema
      val keyed = split.file.keys.flatMap(_.label.fieldIds).toSet
      val doubtful = if (split.file.footerDigest.isEmpty) keyed else Set.empty[Int]
      val columns = new FileColumns(schema, split.file.withoutLike, errors, masked, locked(file, keyed), doubtful)
      prepare(file, columns, numbered, errors)
      use(file)
    } catch {
      case failure: Throwable =>
        file.stream.close()
        throw failure
    }
  }

  private def rows(file: OpenedFile, split: FileSplit, numbered: Boolean): BatchReader = {
    val reader = vectorized(file, split.file.footer.isDefined)
    try {
      val attempt = new TaskAttemptID(new TaskID(new JobID, TaskType.MAP, 0), 0)
      reader.initialize(
        new HadoopSplit(file.path, split.start, split.length, Array.empty[String]),
        new TaskAttemptContextImpl(own, attempt), Some(file.input), Some(file.stream), Some(file.footer))
      reader.initBatch(new StructType, InternalRow.empty)
      reader.enableReturningBatches()
      new ParquetReading.Reader(reader, if (numbered) Some(wanted.size) else None)
    } catch {
      case failure: Throwable =>
        reader.close()
        throw failure
    }
  }

  /** Ids of columns with keys of their own that this scan has not. */
  private def locked(opened: OpenedFile, keyed: Set[Int]): Set[Int] = {
    val schema = opened.footer.getFileMetaData.getSchema
    val encrypted = opened.footer.getBlocks.asScala.flatMap(_.getColumns.asScala).filter(_.isEncrypted)
    val ids = encrypted.flatMap(each => Option(schema.getColumnDescription(each.getPath.toArray).getPrimitiveType.getId))
    ids.map(_.intValue).toSet -- keyed
  }

  /** Says to the reader of one file which columns and rows are wanted, in the file's own names. */
  private def prepare(file: OpenedFile, columns: FileColumns, numbered: Boolean, errors: ReadErrors): Unit = {
    val named = columns.renamed(wanted)
    // Spark's reader would make row numbers of it.
    if (named.fieldNames.contains(ParquetReading.RowNumber)) throw errors.unsupported(
      s"The file has a column named ${ParquetReading.RowNumber}, which Spark does not read.", "reserved-column")
    val read = if (numbered) named.add(ParquetReading.RowNumber, LongType) else named
    own.set(ParquetReadSupport.SPARK_ROW_REQUESTED_SCHEMA, read.json)
    own.unset(ParquetInputFormat.FILTER_PREDICATE)
    val predicates = new ParquetPredicates(columns, filterColumns, file.footer)
    predicates.of(filters).foreach(ParquetInputFormat.setFilterPredicate(own, _))
  }

  /** Dates and times are in the proleptic Gregorian calendar, as Iceberg's are, unless Spark wrote into a
    * plaintext file that it wrote them otherwise. An encrypted file never is; a changed footer can say so.
    */
  private def vectorized(opened: OpenedFile, encrypted: Boolean): VectorizedParquetRecordReader = {
    val notes = opened.footer.getFileMetaData.getKeyValueMetaData
    def said(name: String): String = if (encrypted) null else notes.get(name)
    val dates = DataSourceUtils.datetimeRebaseSpec(said, ReadConfiguration.Corrected)
    val int96 = DataSourceUtils.int96RebaseSpec(said, ReadConfiguration.Corrected)
    new VectorizedParquetRecordReader(
      null, dates.mode.toString, dates.timeZone, int96.mode.toString, int96.timeZone, mode.offHeap, mode.batchRows)
  }
}

private object ParquetReading {

  /** Under this name Spark's reader gives the number of each row in the file. */
  private val RowNumber = ParquetFileFormat.ROW_INDEX_TEMPORARY_COLUMN_NAME

  /** @param number
    *   where the column of the numbers stands
    */
  private final class Reader(reader: VectorizedParquetRecordReader, number: Option[Int]) extends BatchReader {
    override def next(): Boolean = reader.nextKeyValue()
    override def batch: ColumnarBatch = reader.resultBatch
    override def positions: ColumnVector = batch.column(number.get)
    override def close(): Unit = reader.close()
  }
}
