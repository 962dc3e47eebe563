package org.apache.spark.sql.lakewarden.catalog

import java.util.Locale

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.analysis.{NamedRelation, UnresolvedRelation}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Iceberg's write option `mergeSchema` of DataFrames: Spark adds the columns that the rows bring, as in
  * `INSERT WITH SCHEMA EVOLUTION`, and the write is left without the option. Writes by position keep it, and are refused.
  *
  * @param isOurs
  *   whether a table of this name is in a Lakewarden catalog
  */
final class MergingWrites(isOurs: Seq[String] => Boolean) extends Rule[LogicalPlan] {
  import MergingWrites._

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperatorsUp {
    case write: AppendData if merges(write, write.writeOptions) =>
      write.copy(table = bare(write.table), writeOptions = rest(write.writeOptions), withSchemaEvolution = true)
    case write: OverwriteByExpression if merges(write, write.writeOptions) =>
      write.copy(table = bare(write.table), writeOptions = rest(write.writeOptions), withSchemaEvolution = true)
    case write: OverwritePartitionsDynamic if merges(write, write.writeOptions) =>
      write.copy(table = bare(write.table), writeOptions = rest(write.writeOptions), withSchemaEvolution = true)
  }

  private def merges(write: V2WriteCommand, options: Map[String, String]): Boolean =
    write.isByName && options.exists { case (name, value) => isOption(name) && value.equalsIgnoreCase("true") } &&
      !options.exists { case (name, value) => isOption(name) && !value.equalsIgnoreCase("true") } && isOurs(write.table)

  private def isOurs(table: NamedRelation): Boolean = table match {
    case relation: UnresolvedRelation   => isOurs(relation.multipartIdentifier)
    case relation: DataSourceV2Relation => relation.table.isInstanceOf[GuardedTable]
    case _                              => false
  }
}

private object MergingWrites {
  private val Options = Set("mergeschema", "merge-schema")

  /** Spark hands the options over with the table, too. */
  private def bare(table: NamedRelation): NamedRelation = table match {
    case relation: UnresolvedRelation   => relation.copy(options = rest(relation.options))
    case relation: DataSourceV2Relation => relation.copy(options = rest(relation.options))
    case other                          => other
  }

  private def rest(options: CaseInsensitiveStringMap): CaseInsensitiveStringMap =
    new CaseInsensitiveStringMap(rest(options.asCaseSensitiveMap.asScala.toMap).asJava)

  private def isOption(name: String): Boolean = Options(name.toLowerCase(Locale.ROOT))
  private def rest(options: Map[String, String]): Map[String, String] = options.filterNot(each => isOption(each._1))
}
