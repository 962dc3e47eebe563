package org.apache.spark.sql.lakewarden.catalog

import java.util

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.catalog.TableCapability.{
  AUTOMATIC_SCHEMA_EVOLUTION, BATCH_READ, BATCH_WRITE, MICRO_BATCH_READ, OVERWRITE_BY_FILTER, OVERWRITE_DYNAMIC,
  STREAMING_WRITE, TRUNCATE}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.expressions.filter.{AlwaysTrue, Predicate}
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write.{
  LogicalWriteInfo, RowLevelOperationBuilder, RowLevelOperationInfo, WriteBuilder}
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.read.{GuardedScanBuilder, MetadataColumns}
import org.apache.spark.sql.lakewarden.schema.{FieldIds, PartitionTransforms}
import org.apache.spark.sql.lakewarden.write.{RowCommand, StagedTarget, StagedWriteBuilder, TableWriteBuilder, WholeFiles}
import org.apache.spark.sql.types.StructField
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** What Spark shows of a table, whether it is there already or being made. */
abstract class ShownTable(handle: TableHandle) extends Table {
  private val table = handle.table

  override def name: String = table.fullName
  override def columns: Array[Column] = FieldIds.strip(table.schema).fields.map(ShownTable.column)
  override def partitioning: Array[Transform] = PartitionTransforms.toSpark(table.metadata)

  /** The sort order and the identifier fields, as properties. */
  def layout: Map[String, String] = LayoutProperties.of(table.metadata)

  /** The table's properties, governed ones in force among them, and Spark's own names for what it shows apart. */
  override def properties: util.Map[String, String] = {
    val location = table.metadata.path("location").asText
    val shown = table.properties + (TableCatalog.PROP_PROVIDER -> "iceberg") + (TableCatalog.PROP_LOCATION -> location) +
      (TableCatalog.PROP_IS_MANAGED_LOCATION -> location.endsWith(s"-${table.uuid}").toString)
    shown.asJava
  }

  override def toString: String = name
}

object ShownTable {
  def column(field: StructField): Column =
    Column.create(field.name, field.dataType, field.nullable, field.getComment().orNull, field.metadata.json)
}

/** A table, for one user: reads and writes go through the guard.
  *
  * Two are equal only if they are the same state of the same table, loaded for the same user by the same
  * policies: what Spark keeps for one is never used for another.
  */
sealed class GuardedTable(val handle: TableHandle, val asOf: Option[AsOf], val user: SessionUser)
    extends ShownTable(handle)
    with UsersTable
    with ListedPartitions
    with SupportsRead
    with SupportsWrite
    with SupportsMetadataColumns
    with SupportsRowLevelOperations
    with EvolvingTable
    with SupportsDeleteV2 {

  override def capabilities: util.Set[TableCapability] =
    util.EnumSet.of(
      BATCH_READ, BATCH_WRITE, MICRO_BATCH_READ, STREAMING_WRITE, TRUNCATE, OVERWRITE_BY_FILTER, OVERWRITE_DYNAMIC,
      AUTOMATIC_SCHEMA_EVOLUTION)

  override protected def canEvolve(change: TableChange.ColumnChange): Boolean =
    Evolution.canMake(change, handle.table.schema)

  /** Other for another user and other policies: `CACHE TABLE` of one user answers for nobody else. */
  override def id: String = handle.table.id

  /** By this Spark sees that a DataFrame's table has moved on, and loads it again. */
  override def version: String = handle.table.metadataLocation

  override def metadataColumns: Array[MetadataColumn] =
    MetadataColumns.of(handle.table.metadata, handle.table.schema).map(MetadataColumns.toSpark).toArray

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    new GuardedScanBuilder(read(options), asOf, options)

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = new TableWriteBuilder(written.on(info.options), info)

  override def newRowLevelOperationBuilder(info: RowLevelOperationInfo): RowLevelOperationBuilder =
    RowCommand.builder(written.on(info.options), info)

  /** Whether the rows to delete are whole files. Else Spark asks for a row-level operation. */
  override def canDeleteWhere(predicates: Array[Predicate]): Boolean = new WholeFiles(written).canDelete(predicates)
  override def deleteWhere(predicates: Array[Predicate]): Unit = new WholeFiles(written).delete(predicates)

  /** TRUNCATE TABLE, and DELETE without a condition. */
  override def truncateTable(): Boolean = {
    new WholeFiles(written).delete(Array(new AlwaysTrue))
    true
  }

  /** The table on the branch that the options name. Throws if the statement names another state. */
  def read(options: CaseInsensitiveStringMap): TableHandle =
    if (asOf.isEmpty) handle.on(options)
    else if (!options.containsKey(TableHandle.BranchOption)) handle
    else throw TableStates.refused(
      s"The statement names a snapshot of $name, and a branch by an option.", "time-travel", "Name one of them.")

  /** The table, which is written as it is now. */
  protected def written: TableHandle =
    if (asOf.isEmpty) handle
    else throw LakewardenException.notSupportedYet(
      s"Writing to an earlier snapshot of $name is not supported.", "row-level", "Leave the snapshot out.")

  /** Whether MERGE writes files again, and not only which of their rows are deleted. */
  def mergesByRewriting: Boolean = RowCommand.writesFilesAgain(handle.table, "merge")

  override def equals(other: Any): Boolean = other match {
    case _: InsertedTable    => false
    case table: GuardedTable => table.handle.table.identity == handle.table.identity && table.asOf == asOf
    case _                   => false
  }

  override def hashCode: Int = (handle.table.identity, asOf).hashCode
}

/** The table that a MERGE inserts into without changing other rows. Spark reads it, and appends to it, as any other: here
  * both are one command, whose reading is checked and validated as that of each other MERGE. Equal to itself alone, so
  * that rows in a cache do not stand for those that the command reads; without a version, so that Spark does not load
  * the table again.
  *
  * @param options
  *   of the statement
  */
final class InsertedTable(table: GuardedTable, options: CaseInsensitiveStringMap)
    extends GuardedTable(table.handle, table.asOf, table.user) {
  private lazy val command = RowCommand.inserts(written.on(options))

  override def version: String = null
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = command.newScanBuilder(options)
  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = command.newWriteBuilder(info)

  override def equals(other: Any): Boolean = other match {
    case table: InsertedTable => table eq this
    case _                    => false
  }

  override def hashCode: Int = System.identityHashCode(this)
}

/** A table that is made, or made anew, together with its first rows: `CREATE` and `REPLACE TABLE … AS SELECT`.
  *
  * Spark writes the rows, then commits or aborts; the catalog makes table and snapshot in the one step of
  * `commitStagedChanges`.
  */
final class StagedGuardedTable(
    handle: TableHandle, ident: Identifier, target: StagedTarget, options: Seq[String], replaces: Boolean)
    extends ShownTable(handle)
    with SupportsWrite
    with StagedTable {
  private var written = false

  override def capabilities: util.Set[TableCapability] = util.EnumSet.of(BATCH_WRITE, TRUNCATE)

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = {
    written = true
    new StagedWriteBuilder(handle, info, target)
  }

  override def commitStagedChanges(): Unit = {
    if (!written) StagedGuardedTable.refuse(options)
    if (replaces) Refusals.ofTable(ident)(target.land()) else Refusals.ofNewTable(ident)(target.land())
  }

  override def abortStagedChanges(): Unit = target.abort()

  /** How many files were written. */
  def addedFiles: Int = target.added
}

object StagedGuardedTable {

  /** Refuses options of writes in a statement that writes no rows. */
  def refuse(options: Seq[String]): Unit = options.headOption.foreach { name =>
    throw LakewardenException.notSupportedYet(
      s"The write option $name has no effect on a statement without rows.", "write-option",
      "Remove it from the statement.")
  }
}
