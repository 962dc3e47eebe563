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
    case kind if ReadRestrictions.names(node) != PredicateJson.fields(kind) => throw unknown(s"the condition ${kind.take(40)}")
    case "and"                => Both(of(node.required("left")), of(node.required("right")))
    case "or"                 => Either(of(node.required("left")), of(node.required("right")))
    case "is-null"            => IsNull(reference(node.required("child")))
    case "not-null"           => Not(IsNull(reference(node.required("child"))))
    case "is-nan"             => IsNaN(fractional(node))
    case "not-nan"            => Not(IsNaN(fractional(node)))
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
    val right = node.required("right")
    if (ReadRestrictions.names(right) != Set("type", "value") || right.get("type").asText != "literal") {
      throw unknown("a comparison with what is no literal")
    }
    Compared(comparison, column, literal(right.get("value"), column))
  }

  private def oneOf(node: JsonNode): RowPredicate = {
    val column = reference(node.required("child"))
    if (!node.required("values").isArray) throw unknown("values that are not in a list")
    OneOf(column, node.required("values").elements.asScala.map(literal(_, column)).toSeq)
  }

  private def fractional(node: JsonNode): Int = {
    val column = reference(node.required("child"))
    if (types(column) != FloatType && types(column) != DoubleType) throw unknown("a test for NaN of what is no such number")
    column
  }

  /** A column that is nested in structs alone. */
  private def reference(node: JsonNode): Int = {
    def strange = unknown(s"a condition on the field ${node.path("id").asText.take(40)}")
    if (ReadRestrictions.names(node) != Set("type", "id") || node.get("type").asText != "reference") throw strange
    val id = node.get("id")
    if (!id.isInt || !types.contains(id.intValue)) throw strange
    id.intValue
  }

  private def literal(value: JsonNode, column: Int): Any = {
    def mistyped = unknown(s"a value for the field $column that is not of its type")
    if (!PredicateJson.fits(value, types(column))) throw mistyped
    try SingleValue.fromJson(value, types(column))
    catch { case NonFatal(_) => throw mistyped }
  }

  private def unknown(what: String) = ReadRestrictions.unknown(what)
}

private object PredicateJson {

  /** The fields of a condition of a kind. */
  private def fields(kind: String): Set[String] = kind match {
    case "in" | "not-in"                               => Set("type", "child", "values")
    case "is-null" | "not-null" | "is-nan" | "not-nan" => Set("type", "child")
    case _                                             => Set("type", "left", "right")
  }

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
