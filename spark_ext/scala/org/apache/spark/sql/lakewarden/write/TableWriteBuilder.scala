package org.apache.spark.sql.lakewarden.write

import org.apache.spark.sql.connector.expressions.filter.{AlwaysTrue, Predicate}
import org.apache.spark.sql.connector.write._
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.{SourceName, TableHandle}

/** Builds an append of rows to a table that is there, or an overwrite: of rows that match a filter, or of partitions. */
private[lakewarden] final class TableWriteBuilder(handle: TableHandle, info: LogicalWriteInfo)
    extends GuardedWriteBuilder(handle, info) with SupportsOverwriteV2 with SupportsDynamicOverwrite {
  private val (table, options) = (handle.table, info.options)
  private var change: Change = Append

  /** Those of an overwrite have no effect on an append; a path is the name by which the table was found, or has none. */
  override protected def unused: Set[String] = {
    val path = Option(options.get(SourceName.Path)).filterNot(SourceName.isOf(_, table.name)).map(_ => SourceName.Path)
    (if (change == Append) GuardedWriteBuilder.OfOverwrites else Set.empty) ++ path
  }

  override protected def target: CommitTarget = new TableTarget(handle, change, summary)

  /** In complete mode, Spark overwrites all rows by each micro-batch. */
  override protected def epochs: Option[EpochTarget] = {
    StreamSink.requireColumns(table, info.schema)
    val own = change match {
      case Append                                                                         => Some(Append)
      case removed: RemoveRows if removed.isOfAll && removed.validation.isolation.isEmpty => Some(ReplaceAll)
      case _                                                                              => None
    }
    own.map(new EpochTarget(handle, _, summary, info.queryId))
  }

  override def overwrite(predicates: Array[Predicate]): WriteBuilder =
    if (isDynamic && predicates.forall(_.isInstanceOf[AlwaysTrue])) overwriteDynamicPartitions()
    else {
      val filter = ExactFilters.of(predicates, table.schema).getOrElse(throw inexact(predicates))
      changing(RemoveRows(filter, Validation.of(table, options), adds = true))
    }

  override def overwriteDynamicPartitions(): WriteBuilder = changing(RemovePartitions(Validation.of(table, options)))

  private def changing(wanted: Change): WriteBuilder = {
    change = wanted
    this
  }

  /** Whether rows of the partitions alone go that the new rows are in, although the statement says all rows. */
  private def isDynamic: Boolean = told.choice(Seq("static", "dynamic"), "overwrite-mode").contains("dynamic")

  private def inexact(predicates: Array[Predicate]): LakewardenException = LakewardenException.notSupportedYet(
    s"The rows to overwrite in ${table.fullName} are chosen by a condition that the catalog cannot evaluate: " +
      s"${predicates.mkString(" AND ")}.", "overwrite-filter",
    "Compare columns with literals, or use DELETE and INSERT INTO.")
}
