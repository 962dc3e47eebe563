package org.apache.spark.sql.lakewarden.statements

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, EmptyBlock, ExprCode, FalseLiteral, JavaCode}
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys
import org.apache.spark.sql.catalyst.plans.FullOuter
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.util.MetadataColumnHelper
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.statements.ReplacingInserts.Replaced
import org.apache.spark.sql.types.{DataType, LongType, MapType}

/** Makes each row of the query of a `ReplacingInserts` two rows of a MERGE: one that deletes, with the columns of the
  * condition, and one that comes, with the new values too. The query runs once, so that both are of the same rows.
  * A join evaluates its keys for both: what the condition makes of a row that comes is no other than of one that deletes.
  *
  * The column `kind` is zero in rows that delete. In the others it is a hash of their values, so that a join by equality
  * spreads them over its tasks, and compares none with the table.
  */
object ReplacingRows extends Rule[LogicalPlan] {
  private val Kind = "__lakewarden_kind"
  private val NoKind = Literal(0L)

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveOperators {
    case merge @ MergeIntoTable(target, source, condition, Seq(DeleteAction(Some(_: Replaced))), Seq(insert: InsertAction), _, _)
        if condition.resolved && target.resolved && source.resolved =>
      requireRows(condition)
      new Parts(target, source, condition, insert).merged(merge)
  }

  private def requireRows(condition: Expression): Unit = {
    val metadata = condition.references.filter(_.isMetadataCol).map(_.name).toSeq
    if (metadata.nonEmpty) throw MetadataInCommands.unusable(metadata)
    if (!condition.deterministic || SubqueryExpression.hasSubquery(condition)) throw LakewardenException.notSupportedYet(
      "The condition of REPLACE ON has a subquery, or a function that is not deterministic.", "replace-on",
      "Compare columns of the table with columns of the query.")
  }

  private final class Parts(target: LogicalPlan, source: LogicalPlan, condition: Expression, insert: InsertAction) {
    private val keys = condition.references.filter(source.outputSet.contains).toSeq
    private val values = insert.assignments.map(_.value).collect { case column: Attribute => column }
    private val kind = AttributeReference(Kind, LongType, nullable = false)()
    private val (keysHere, valuesHere) = (keys.map(here), values.map(here))
    private val isNew = Not(EqualTo(kind, NoKind))

    def merged(merge: MergeIntoTable): LogicalPlan = {
      val matches = moved(condition, keys, keysHere)
      val assignments = insert.assignments.map { each =>
        Assignment(each.key, moved(each.value, values, valuesHere))
      }
      merge.copy(
        sourceTable = rows,
        mergeCondition = And(deletes(matches), matches),
        matchedActions = Seq(DeleteAction(None)),
        notMatchedActions = Seq(InsertAction(Some(isNew), assignments)))
    }

    private def rows: LogicalPlan = {
      val deleting = keys ++ values.map(nothing) :+ NoKind
      val coming = keys ++ values :+ BitwiseOr(hash, Literal(1L))
      Deleting(keysHere, kind, Expand(Seq(deleting, coming), keysHere ++ valuesHere :+ kind, source))
    }

    private def hash: Expression = values.filterNot(_.dataType.existsRecursively(_.isInstanceOf[MapType])) match {
      case Nil    => Literal(0L)
      case hashed => new XxHash64(hashed)
    }

    /** That the row of the query is one that deletes. */
    private def deletes(matches: Expression): Expression = {
      val join = Join(target, rows, FullOuter, Some(matches), JoinHint.NONE)
      val column = matches.references.find(target.outputSet.contains)
      column.filter(_ => ExtractEquiJoinKeys.unapply(join).nonEmpty).fold(EqualTo(kind, NoKind))(any => EqualTo(Zero(any), kind))
    }

    private def here(column: Attribute): Attribute = column.newInstance().withNullability(true)
    private def nothing(column: Attribute): Expression = Literal.create(null, column.dataType)

    private def moved(expression: Expression, from: Seq[Attribute], to: Seq[Attribute]): Expression = {
      val places = AttributeMap(from.zip(to))
      expression.transform { case column: Attribute => places.getOrElse(column, column) }
    }
  }
}

/** Zero for each row of a table: as one side of an equality, it makes a join put rows with another number apart. The
  * optimizer does not know its value.
  */
final case class Zero(child: Expression) extends UnaryExpression {
  override def nullable: Boolean = false
  override def foldable: Boolean = false
  override def dataType: DataType = LongType
  override def eval(input: InternalRow): Any = 0L

  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode =
    ev.copy(code = EmptyBlock, isNull = FalseLiteral, value = JavaCode.literal("0L", LongType))

  override protected def withNewChildInternal(newChild: Expression): Zero = copy(child = newChild)
}
