package org.apache.spark.sql.lakewarden.statements

import scala.jdk.CollectionConverters._

import org.apache.spark.SPARK_VERSION
import org.apache.spark.sql.{SparkSession, SparkSessionExtensions}
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.GuardedTable
import org.apache.spark.sql.types.{BooleanType, DataType}

/** `INSERT INTO … REPLACE USING (columns) query` and `REPLACE ON condition query`: the rows of the table go that match a
  * row of the query, and all rows of the query come.
  *
  * Spark parses them, and refuses them for all tables. For tables of Lakewarden catalogs they become a MERGE, so that
  * modes, isolation, checks and permissions are those of MERGE:
  *
  *  - before relations are looked up, the statement becomes an overwrite by a condition that is not resolved
  *    (`Replaced`), and its query gets a name. Spark finds the table, adds columns that the rows bring, and casts the
  *    rows, as for `REPLACE WHERE`;
  *  - then the overwrite becomes a MERGE that deletes and inserts. Spark resolves the condition (`Merged`);
  *  - then the rows of the query become rows that delete and rows that come (`ReplacingRows`), and Spark rewrites the
  *    MERGE.
  *
  * What does not come to the end of this way keeps a condition that is not resolved. It never runs.
  */
object ReplacingInserts {

  /** @param isOurs
    *   whether a table of this name is in a Lakewarden catalog
    */
  def inject(extensions: SparkSessionExtensions, isOurs: SparkSession => Seq[String] => Boolean): Unit = {
    extensions.injectHintResolutionRule(session => new Begun(isOurs(session)))
    extensions.injectResolutionRule(_ => Merged)
    extensions.injectResolutionRule(_ => ReplacingRows)
    extensions.injectPlannerStrategy(_ => Deleting.Strategy)
  }

  /** The name of the query as the user wrote it, below Spark's casts. */
  private val Query = "__lakewarden_query"

  /** One statement alone: each INSERT of several in one statement would conflict with those before it. */
  final class Begun(isOurs: Seq[String] => Boolean) extends Rule[LogicalPlan] {
    override def apply(plan: LogicalPlan): LogicalPlan = plan match {
      case insert: InsertIntoStatement => (insert.table, insert.replaceCriteriaOpt) match {
          case (relation: UnresolvedRelation, Some(criteria @ (_: InsertReplaceUsing | _: InsertReplaceOn)))
              if isOurs(relation.multipartIdentifier) =>
            requireNoOptions(relation.clearWritePrivileges)
            insert.copy(
              query = SubqueryAlias(Query, insert.query), replaceCriteriaOpt = Some(InsertReplaceWhere(Replaced(criteria))))
          case _ => insert
        }
      case other => other
    }

    /** Spark hands them to the reading of the table, too, or to nobody. */
    private def requireNoOptions(relation: UnresolvedRelation): Unit =
      relation.options.keySet.asScala.toSeq.sorted.headOption.foreach { option =>
        throw LakewardenException.notSupportedYet(
          s"The write option $option is not supported for INSERT INTO ... REPLACE USING and REPLACE ON.", "write-option",
          "Remove it from the statement. Write a branch by its name, as in table.branch_x.")
      }
  }

  object Merged extends Rule[LogicalPlan] {
    override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
      case write: OverwriteByExpression if write.table.resolved && write.query.resolved && write.outputResolved =>
        (write.deleteExpr, write.table) match {
          case (replaced: Replaced, relation: DataSourceV2Relation) if isOurs(relation) =>
            merge(relation.newInstance(), replaced, write.query, write.isByName)
          case (_: Replaced, other) => throw LakewardenException.notSupportedYet(
              s"INSERT INTO ... REPLACE USING and REPLACE ON do not work on ${other.name}.", "replace-using",
              "Use MERGE, or DELETE and INSERT INTO.")
          case _ => write
        }
    }

    private def isOurs(relation: DataSourceV2Relation): Boolean = relation.table.isInstanceOf[GuardedTable]

    private def merge(
        table: DataSourceV2Relation, replaced: Replaced, query: LogicalPlan, byName: Boolean): LogicalPlan = {
      val (written, rows) = uncovered(query)
      val values = query.output.zipWithIndex.map { case (column, i) => Alias(column, s"${Query}_$i")() }
      val condition = replaced.criteria match {
        case InsertReplaceUsing(columns) =>
          val matched = columns.map(new UsingColumns(table, written.output, byName).position)
          matched.map(i => EqualTo(table.output(i), values(i).toAttribute): Expression).reduce(And)
        case InsertReplaceOn(condition, _)   => condition
        case InsertReplaceWhere(condition) => condition
      }
      MergeIntoTable(
        named(table, replaced.criteria), Project(written.output ++ values, rows), condition,
        Seq(DeleteAction(Some(replaced))),
        Seq(InsertAction(None, table.output.zip(values).map { case (column, value) => Assignment(column, value.toAttribute) })),
        Nil, withSchemaEvolution = false)
    }

    /** As conditions name the table: by its alias, or by its name. */
    private def named(table: DataSourceV2Relation, criteria: InsertReplaceCriteria): LogicalPlan =
      criteria match {
        case InsertReplaceOn(_, Some(alias)) => SubqueryAlias(alias, table)
        case _ => table.identifier.fold[LogicalPlan](table) { name =>
            SubqueryAlias(table.catalog.map(_.name).toSeq ++ name.namespace :+ name.name, table)
          }
      }

    /** The query as the user wrote it, and the query with Spark's casts that has the columns of both. */
    private def uncovered(query: LogicalPlan): (LogicalPlan, LogicalPlan) = query match {
      case SubqueryAlias(name, written) if name.name == Query => (written, written)
      case Project(columns, child) =>
        val (written, rows) = uncovered(child)
        val shown = AttributeSet(columns.map(_.toAttribute))
        (written, Project(columns ++ written.output.filterNot(shown.contains), rows))
      case other => throw LakewardenException.notSupportedYet(
          s"The rows of INSERT INTO ... REPLACE cannot be found in the plan of Spark $SPARK_VERSION (${other.nodeName}).",
          "replace-using", "Use MERGE, or DELETE and INSERT INTO.")
    }
  }

  /** The condition of the statement: not resolved, as long as it is not that of a MERGE. It is no child, since Spark would
    * look up its names in the table alone.
    */
  final case class Replaced(criteria: InsertReplaceCriteria) extends LeafExpression with Unevaluable {
    override lazy val resolved: Boolean = false
    override def nullable: Boolean = false
    override def dataType: DataType = BooleanType
  }

  /** Finds the columns of `REPLACE USING` in the table. Their new values are compared: those of the columns of the query
    * with the same position, or with the same name in `INSERT … BY NAME`.
    *
    * @param written
    *   the columns of the query
    */
  private final class UsingColumns(table: DataSourceV2Relation, written: Seq[Attribute], byName: Boolean) {

    def position(column: String): Int = {
      val at = find(table.output, column)
      if (at < 0) throw refused(
        s"Column `$column` of REPLACE USING does not exist in ${table.table.name}. " +
          s"Columns: ${table.output.map(_.name).mkString(", ")}.", "Name columns of the table.")
      val shown = find(written, column)
      if (byName && shown < 0) throw refused(
        s"Column `$column` of REPLACE USING is a column of ${table.table.name}, but not of the query.",
        "Add it to the query: without it, no row of the table would match.")
      if (!byName && shown >= 0 && shown != at) throw refused(
        s"Column `$column` of REPLACE USING is column ${at + 1} of ${table.table.name}, but column ${shown + 1} of the " +
          "query. Rows are inserted by position.", "Write INSERT INTO ... BY NAME, or change the order of the columns.")
      at
    }

    private def find(columns: Seq[Attribute], name: String): Int =
      columns.indexWhere(column => SQLConf.get.resolver(column.name, name))

    private def refused(problem: String, hint: String): LakewardenException =
      new LakewardenException("RequestInvalid", problem, Some("replace-using"), Some(hint))
  }
}
