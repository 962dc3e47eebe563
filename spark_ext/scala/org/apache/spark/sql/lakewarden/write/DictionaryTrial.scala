package org.apache.spark.sql.lakewarden.write

import org.apache.parquet.column.{ColumnDescriptor, ParquetProperties}
import org.apache.parquet.column.values.{RequiresFallback, ValuesWriter}
import org.apache.parquet.column.values.factory.DefaultValuesWriterFactory
import org.apache.parquet.column.values.fallback.FallbackValuesWriter

/** Makes the writers of a file's values that Parquet makes by default, with a `DictionaryTrial` where there may be a
  * dictionary.
  */
private[write] final class TriedDictionaries extends DefaultValuesWriterFactory {
  override def newValuesWriter(column: ColumnDescriptor): ValuesWriter = super.newValuesWriter(column) match {
    case writer: FallbackValuesWriter[_, _] => DictionaryTrial.of(writer)
    case other                              => other
  }
}

/** Decides early whether a column's dictionary is worth it.
  *
  * Parquet decides when the first page of a column chunk ends. Until then each value goes into a hash table, for
  * nothing if most are distinct, and the longer pages are, the more values. Here the same rule is applied when sizes are
  * looked at for the first time after as many values as a page of Parquet's default has rows; the page goes on.
  */
private final class DictionaryTrial[I <: ValuesWriter with RequiresFallback, F <: ValuesWriter](initial: I, other: F)
    extends FallbackValuesWriter[I, F](initial, other) {
  private var decided = false

  override def getBufferedSize: Long = {
    if (!decided && initial.getBufferedSize >= DictionaryTrial.Size) {
      decided = true
      getBytes // applies the rule as at the end of a page; the bytes are made again there
    }
    super.getBufferedSize
  }

  override def reset(): Unit = {
    decided = true
    super.reset()
  }
}

private object DictionaryTrial {

  /** Bytes of the places in a dictionary, as they wait to be encoded: 20,000 of them. */
  private val Size = 4L * ParquetProperties.DEFAULT_PAGE_ROW_COUNT_LIMIT

  def of[I <: ValuesWriter with RequiresFallback, F <: ValuesWriter](
      writer: FallbackValuesWriter[I, F]): DictionaryTrial[I, F] =
    new DictionaryTrial(writer.initialWriter, writer.fallBackWriter)
}
