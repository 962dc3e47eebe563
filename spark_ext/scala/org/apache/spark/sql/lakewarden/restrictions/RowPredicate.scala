package org.apache.spark.sql.lakewarden.restrictions

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.lakewarden.write.SingleValue
import org.apache.spark.sql.types._

/** A condition on the unmasked values of a row, in SQL's three-valued logic. */
private[lakewarden] sealed trait RowPredicate {

  /** Ids of the columns that it reads. */
  def columns: Set[Int]
}

private[lakewarden] final case class Always(value: Boolean) extends RowPredicate {
  override def columns: Set[Int] = Set.empty
}

private[lakewarden] final case class Both(left: RowPredicate, right: RowPredicate) extends RowPredicate {
  override def columns: Set[Int] = left.columns ++ right.columns
}

private[lakewarden] final case class Either(left: RowPredicate, right: RowPredicate) extends RowPredicate {
  override def columns: Set[Int] = left.columns ++ right.columns
}

private[lakewarden] final case class Not(child: RowPredicate) extends RowPredicate {
  override def columns: Set[Int] = child.columns
}

private[lakewarden] final case class IsNull(column: Int) extends RowPredicate {
  override def columns: Set[Int] = Set(column)
}

private[lakewarden] final case class IsNaN(column: Int) extends RowPredicate {
  override def columns: Set[Int] = Set(column)
}

/** @param value
  *   in Spark's internal form
  */
private[lakewarden] final case class Compared(comparison: Comparison, column: Int, value: Any) extends RowPredicate {
  override def columns: Set[Int] = Set(column)
}

/** @param values
  *   in Spark's internal form, none of them NULL
  */
private[lakewarden] final case class OneOf(column: Int, values: Seq[Any]) extends RowPredicate {
  override def columns: Set[Int] = Set(column)
}

/** How a value is compared with a constant. */
private[lakewarden] sealed trait Comparison extends Serializable

private[lakewarden] object Comparison {
  case object Equal extends Comparison
  case object Less extends Comparison
  case object LessOrEqual extends Comparison
  case object Greater extends Comparison
  case object GreaterOrEqual extends Comparison
  case object StartsWith extends Comparison
}

/** Reads the conditions of a plan: expressions of the Iceberg REST specification whose columns are field ids.
  *
  * @param schema
  *   the plan's, with ids
  */
private[restrictions] final class PredicateJson(schema: StructType) {
  import Comparison._
  private val types = PredicateJson.types(schema)

  /** Throws `NotSupportedYet` for what it does not know. */
  def of(node: JsonNode): RowPredicate = node.path("type").asText match {
    case _ if node.isBoolean  => Always(node.booleanValue)
    case "and"                => Both(of(node.required("left")), of(node.required("right")))
    case "or"                 => Either(of(node.required("left")), of(node.required("right")))
    case "is-null"            => IsNull(reference(node.required("child")))
    case "not-null"           => Not(IsNull(reference(node.required("child"))))
    case "is-nan"             => IsNaN(reference(node.required("child")))
    case "not-nan"            => Not(IsNaN(reference(node.required("child"))))
    case "in"                 => oneOf(node)
    case "not-in"             => Not(oneOf(node))
    case "eq"                 => compared(Equal, node)
    case "not-eq"             => Not(compared(Equal, node))
    case "lt"                 => compared(Less, node)
    case "lt-eq"              => compared(LessOrEqual, node)
    case "gt"                 => compared(Greater, node)
    case "gt-eq"              => compared(GreaterOrEqual, node)
    case "starts-with"        => compared(StartsWith, node)
    case "not-starts-with"    => Not(compared(StartsWith, node))
    case other                => throw unknown(s"the condition ${other.take(40)}")
  }

  private def compared(comparison: Comparison, node: JsonNode): RowPredicate = {
    val column = reference(node.required("left"))
    if (comparison == StartsWith && types(column) != StringType) throw unknown("a prefix of what is no text")
    Compared(comparison, column, literal(node.required("right"), column))
  }

  private def oneOf(node: JsonNode): RowPredicate = {
    val column = reference(node.required("child"))
    OneOf(column, node.required("values").elements.asScala.map(literal(_, column)).toSeq)
  }

  /** A column that is nested in structs alone. */
  private def reference(node: JsonNode): Int = {
    val id = node.required("id").intValue
    if (node.required("type").asText != "reference" || !types.contains(id)) throw unknown(s"a condition on the field $id")
    id
  }

  private def literal(node: JsonNode, column: Int): Any = {
    val value = if (node.isObject) node.required("value") else node
    def mistyped = unknown(s"a value for the field $column that is not of its type")
    if (!PredicateJson.fits(value, types(column))) throw mistyped
    try SingleValue.fromJson(value, types(column))
    catch { case NonFatal(_) => throw mistyped }
  }

  private def unknown(what: String) = ReadRestrictions.unknown(what)
}

private object PredicateJson {

  private def fits(value: JsonNode, kind: DataType): Boolean = kind match {
    case BooleanType            => value.isBoolean
    case IntegerType            => value.isIntegralNumber && value.canConvertToInt
    case LongType               => value.isIntegralNumber && value.canConvertToLong
    case FloatType | DoubleType => value.isNumber || value.isTextual
    case _                      => value.isTextual
  }

  /** By id the type of each primitive column that is nested in structs alone. */
  private def types(schema: StructType): Map[Int, DataType] = schema.flatMap { field =>
    field.dataType match {
      case inner: StructType             => types(inner)
      case _: ArrayType | _: MapType     => Nil
      case primitive                     => Seq(FieldIds.of(field) -> primitive)
    }
  }.toMap
}
