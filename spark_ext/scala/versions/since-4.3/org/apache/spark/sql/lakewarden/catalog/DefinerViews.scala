package org.apache.spark.sql.lakewarden.catalog

import java.util

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.ArrayNode

import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute
import org.apache.spark.sql.catalyst.expressions.{Alias, And}
import org.apache.spark.sql.catalyst.planning.PhysicalOperation
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project, View}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.Identifier
import org.apache.spark.sql.execution.{FilterExec, ProjectExec, SparkPlan, SparkStrategy}
import org.apache.spark.sql.execution.datasources.v2.{DataSourceV2Relation, DataSourceV2ScanRelation}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Puts a leaf in the place of the text of a definer view.
  *
  * Spark reads the text of a view by the settings of the view. One of them names the view, where it has definer
  * rights: then the text is not read in the reader's statement. A session of its own reads it (`DefinerQuery`), and
  * the statement gets a relation with the view's rows (`DefinerViewTable`). Nothing of the reader's statement can be
  * moved below it, and nothing below it can be found by the statement.
  */
object DefinerViews {
  private val Setting = "lakewarden.definer-view"
  private val Json = new ObjectMapper

  /** The setting for the text of a view.
    *
    * @param reader
    *   who has loaded the view
    * @param columns
    *   names of the columns of the text, by which Spark finds them in what stands for it
    */
  def setting(catalog: String, view: ThroughView, reader: String, columns: Array[String]): (String, String) = {
    val node = Json.createObjectNode.put("catalog", catalog).put("name", view.ident.name)
    node.put("uuid", view.uuid).put("version", view.version).put("reader", reader)
    view.ident.namespace.foreach(node.withArray[ArrayNode]("namespace").add(_))
    columns.foreach(node.withArray[ArrayNode]("columns").add(_))
    Setting -> node.toString
  }

  /** Settings of a view that are its own, and stored with it. */
  def stored(settings: Map[String, String]): Map[String, String] = settings - Setting

  /** Whether a view was loaded as a definer view: a statement that writes a text has only settings of the session. */
  def isLoaded(settings: util.Map[String, String]): Boolean = settings.containsKey(Setting)

  /** What stands for the text that is to be read now; none: the text itself. */
  def relation(session: SparkSession): Option[LogicalPlan] =
    Option(SQLConf.get.getConfString(Setting, null)).map { said =>
      val node = Json.readTree(said)
      val ident = Identifier.of(texts(node, "namespace"), node.required("name").textValue)
      val view = ThroughView(ident, node.required("uuid").textValue, node.required("version").intValue)
      named(
        relation(session, node.required("catalog").textValue, view, node.required("reader").textValue),
        texts(node, "columns"))
    }

  private[catalog] def catalogOf(session: SparkSession, name: String): ReadsViews =
    session.sessionState.catalogManager.catalog(name) match {
      case ours: ReadsViews => ours
      case _                => throw LaunchedCatalog.replaced(name)
    }

  /** By name: Spark makes another instance of the relation where a statement names the view again. */
  private def named(plan: LogicalPlan, columns: Array[String]): LogicalPlan =
    if (columns.isEmpty) plan
    else Project(
      plan.output.zip(columns).map { case (column, name) => Alias(UnresolvedAttribute(Seq(column.name)), name)() }, plan)

  private def texts(node: JsonNode, key: String): Array[String] =
    node.path(key).elements.asScala.map(_.textValue).toArray

  private def relation(session: SparkSession, name: String, view: ThroughView, reader: String): LogicalPlan = {
    val catalog = catalogOf(session, name)
    val query = DefinerQuery.open(session, catalog, view, reader)
    val table = new DefinerViewTable(query, catalog.viewUser(view.ident, reader))
    // Without an identifier, Spark does not load it again.
    DataSourceV2Relation.create(table, Some(catalog), None, CaseInsensitiveStringMap.empty)
  }

  /** Refuses options of a reader, which would have no effect. */
  object OptionsCheck extends (LogicalPlan => Unit) {
    override def apply(plan: LogicalPlan): Unit = plan.foreachWithSubqueries {
      case view: View if !view.options.isEmpty && holds(view.child) => throw LakewardenException.notSupportedYet(
          s"The view ${view.desc.identifier.table} is a definer view, and takes no options.", "read-option",
          "Remove the options.")
      case _ =>
    }

    private def holds(plan: LogicalPlan): Boolean = plan.collectFirst {
      case relation: DataSourceV2Relation if relation.table.isInstanceOf[DefinerViewTable] => relation
    }.nonEmpty
  }

  /** Makes the relation of a view physical. What is above it stays above it. */
  object Strategy extends SparkStrategy {
    override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
      case PhysicalOperation(project, filters, relation: DataSourceV2ScanRelation) => relation.scan match {
          case scan: DefinerViewScan =>
            val rows = DefinerViewExec(relation.output, scan)
            val filtered = filters.reduceLeftOption(And).fold[SparkPlan](rows)(FilterExec(_, rows))
            Seq(ProjectExec(project, filtered))
          case _ => Nil
        }
      case _ => Nil
    }
  }

  /** A table is not as it was, or not by the same policies, when the statement was analyzed. */
  private[catalog] def changed(name: String): LakewardenException = new LakewardenException(
    "TableChanged", s"What the view $name reads was changed after the query was analyzed.", Some("view-changed"),
    Some("Run the query again."))

  /** The view does not fit its tables; what does not fit could tell of columns that the reader does not see. */
  private[catalog] def unreadable(name: String): LakewardenException = new LakewardenException(
    "MetadataInvalid", s"The text of the view $name, which is a definer view, cannot be read.", Some("view-text"),
    Some("Ask its definer to query it, and to replace it."))
}
