package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, TableSpec}
import org.apache.spark.sql.lakewarden.LakewardenException

/** Refuses a new table whose OPTIONS contradict its TBLPROPERTIES, and `CREATE TABLE … LIKE` where Spark hands it to no
  * catalog.
  *
  * Spark hands both to the catalog as one map, in which the options have overwritten the properties; a person
  * who asked for encryption in one and not in the other would not learn which of them held.
  */
object OptionsRule extends (LogicalPlan => Unit) {
  override def apply(plan: LogicalPlan): Unit = plan.foreach { node =>
    val ours = node.children.exists {
      case ResolvedIdentifier(_: SessionBound, _) => true
      case _                                      => false
    }
    if (ours && node.getClass.getSimpleName == "CreateTableLike" && !TablesLike.isSupported) throw LakewardenException.notSupportedYet(
      "CREATE TABLE … LIKE is not supported.", "create-table-like",
      "List the columns, or use CREATE TABLE … AS SELECT … LIMIT 0.")
    if (ours) node.productIterator.foreach {
      case spec: TableSpec => spec.options.foreach { case (name, value) => check(spec, name, value) }
      case _               =>
    }
  }

  private def check(spec: TableSpec, name: String, value: String): Unit =
    if (spec.properties.get(name).exists(_ != value))
      throw new LakewardenException(
        "PropertyInvalid", s"OPTIONS and TBLPROPERTIES give $name different values.", Some("option"),
        Some("Set it in one of them only."))
}
