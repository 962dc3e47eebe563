package org.apache.spark.sql.lakewarden.write

import org.apache.spark.sql.connector.write.{LogicalWriteInfo, Write}
import org.apache.spark.sql.lakewarden.catalog.{FileGroup, SortTerm, TableHandle}

/** How the rows of a rewrite are arranged. */
sealed trait Arrangement

object Arrangement {

  /** As the rows of any write. */
  case object Packed extends Arrangement

  /** Sorted by the table's sort order. */
  case object ByTable extends Arrangement

  /** Sorted by these, or by the z-order of columns. */
  final case class By(terms: Seq[SortTerm], columns: Seq[Seq[String]]) extends Arrangement
}

/** Builds the rewrite of a group of files. Sorted rows come in as many ranges as files are to be written. */
private[lakewarden] final class GroupWriteBuilder(
    handle: TableHandle, info: LogicalWriteInfo, files: CommitTarget, group: FileGroup, arrangement: Arrangement)
    extends GuardedWriteBuilder(handle, info) {
  override protected def target: CommitTarget = files

  override protected def distribution: Option[String] =
    Option.when(arrangement != Arrangement.Packed)("range")

  override protected def settings: WriteSettings = super.settings.copy(targetFileSize = group.fileSize)

  override def build(): Write = arrangement match {
    case Arrangement.Packed  => super.build()
    case Arrangement.ByTable => sorted(None)
    case Arrangement.By(terms, columns) =>
      sorted(Some(RowOrder.of(terms, columns, PartitionLayout.of(handle.table.metadata, handle.table.schema))))
  }

  private def sorted(chosen: Option[RowOrder]): Write = {
    check()
    new SortedWrite(handle, files, settings, chosen, group.outputs)
  }
}

/** @param chosen
  *   an order in place of the table's; its files have no sort order of the table
  */
private final class SortedWrite(
    handle: TableHandle, target: CommitTarget, settings: WriteSettings, chosen: Option[RowOrder], tasks: Int)
    extends GuardedWrite(handle.table, target, settings) {
  private[write] override lazy val order: RowOrder =
    chosen.getOrElse(RowOrder.of(handle.table.metadata, handle.table.schema, layout))

  private[write] override lazy val layout: PartitionLayout = {
    val own = PartitionLayout.of(handle.table.metadata, handle.table.schema)
    if (chosen.isEmpty) own else new PartitionLayout(own.specId, own.fields, 0)
  }

  override def requiredNumPartitions: Int = tasks

  /** Spark takes one of the two. */
  override def advisoryPartitionSizeInBytes: Long = 0
}
