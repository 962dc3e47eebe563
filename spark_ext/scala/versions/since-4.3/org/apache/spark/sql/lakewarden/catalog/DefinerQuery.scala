package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation
import org.apache.spark.sql.catalyst.expressions.{CurrentUser, Literal}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.types.StructType

/** The query that a definer view stands for.
  *
  * It is analyzed, optimized and run in a session that nobody else has. So it has no temporary views, functions,
  * variables or settings of the reader, and no relation of it is known to a statement of the reader, nor the other way
  * around. Its catalog reads tables through the view and does nothing else.
  *
  * @param session
  *   its own
  */
final class DefinerQuery private (val name: String, session: SparkSession, analyzed: LogicalPlan) {
  def schema: StructType = analyzed.schema

  /** Some of the columns. What refuses the query now is thrown; it is not run yet. */
  def of(columns: Seq[String]): DefinerRows = {
    val wanted = columns.map(column => analyzed.output.find(_.name == column).get)
    DefinerQuery.telling(DefinerViews.changed(name)) {
      DefinerQuery.in(session) {
        val execution = new DefinerExecution(session, Project(wanted, analyzed))
        execution.optimizedPlan
        new DefinerRows(name, session, execution)
      }
    }
  }

  override def toString: String = name
}

object DefinerQuery {

  /** Reads the text of a view for a reader, as the catalog decides it now.
    *
    * @param principal
    *   the reader, as the catalog says; Spark knows the account that the engine runs as
    */
  def open(reader: SparkSession, catalog: ReadsViews, view: ThroughView, principal: String): DefinerQuery = {
    val parts = catalog.name +: view.ident.namespace.toSeq :+ view.ident.name
    val session = catalog.viewSession(view)(made(reader, catalog.name, view))
    val name = parts.mkString(".")
    val plan = analyzed(session, name, UnresolvedRelation(parts)).transformAllExpressionsWithSubqueries {
      case user: CurrentUser => Literal.create(principal, user.dataType)
    }
    new DefinerQuery(name, session, plan)
  }

  private def made(reader: SparkSession, catalog: String, view: ThroughView): SparkSession = {
    val session = reader.newSession()
    session.conf.set(SQLConf.ADAPTIVE_EXECUTION_ENABLED.key, true) // see DefinerRows
    DefinerViews.catalogOf(session, catalog).readThrough(view, reader)
    session
  }

  private def analyzed(session: SparkSession, name: String, text: LogicalPlan): LogicalPlan =
    telling(DefinerViews.unreadable(name)) {
      val plan = in(session)(session.sessionState.executePlan(text).analyzed)
      requireTables(name, plan)
      plan
    }

  /** Tells something else in the place of Spark's errors about tables, which name their columns. */
  private def telling[T](instead: => LakewardenException)(body: => T): T =
    try body
    catch {
      case refused: LakewardenException => throw refused
      case _: AnalysisException         => throw instead
    }

  /** Beside tables that were loaded through the view, a text has only what it says itself. */
  private def requireTables(name: String, plan: LogicalPlan): Unit = plan.foreachWithSubqueries {
    case relation: DataSourceV2Relation if relation.table.isInstanceOf[GuardedTable] =>
    case _: OneRowRelation | _: LocalRelation | _: Range | _: CTERelationRef         =>
    case other if other.children.isEmpty                                             => throw DefinerViews.unreadable(name)
    case _                                                                           =>
  }

  private[catalog] def in[T](session: SparkSession)(body: => T): T =
    session.withActive(SQLConf.withExistingConf(session.sessionState.conf)(body))
}
