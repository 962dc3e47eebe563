package org.apache.spark.sql.lakewarden.read

import org.apache.hadoop.mapred.{FileSplit => HadoopSplit, JobConf}
import org.apache.hadoop.mapreduce.{JobID, TaskAttemptID, TaskID, TaskType}
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl
import org.apache.parquet.hadoop.ParquetInputFormat

import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.execution.datasources.DataSourceUtils
import org.apache.spark.sql.execution.datasources.parquet.{ParquetReadSupport, VectorizedParquetRecordReader}
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

/** Reads partitions on the executors: each file passes the guard, then Spark's own vectorized Parquet reader reads
  * the stream and footer that were judged, its columns found by field id.
  *
  * @param wanted
  *   the columns, with ids
  * @param filters
  *   by which row groups and pages are left out; Spark filters again
  */
private[read] final class GuardedReaderFactory(
    table: String,
    files: GuardedFiles,
    wanted: StructType,
    filters: Seq[Filter],
    mode: ReadMode,
    conf: Broadcast[SerializableConfiguration])
    extends PartitionReaderFactory {

  override def supportColumnarReads(partition: InputPartition): Boolean = mode.columnar

  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    new GuardedReader[InternalRow](table, splits(partition), opener())

  override def createColumnarReader(partition: InputPartition): PartitionReader[ColumnarBatch] = {
    val open = opener()
    new GuardedReader[ColumnarBatch](table, splits(partition), { (split, errors) =>
      val reader = open(split, errors)
      reader.enableReturningBatches()
      reader
    })
  }

  /** Opens file after file. They share one configuration, which is large to copy: what it says of a file is used up
    * when the file has been opened.
    */
  private def opener(): (FileSplit, ReadErrors) => VectorizedParquetRecordReader = {
    val own = new JobConf(conf.value.value)
    read(_, own, _)
  }

  private def splits(partition: InputPartition): Iterator[FileSplit] =
    partition.asInstanceOf[GuardedPartition].splits.iterator

  private def read(split: FileSplit, own: JobConf, errors: ReadErrors): VectorizedParquetRecordReader = {
    val opened = files.open(split, own, errors)
    val reader = vectorized(opened)
    try {
      prepare(own, opened, new FileColumns(
        opened.footer.getFileMetaData.getSchema, split.file.withoutLike, errors))
      val attempt = new TaskAttemptID(new TaskID(new JobID, TaskType.MAP, 0), 0)
      reader.initialize(
        new HadoopSplit(opened.path, split.start, split.length, Array.empty[String]),
        new TaskAttemptContextImpl(own, attempt), Some(opened.input), Some(opened.stream), Some(opened.footer))
      reader.initBatch(new StructType, InternalRow.empty)
      reader
    } catch {
      case failure: Throwable =>
        reader.close()
        opened.stream.close()
        throw failure
    }
  }

  /** Says to the reader of one file which columns and rows are wanted, in the file's own names. */
  private def prepare(own: JobConf, opened: OpenedFile, columns: FileColumns): Unit = {
    own.set(ParquetReadSupport.SPARK_ROW_REQUESTED_SCHEMA, columns.renamed(wanted).json)
    own.unset(ParquetInputFormat.FILTER_PREDICATE)
    new ParquetPredicates(columns, wanted).of(filters).foreach(ParquetInputFormat.setFilterPredicate(own, _))
  }

  /** Dates and times are in the proleptic Gregorian calendar, as Iceberg's are, unless Spark wrote into the file
    * that it wrote them otherwise.
    */
  private def vectorized(opened: OpenedFile): VectorizedParquetRecordReader = {
    val said = opened.footer.getFileMetaData.getKeyValueMetaData
    val dates = DataSourceUtils.datetimeRebaseSpec(said.get(_), ReadConfiguration.Corrected)
    val int96 = DataSourceUtils.int96RebaseSpec(said.get(_), ReadConfiguration.Corrected)
    new VectorizedParquetRecordReader(
      null, dates.mode.toString, dates.timeZone, int96.mode.toString, int96.timeZone, mode.offHeap, mode.batchRows)
  }
}

/** Reads file after file of a partition. */
private final class GuardedReader[T](
    table: String, splits: Iterator[FileSplit], open: (FileSplit, ReadErrors) => VectorizedParquetRecordReader)
    extends PartitionReader[T] {
  private var current: Option[(VectorizedParquetRecordReader, ReadErrors)] = None

  override def next(): Boolean = {
    while (!current.exists { case (reader, errors) => errors.translated(reader.nextKeyValue()) }) {
      close()
      if (!splits.hasNext) return false
      val split = splits.next()
      val errors = new ReadErrors(table, split.file.path, split.file.algorithm.nonEmpty)
      current = Some((errors.translated(open(split, errors)), errors))
    }
    true
  }

  override def get(): T = current.get._1.getCurrentValue.asInstanceOf[T]

  override def close(): Unit = {
    current.foreach(_._1.close())
    current = None
  }
}
