package org.apache.spark.sql.lakewarden.read

import java.io.ByteArrayInputStream

import scala.jdk.CollectionConverters._

import org.apache.arrow.vector.ipc.ArrowStreamReader

import org.apache.spark.sql.connector.read.PartitionReader
import org.apache.spark.sql.util.ArrowUtils
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnarBatch, ColumnVector}

/** Reads the rows of a page.
  *
  * @param columns
  *   how many are read; none: the rows are only counted
  */
private[lakewarden] final class MetadataReader(bytes: Array[Byte], columns: Int)
    extends PartitionReader[ColumnarBatch] {
  private val allocator = ArrowUtils.rootAllocator.newChildAllocator("lakewarden-metadata", 0, Long.MaxValue)
  private val reader = new ArrowStreamReader(new ByteArrayInputStream(bytes), allocator)
  private val root = reader.getVectorSchemaRoot

  override def next(): Boolean = {
    var more = reader.loadNextBatch()
    while (more && root.getRowCount == 0) more = reader.loadNextBatch()
    more
  }

  override def get(): ColumnarBatch = {
    val vectors = root.getFieldVectors.asScala.take(columns).map(new ArrowColumnVector(_): ColumnVector)
    new ColumnarBatch(vectors.toArray, root.getRowCount)
  }

  override def close(): Unit =
    try reader.close()
    finally allocator.close()
}
