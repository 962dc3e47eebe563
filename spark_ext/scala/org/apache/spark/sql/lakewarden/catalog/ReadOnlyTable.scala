package org.apache.spark.sql.lakewarden.catalog

import java.util

import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.catalog.TableCapability.{
  BATCH_READ, BATCH_WRITE, OVERWRITE_BY_FILTER, OVERWRITE_DYNAMIC, TRUNCATE}
import org.apache.spark.sql.connector.write.{
  LogicalWriteInfo, RowLevelOperationBuilder, RowLevelOperationInfo, WriteBuilder}
import org.apache.spark.sql.sources.Filter

/** A table that was loaded for one user. */
trait UsersTable extends Table {
  def user: SessionUser
}

/** A table that is made out of another one's metadata or history. */
trait ReadOnlyTable
    extends UsersTable
    with SupportsRead
    with SupportsWrite
    with SupportsRowLevelOperations
    with SupportsDelete {

  /** Writing is a capability, so that it is refused here and says why. */
  override def capabilities: util.Set[TableCapability] =
    util.EnumSet.of(BATCH_READ, BATCH_WRITE, TRUNCATE, OVERWRITE_BY_FILTER, OVERWRITE_DYNAMIC)

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = throw MetadataTables.readOnly(name)
  override def newRowLevelOperationBuilder(info: RowLevelOperationInfo): RowLevelOperationBuilder =
    throw MetadataTables.readOnly(name)
  override def canDeleteWhere(filters: Array[Filter]): Boolean = throw MetadataTables.readOnly(name)
  override def deleteWhere(filters: Array[Filter]): Unit = throw MetadataTables.readOnly(name)
  override def truncateTable(): Boolean = throw MetadataTables.readOnly(name)
  override def toString: String = name
}
