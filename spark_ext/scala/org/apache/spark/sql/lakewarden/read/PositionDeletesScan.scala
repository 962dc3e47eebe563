package org.apache.spark.sql.lakewarden.read

import org.apache.spark.sql.connector.read.{Scan, ScanBuilder, SupportsPushDownRequiredColumns}
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.{AsOf, FileGroup, TableHandle}
import org.apache.spark.sql.lakewarden.options.{ReadOptions, StreamOptions}
import org.apache.spark.sql.lakewarden.schema.{FieldIds, IcebergSchema, PartitionTransforms}
import org.apache.spark.sql.types._
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Builds the scan of the metadata table `position_deletes`: the rows of position delete files, which pass the guard as
  * data files do. What is known of a file is read as the metadata columns of its rows.
  *
  * Source: Iceberg table specification, "Position Delete Files" and "Reserved Field IDs".
  *
  * @param shown
  *   the columns of the metadata table
  */
private[lakewarden] final class PositionDeletesBuilder(
    handle: TableHandle, asOf: Option[AsOf], shown: StructType, options: CaseInsensitiveStringMap)
    extends ScanBuilder
    with SupportsPushDownRequiredColumns {
  import PositionDeletesBuilder._
  private val table = handle.table

  /** The current one, also for an earlier state of the table. */
  private val schema =
    IcebergSchema.toSpark(PartitionTransforms.current(table.metadata, "schemas", "schema-id", "current-schema-id"))
  private val told = ReadOptions.of(options, table.properties, table.writeSettings.path("format").asText)
  private var required = shown

  /** Structs are read whole. */
  override def pruneColumns(required: StructType): Unit =
    this.required = StructType(required.map(field => shown(field.name)))

  override def build(): Scan = {
    if (told.snapshots != StreamOptions()) throw LakewardenException.notSupportedYet(
      s"Incremental reads of ${table.fullName}.position_deletes are not supported.", "read-option",
      "Remove the options of incremental reads and streams.")
    val row = FieldIds.put(StructField(Row, schema), RowId, Map.empty)
    val (own, others) = required.partition(field => Own.contains(field.name))
    val wanted = StructType(own.map(field => Own(field.name).getOrElse(row)))
    val known = MetadataColumns.of(table.metadata, schema).map(field => field.name -> field).toMap
    new PositionDeletesScan(
      handle, asOf, wanted, others.map(field => known(OfFiles(field.name))), StructType(own ++ others), told)
  }
}

private[lakewarden] object PositionDeletesBuilder {

  /** The scan of some delete files of a branch's head: `file_path`, `pos` and the path of the delete file. */
  def ofGroup(handle: TableHandle, group: FileGroup): Scan = {
    val wanted = StructType(Seq("file_path", "pos").flatMap(Own))
    val file = MetadataColumns.of(handle.table.metadata, handle.table.schema).filter(_.name == MetadataColumns.File)
    val shown = StructType(FieldIds.strip(wanted) ++ file.map(_.copy(name = "delete_file_path")))
    new PositionDeletesScan(handle, None, wanted, file, shown, ReadOptions(), Some(group))
  }

  private val Row = "row"
  private val RowId = 2147483544

  /** The columns of delete files; that of deleted rows has the table's columns. */
  private val Own: Map[String, Option[StructField]] = Map(
    "file_path" -> Some(FieldIds.put(StructField("file_path", StringType, nullable = false), 2147483546, Map.empty)),
    "pos" -> Some(FieldIds.put(StructField("pos", LongType, nullable = false), 2147483545, Map.empty)),
    Row -> None)

  /** The other columns, as metadata columns of the delete files' rows. */
  private val OfFiles = Map(
    "partition" -> MetadataColumns.Partition, "spec_id" -> MetadataColumns.Spec,
    "delete_file_path" -> MetadataColumns.File)
}

/** @param columns
  *   as Spark sees them
  */
private[lakewarden] final class PositionDeletesScan(
    handle: TableHandle, asOf: Option[AsOf], wanted: StructType, metadata: Seq[StructField], columns: StructType,
    options: ReadOptions, group: Option[FileGroup] = None)
    extends GuardedScan(
      handle, asOf, wanted, Nil, group = group, metadata = metadata, options = options, content = PlanContent.PositionDeletes) {
  override def readSchema(): StructType = columns

  override def description(): String = s"${handle.table.fullName}.position_deletes"

  override def equals(other: Any): Boolean = other match {
    case scan: PositionDeletesScan => super.equals(scan)
    case _                         => false
  }

  override def hashCode: Int = super.hashCode
}
