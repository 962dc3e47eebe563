package org.apache.spark.sql.lakewarden.statements

import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, GetStructField, LeafExpression, Unevaluable}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.util.MetadataColumnHelper
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.GuardedTable
import org.apache.spark.sql.lakewarden.read.MetadataColumns
import org.apache.spark.sql.types.DataType

/** Refuses metadata columns where a statement that changes rows cannot use them.
  *
  * Spark leaves out an assignment to a metadata column without a word, as soon as it is resolved and before rules of
  * extensions run. So one rule marks assignments to such names, and the other, once the column is known, refuses them or
  * takes the mark away.
  */
object MetadataInCommands {

  /** Before relations are looked up. */
  object Begun extends Rule[LogicalPlan] {
    override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
      case command @ (_: UpdateTable | _: MergeIntoTable) => command.transformExpressions {
          case Assignment(name: UnresolvedAttribute, value) if !value.isInstanceOf[Undecided] && isMetadata(name) =>
            Assignment(name, Undecided(value))
        }
    }

    private def isMetadata(name: UnresolvedAttribute): Boolean =
      name.nameParts.exists(part => MetadataColumns.All.exists(_.equalsIgnoreCase(part)))
  }

  object Decided extends Rule[LogicalPlan] {
    override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
      case command @ (_: UpdateTable | _: MergeIntoTable) => command.transformExpressions {
          case Assignment(column, Undecided(value)) if column.resolved =>
            metadataOf(column).foreach(name => throw refused(s"The metadata column $name cannot be assigned."))
            Assignment(column, value)
        }
    }

    private def metadataOf(column: Expression): Option[String] = column match {
      case field: GetStructField                      => metadataOf(field.child)
      case column: Attribute if column.isMetadataCol  => Some(column.name)
      case _                                          => None
    }
  }

  /** In conditions, after Spark has made a plan of the command: there are no columns but those that it takes with each
    * row.
    */
  object Used extends Rule[LogicalPlan] {
    override def apply(plan: LogicalPlan): LogicalPlan = {
      plan.foreach {
        case write: V2WriteCommand if isOurs(write) =>
          val missing = write.flatMap(_.missingInput.toSeq.filter(_.isMetadataCol))
          if (missing.nonEmpty) throw unusable(missing.map(_.name).distinct)
        case _ =>
      }
      plan
    }

    private def isOurs(write: V2WriteCommand): Boolean = (write match {
      case rows: RowLevelWrite => rows.originalTable
      case other               => other.table
    }).exists {
      case relation: DataSourceV2Relation => relation.table.isInstanceOf[GuardedTable]
      case _                              => false
    }
  }

  /** The refusal of a condition that uses one of these columns. */
  def unusable(columns: Seq[String]): LakewardenException =
    refused(s"The metadata column ${columns.mkString(" or ")} cannot be used in this statement.")

  private def refused(problem: String): LakewardenException = LakewardenException.notSupportedYet(
    problem, "metadata-column", "Use columns of the table. In conditions of DELETE, UPDATE and MERGE, _file can be used, too.")

  /** The value of an assignment to a column that is not known yet. It is no child: Spark refuses a `DEFAULT` that is
    * part of another expression.
    */
  final case class Undecided(value: Expression) extends LeafExpression with Unevaluable {
    override lazy val resolved: Boolean = false
    override def nullable: Boolean = value.nullable
    override def dataType: DataType = value.dataType
  }
}
