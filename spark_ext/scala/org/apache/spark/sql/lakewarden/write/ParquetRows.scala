package org.apache.spark.sql.lakewarden.write

import java.util.HashMap

import scala.annotation.nowarn

import org.apache.hadoop.conf.Configuration
import org.apache.parquet.column.ParquetProperties
import org.apache.parquet.compression.CompressionCodecFactory.BytesInputCompressor
import org.apache.parquet.crypto.InternalFileEncryptor
import org.apache.parquet.hadoop.{CodecFactory, ColumnChunkPageWriteStore, ParquetFileWriter, ParquetWriter}
import org.apache.parquet.hadoop.metadata.{CompressionCodecName, ParquetMetadata}
import org.apache.parquet.io.ColumnIOFactory

import org.apache.spark.sql.catalyst.InternalRow

/** Writes rows into one Parquet file, row group by row group.
  *
  * Parquet's own writer of rows takes no encryptor but the one that it makes; this does what it does, with its parts.
  * A row group ends when it is as large as it may be. How large it is, is looked at seldom, since it is dear: again
  * when half of the rows have come that seem to be left.
  *
  * @param groupSize
  *   in bytes, of a row group
  * @param encryptor
  *   none: the file is in plaintext
  */
private[write] final class ParquetRows(
    output: CountedOutput,
    support: IcebergWriteSupport,
    conf: Configuration,
    codec: CompressionCodecName,
    groupSize: Long,
    properties: ParquetProperties,
    encryptor: Option[InternalFileEncryptor]) {
  private val context = support.init(conf)
  private val codecs = new CodecFactory(conf, properties.getPageSizeThreshold)
  private val compressor: BytesInputCompressor = codecs.getCompressor(codec)
  private val file = begun
  private var before = file.getPos
  private var group = new Group(0)
  private var open = true

  def write(row: InternalRow): Unit = {
    support.write(row)
    group.rows += 1
    if (group.isFull) {
      group.end()
      before = file.getPos
      group = new Group(group.ordinal + 1)
    }
  }

  /** Bytes in the file and in memory. */
  def size: Long = before + group.size

  /** Ends the file.
    *
    * @return its footer
    */
  def end(): ParquetMetadata = {
    try {
      group.end()
      output.endRows()
      val notes = new HashMap(context.getExtraMetaData)
      notes.putAll(support.finalizeWrite().getExtraMetaData)
      file.end(notes)
    } finally close()
    file.getFooter
  }

  /** Leaves the file as it is; calling it again has no effect. */
  def close(): Unit = if (open) {
    open = false
    try group.close()
    finally
      try file.close()
      finally codecs.release()
  }

  @nowarn("cat=deprecation") // the only one that takes an encryptor
  private def begun: ParquetFileWriter = {
    val file = new ParquetFileWriter(
      output, context.getSchema, ParquetFileWriter.Mode.CREATE, groupSize, ParquetWriter.MAX_PADDING_SIZE_DEFAULT,
      properties.getColumnIndexTruncateLength, properties.getStatisticsTruncateLength,
      properties.getPageWriteChecksumEnabled, encryptor.orNull)
    file.start()
    file
  }

  private final class Group(val ordinal: Int) {
    private val pages = new ColumnChunkPageWriteStore(
      compressor, context.getSchema, properties.getAllocator, properties.getColumnIndexTruncateLength,
      properties.getPageWriteChecksumEnabled, encryptor.orNull, ordinal)
    private val columns = properties.newColumnWriteStore(context.getSchema, pages, pages)
    private val consumer = new ColumnIOFactory(false).getColumnIO(context.getSchema).getRecordWriter(columns)
    support.prepareForWrite(consumer)
    private var lookAgain = properties.getMinRowCountForPageSizeCheck.toLong
    var rows = 0L

    def size: Long = columns.getBufferedSize

    def isFull: Boolean = rows >= properties.getRowGroupRowCountLimit || rows >= lookAgain && {
      val rowSize = math.max(size / rows, 1)
      val left = (groupSize - size) / rowSize
      lookAgain = rows + math.min(math.max(left / 2, 1), properties.getMaxRowCountForPageSizeCheck)
      left < ParquetRows.Spare
    }

    def end(): Unit =
      try {
        consumer.flush()
        if (rows > 0) {
          file.startBlock(rows)
          columns.flush()
          pages.flushToFileWriter(file)
          file.endBlock()
        }
      } finally close()

    def close(): Unit =
      try columns.close()
      finally pages.close()
  }
}

private object ParquetRows {

  /** A row group is rather a little too small than too large. */
  private val Spare = 2
}
