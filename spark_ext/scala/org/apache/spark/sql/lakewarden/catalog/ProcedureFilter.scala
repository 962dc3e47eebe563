package org.apache.spark.sql.lakewarden.catalog

import java.util

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.catalyst.expressions.{Expression, PredicateHelper}
import org.apache.spark.sql.catalyst.plans.logical.{Filter, LocalRelation}
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.connector.catalog.{CatalogPlugin, SupportsRead, TableCapability}
import org.apache.spark.sql.connector.catalog.TableCapability.BATCH_READ
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.execution.datasources.DataSourceStrategy
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.read.FilterJson
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.sources
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The argument `where` of a procedure: a condition in SQL, as the catalog takes it. Nothing is read. */
private final class ProcedureFilter(catalog: CatalogPlugin, handle: TableHandle) extends PredicateHelper {

  /** Throws `NotSupportedYet` for a condition that the catalog cannot evaluate, and what Spark throws for one that is
    * none.
    */
  def parse(text: String): JsonNode = {
    val session = SparkSession.active
    val condition = session.sessionState.sqlParser.parseExpression(text)
    val table = DataSourceV2Relation.create(new UnreadTable(handle), Some(catalog), None)
    val plan = Dataset.ofRows(session, Filter(condition, table)).queryExecution.optimizedPlan
    val filters: Seq[sources.Filter] = plan.collectFirst {
      case Filter(found, _)                        => splitConjunctivePredicates(found).map(translated(_, text))
      case empty: LocalRelation if empty.data.isEmpty => Seq(sources.AlwaysFalse())
    }.getOrElse(Seq(sources.AlwaysTrue()))
    val json = new FilterJson(handle.table.schema)
    if (!filters.forall(json.says)) throw refused(text)
    json.of(filters).getOrElse(throw refused(text))
  }

  private def translated(condition: Expression, text: String): sources.Filter =
    DataSourceStrategy.translateFilter(condition, supportNestedPredicatePushdown = true)
      .getOrElse(throw refused(text))

  private def refused(text: String): LakewardenException = LakewardenException.notSupportedYet(
    s"The catalog cannot evaluate the condition ${text.take(200)}.", "procedure-filter",
    "Compare columns with literals, and combine the comparisons with AND and OR.")
}

/** The columns of a table, for a plan that is not run. */
private final class UnreadTable(handle: TableHandle) extends ShownTable(handle) with SupportsRead {
  override def capabilities: util.Set[TableCapability] = util.EnumSet.of(BATCH_READ)
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    () => new AnsweredRows(FieldIds.strip(handle.table.schema), Array.empty)
}
