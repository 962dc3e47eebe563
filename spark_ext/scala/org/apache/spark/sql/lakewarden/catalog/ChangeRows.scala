package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.{AggregateFunction, Count, Max, Sum}
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lakewarden.read.ChangeColumns
import org.apache.spark.sql.types.{DataType, LongType, StringType}

/** What is shown of raw changes, in which a row that was only copied to another file is both removed and added.
  *
  * @param net
  *   whether only the difference between the states before and after all snapshots is shown; else that of each snapshot
  * @param identifiers
  *   the columns that identify a row: a removed and an added one that are equal in these are an update. None: updates
  *   are not told
  */
private[catalog] final case class ChangeForm(net: Boolean, identifiers: Option[Seq[Seq[String]]])

/** Removes copied rows from raw changes, and finds updates.
  *
  * Rows are compared by all columns of the table, as GROUP BY compares them. Of equal rows, as many are left as were
  * added more than removed, or removed more than added.
  *
  * Source: Apache Iceberg, `create_changelog_view`.
  *
  * @param table
  *   its name, for messages
  */
private[catalog] final class ChangeRows(table: String, shown: ChangeColumns, form: ChangeForm) {

  /** The rows that are shown of raw ones, with the same names of columns in the same order. */
  def of(raw: LogicalPlan): LogicalPlan = {
    val counted = if (form.net) overall(difference(raw)) else difference(raw)
    form.identifiers.fold(rows(counted, raw))(names => updates(rows(counted, raw), names))
  }

  /** For each row and snapshot, how often it was added more than removed. */
  private def difference(raw: LogicalPlan): LogicalPlan = {
    val groups = raw.output.filter(_.name != ChangeColumns.Type)
    val added = EqualTo(named(raw, ChangeColumns.Type), Literal(shown.insert))
    val count = Alias(sum(If(added, Literal(1L), Literal(-1L))), Surplus)()
    unequal(Aggregate(groups, groups :+ count, raw))
  }

  /** The same for all snapshots together. Of the snapshots that added a row, or removed it, the last is shown. */
  private def overall(each: LogicalPlan): LogicalPlan = {
    val about = named(each, ChangeColumns.Ordinal) +:
      each.output.filter(field => isOfChanges(field) && field.name != ChangeColumns.Ordinal)
    val groups = each.output.filterNot(field => isOfChanges(field) || field.name == Surplus)
    val surplus = named(each, Surplus)
    def last(of: Expression): Expression =
      Max(If(of, CreateStruct(about), Literal(null, CreateStruct(about).dataType))).toAggregateExpression()
    val total = Alias(sum(surplus), Surplus)()
    val added = Alias(last(GreaterThan(surplus, Literal(0L))), "added")()
    val removed = Alias(last(LessThan(surplus, Literal(0L))), "removed")()
    val summed = unequal(Aggregate(groups, groups ++ Seq(total, added, removed), each))
    // Not by name: the table can have columns of these names.
    val chosen = If(GreaterThan(total.toAttribute, Literal(0L)), added.toAttribute, removed.toAttribute)
    val fields = about.zipWithIndex.map { case (field, at) => Alias(GetStructField(chosen, at), field.name)() }
    Project(groups ++ fields :+ total.toAttribute, summed)
  }

  private def unequal(counted: LogicalPlan): LogicalPlan =
    Filter(Not(EqualTo(named(counted, Surplus), Literal(0L))), counted)

  /** As many rows as were counted. */
  private def rows(counted: LogicalPlan, raw: LogicalPlan): LogicalPlan = {
    val surplus = named(counted, Surplus)
    val many = If(GreaterThan(surplus, Literal(0L)), surplus, Subtract(Literal(0L), surplus))
    val repeated = Generate(ReplicateRows(Seq(many)), Nil, outer = false, None, Nil, counted)
    val kind = If(GreaterThan(surplus, Literal(0L)), Literal(shown.insert), Literal(shown.delete))
    Project(raw.output.map { each =>
      if (each.name == ChangeColumns.Type) Alias(kind, each.name)() else named(repeated, each.name)
    }, repeated)
  }

  /** One removed and one added row with the same identifiers, of one snapshot or overall, are an update. */
  private def updates(rows: LogicalPlan, names: Seq[Seq[String]]): LogicalPlan = {
    val keys = names.map(name => Alias(resolved(rows, name), name.mkString("."))())
    val keyed = Project(rows.output ++ keys, rows)
    val kind = named(keyed, ChangeColumns.Type)
    val by = keys.map(_.toAttribute) ++ (if (form.net) Nil else Seq(named(keyed, ChangeColumns.Ordinal)))
    def count(of: String): Alias = {
      val counted = Count(If(EqualTo(kind, Literal(of)), Literal(1L), Literal(null, LongType))).toAggregateExpression()
      Alias(WindowExpression(counted, WindowSpecDefinition(by, Nil, UnspecifiedFrame)), of)()
    }
    val (added, removed) = (count(shown.insert), count(shown.delete))
    val window = Window(Seq(added, removed), by, Nil, keyed)
    def is(counted: Alias, number: Long): Expression = EqualTo(counted.toAttribute, Literal(number))
    val image = If(EqualTo(kind, Literal(shown.insert)), Literal(shown.after), Literal(shown.before))
    val found = CaseWhen(
      Seq(
        Or(is(added, 0), is(removed, 0)) -> kind,
        And(is(added, 1), is(removed, 1)) -> image),
      SeveralRows(s"Several rows of $table have the same identifiers (${names.map(_.mkString(".")).mkString(", ")})."))
    Project(rows.output.map {
      case each if each.name == ChangeColumns.Type => Alias(found, each.name)()
      case each                                    => each
    }, window)
  }

  private def resolved(plan: LogicalPlan, name: Seq[String]): Expression = {
    // What is found has the name as it was given, in any case.
    val ofChanges = AttributeSet(plan.output.filter(isOfChanges))
    plan.resolve(name, SQLConf.get.resolver).filterNot(_.references.exists(ofChanges.contains)).getOrElse(throw Procedures.refused(
      s"$table has no column ${name.mkString(".")}.", "identifier-columns", "Name columns of the table."))
  }

  private def sum(of: Expression): Expression = (Sum(of): AggregateFunction).toAggregateExpression()

  private def isOfChanges(field: Attribute): Boolean = shown.fields.exists(_.name == field.name)

  private def named(plan: LogicalPlan, name: String): Attribute = plan.output.find(_.name == name).get

  /** No column of a table has such a name. */
  private val Surplus = "\u0000surplus"
}

/** Throws that updates cannot be told, for rows that are not identified by their identifiers. */
private[catalog] final case class SeveralRows(problem: String) extends LeafExpression with CodegenFallback {
  override def dataType: DataType = StringType
  override def nullable: Boolean = false
  override lazy val deterministic: Boolean = false

  override def eval(row: InternalRow): Any = throw Procedures.refused(
    problem, "identifier-columns", "Choose columns that identify a row, or leave updates out.")
}
