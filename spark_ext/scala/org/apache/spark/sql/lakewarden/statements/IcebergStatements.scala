package org.apache.spark.sql.lakewarden.statements

import org.apache.spark.sql.catalyst.analysis.UnresolvedTable
import org.apache.spark.sql.catalyst.parser.ParseException
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.trees.Origin
import org.apache.spark.sql.execution.command.ExplainCommand
import org.apache.spark.sql.internal.VariableSubstitution
import org.apache.spark.sql.lakewarden.catalog.SortTerm
import org.apache.spark.sql.lakewarden.statements.IcebergGrammar.{NoSuccess, Success}

/** Reads Iceberg's statements about tables of Lakewarden catalogs; every other text is left to the next parser, whole.
  *
  * @param isOurs
  *   whether a table of this name is in a Lakewarden catalog
  */
final class IcebergStatements(isOurs: Seq[String] => Boolean) {

  /** The plan of one of these statements.
    *
    * Throws `ParseException` if it begins as one about a table of ours and does not go on as one.
    */
  def read(sql: String): Option[LogicalPlan] =
    if (IcebergStatements.canBegin(sql)) {
      val text = if (sql.contains("${")) new VariableSubstitution().substitute(sql) else sql
      IcebergGrammar.head(new TokenReader(text, SqlToken.tokens(text))) match {
        case Success(head, rest) if isOurs(head.table) => Some(plan(text, head, rest))
        case _                                         => None
      }
    } else None

  private def plan(text: String, head: StatementHead, rest: IcebergGrammar.Input): LogicalPlan =
    IcebergGrammar.body(rest) match {
      case Success(changes, _) =>
        val altered = AlterIcebergTable(UnresolvedTable(head.table, s"ALTER TABLE ... ${head.command}"), changes)
        head.explained.fold[LogicalPlan](altered)(ExplainCommand(altered, _))
      case refused: NoSuccess => throw IcebergStatements.refusal(text, refused)
    }
}

object IcebergStatements {
  private val Begin = Set("ALTER", "EXPLAIN")

  /** Whether the first word, or a variable in its place, can begin one of these statements. */
  private def canBegin(sql: String): Boolean = SqlToken.tokens(sql).headOption.exists {
    case Word(text, _)   => Begin(text.toUpperCase(java.util.Locale.ROOT))
    case Other(text, _)  => text == "$"
    case _               => false
  }

  /** The argument `sort_order` of a rewrite. Throws `ParseException` if it is none. */
  def sortOrder(text: String): Either[Seq[SortTerm], Seq[Seq[String]]] =
    IcebergGrammar.sortOrder(new TokenReader(text, SqlToken.tokens(text))) match {
      case Success(order, _)  => order
      case refused: NoSuccess => throw refusal(text, refused)
    }

  /** Spark's own error for a text that is no statement, at the place that cannot be read. */
  private def refusal(text: String, refused: NoSuccess): ParseException = {
    val here = refused.next
    val (line, column) = if (here.atEnd) (text.count(_ == '\n') + 1, text.length) else (here.pos.line, here.pos.column - 1)
    val what = if (here.atEnd) "end of input" else s"'${here.first.text}'"
    new ParseException(
      Some(text), Origin(Some(line), Some(column)), "PARSE_SYNTAX_ERROR",
      Map("error" -> what, "hint" -> s": ${refused.msg}"), Array.empty)
  }
}
