package org.apache.spark.sql.lakewarden.catalog

import java.util

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.SupportsPartitionManagement
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.read.{MetadataColumns, MetadataPages, MetadataReader}
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.types.{StructField, StructType}

/** SHOW PARTITIONS: the partitions that the metadata table `partitions` has. Rows make and remove them, statements
  * cannot.
  */
trait ListedPartitions extends SupportsPartitionManagement { table: GuardedTable =>

  /** The fields of all partition specs; empty for a table that never was partitioned. */
  override def partitionSchema: StructType = {
    val columns = MetadataColumns.of(handle.table.metadata, handle.table.schema)
    columns.find(_.name == MetadataColumns.Partition).map(_.dataType) match {
      case Some(fields: StructType) => FieldIds.strip(fields)
      case _                        => new StructType
    }
  }

  /** @param names
    *   fields that have to have the values of `values`
    */
  override def listPartitionIdentifiers(names: Array[String], values: InternalRow): Array[InternalRow] = {
    val schema = partitionSchema
    val wanted = names.map(schema.fieldIndex)
    listed(schema).filter { row =>
      wanted.zipWithIndex.forall { case (field, at) =>
        row.get(field, schema(field).dataType) == values.get(at, schema(field).dataType)
      }
    }
  }

  private def listed(schema: StructType): Array[InternalRow] = {
    val pages = new MetadataPages(handle, "partitions", asOf.map(_.snapshotId).orElse(handle.table.snapshotId))
    val found = pages.rows(StructType(Seq(StructField("partition", schema, nullable = false))))
    found.headOption.flatMap(_.header.required("hidden").elements.asScala.nextOption()).foreach { hidden =>
      throw new LakewardenException(
        "NotAuthorized", s"The partitions of $name show values of the field ${hidden.asText.stripPrefix("partition.")}, " +
          "whose column you cannot select.", Some("partition-values"),
        Some(s"Ask for the select permission on that column, or query ${pages.name}."))
    }
    found.toArray.flatMap(page => rows(new MetadataReader(page.bytes, 1), schema.length))
  }

  private def rows(reader: MetadataReader, fields: Int): Seq[InternalRow] =
    try Iterator.continually(reader).takeWhile(_.next())
        .flatMap(_.get().rowIterator.asScala.map(_.getStruct(0, fields).copy())).toVector
    finally reader.close()

  override def partitionExists(ident: InternalRow): Boolean = throw unmanaged
  override def createPartition(ident: InternalRow, properties: util.Map[String, String]): Unit = throw unmanaged
  override def dropPartition(ident: InternalRow): Boolean = throw unmanaged
  override def replacePartitionMetadata(ident: InternalRow, properties: util.Map[String, String]): Unit =
    throw unmanaged
  override def loadPartitionMetadata(ident: InternalRow): util.Map[String, String] = throw unmanaged

  private def unmanaged: LakewardenException = LakewardenException.notSupportedYet(
    s"Partitions of $name cannot be added, dropped or changed by themselves.", "partition",
    "Insert or delete rows. SHOW PARTITIONS lists the partitions that have rows.")
}
