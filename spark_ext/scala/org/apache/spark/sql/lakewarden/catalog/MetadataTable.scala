package org.apache.spark.sql.lakewarden.catalog

import java.util.Locale

import org.apache.spark.sql.catalyst.analysis.NoSuchTableException
import org.apache.spark.sql.connector.catalog.{Column, Identifier}
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.read.{MetadataPages, MetadataScanBuilder, PositionDeletesBuilder}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** What the catalog tells of a table's snapshots, manifests and files: `lake.sales.orders.files`. It can be read only.
  *
  * @param schema
  *   its columns
  */
final class MetadataTable(
    base: GuardedTable, kind: String, pages: MetadataPages, schema: StructType)
    extends ReadOnlyTable {

  override def name: String = pages.name
  override def user: SessionUser = base.user
  override def columns: Array[Column] = schema.fields.map(ShownTable.column)

  override def id: String = s"${base.id}/$kind"
  override def version: String = base.version

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    val handle = base.read(options)
    if (kind == MetadataTables.PositionDeletes) new PositionDeletesBuilder(handle, base.asOf, schema, options)
    else if (handle == base.handle) new MetadataScanBuilder(pages, schema, identity, options)
    else {
      val ofBranch = MetadataTables.pages(handle, kind, base.asOf)
      new MetadataScanBuilder(ofBranch, ofBranch.schema, (handle.table.identity, base.asOf, kind), options)
    }
  }

  override def equals(other: Any): Boolean = other match {
    case table: MetadataTable => table.identity == identity
    case _                    => false
  }

  override def hashCode: Int = identity.hashCode

  private def identity: Product = (base.handle.table.identity, base.asOf, kind)
}

/** Finds metadata tables by name, as Iceberg does: the last part of the name in any case, where there is no table of
  * that name.
  */
object MetadataTables {

  /** Its rows are in delete files, which the engine reads. */
  val PositionDeletes = "position_deletes"

  /** Its rows are in data files, which the engine reads. */
  private val Changes = "changes"
  private val Names = Set(
    "snapshots", "history", "refs", "metadata_log_entries", "manifests", "files", "data_files", "delete_files",
    "entries", "partitions", PositionDeletes, Changes, "all_manifests", "all_files", "all_data_files", "all_delete_files",
    "all_entries")

  /** The table, and the metadata table of it, that a name can stand for. */
  def unapply(ident: Identifier): Option[(Identifier, String)] = {
    val kind = ident.name.toLowerCase(Locale.ROOT)
    Option.when(ident.namespace.length > 1 && Names(kind)) {
      (Identifier.of(ident.namespace.init, ident.namespace.last), kind)
    }
  }

  /** The metadata table of that name; none where the table of which it would be is not there or not the user's to
    * see, or where there is a table of that name.
    *
    * @param load
    *   loads the table of which it is
    */
  def find(ident: Identifier)(load: Identifier => GuardedTable): Option[ReadOnlyTable] = ident match {
    case MetadataTables(base, Changes) =>
      if (unless("NotAuthorized")(load(ident)).nonEmpty) None
      else unless("NotAuthorized")(load(base)).map(ChangesTable.of)
    case MetadataTables(base, kind) => unless("NotAuthorized")(load(base)).flatMap { table =>
        val found = pages(table.handle, kind, table.asOf)
        unless("TableExists")(new MetadataTable(table, kind, found, found.schema))
      }
    case _ => None
  }

  /** The rows of a metadata table at the snapshot or on the branch that the statement names. */
  private[catalog] def pages(handle: TableHandle, kind: String, asOf: Option[AsOf]): MetadataPages = {
    val branch = handle.table.branch
    new MetadataPages(handle, kind, asOf.map(_.snapshotId).orElse(branch.head.filter(_ => branch.isNamed)))
  }

  /** Changes the table of a name. What would change a metadata table is refused by what it is.
    *
    * @param change
    *   false if there was nothing to change
    */
  def changing[T](ident: Identifier)(change: => T): T = ident match {
    case MetadataTables(base, kind) =>
      unless("NotAuthorized")(change).filter(_ != false).getOrElse(throw readOnly(s"$base.$kind"))
    case _ => change
  }

  /** What an operation answers; none if there is no such table, or it is refused in one way. */
  private def unless[T](refused: String)(operation: => T): Option[T] =
    try Some(operation)
    catch {
      case _: NoSuchTableException                                     => None
      case refusal: LakewardenException if refusal.kind == refused => None
    }

  def readOnly(name: String): LakewardenException = LakewardenException.notSupportedYet(
    s"$name is a metadata table, which can only be read.", "metadata-table", "Change the table itself.")
}
