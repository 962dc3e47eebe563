package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.connector.catalog.Identifier

/** What the last part of a name says of the table that the parts before it name: `lake.db.t.branch_x`, `tag_x`,
  * `snapshot_id_1`, `at_timestamp_1` (milliseconds since the epoch).
  *
  * Source: Apache Iceberg's `SparkCatalog`.
  *
  * @param table
  *   the table that is meant
  */
private[catalog] final case class Selector(table: Identifier, state: TableStates => TableState)

private[catalog] object Selector {
  private val OfBranch = "branch_(.+)".r
  private val OfTag = "tag_(.+)".r
  private val OfSnapshot = """snapshot_id_(\d+)""".r
  private val OfTime = """at_timestamp_(\d{1,15})""".r

  def of(ident: Identifier): Option[Selector] =
    if (ident.namespace.length < 2) None
    else state(ident.name).map(Selector(Identifier.of(ident.namespace.init, ident.namespace.last), _))

  private def state(text: String): Option[TableStates => TableState] = text match {
    case OfBranch(name)   => Some(_.branch(name))
    case OfTag(name)      => Some(_.tag(name))
    case OfSnapshot(id)   => Some(_.snapshot(id))
    case OfTime(millis)   => Some(_.timestamp(millis.toLong * 1000))
    case _                => None
  }
}
