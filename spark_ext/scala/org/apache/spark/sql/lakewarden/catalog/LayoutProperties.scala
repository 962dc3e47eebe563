package org.apache.spark.sql.lakewarden.catalog

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.lakewarden.schema.PartitionTransforms

/** The sort order and the identifier fields of a new table, which Spark's CREATE TABLE has no clauses for.
  *
  * SHOW CREATE TABLE prints them as properties, by Iceberg's names for them, and statements that create or replace a
  * table take them. No table stores them as properties.
  *
  * @param parse
  *   reads a sort order: fields, or the columns of a z-order; throws `ParseException` for any other text
  */
final class LayoutProperties(parse: String => Either[Seq[SortTerm], Seq[Seq[String]]]) {
  import LayoutProperties._

  /** The body of creating or replacing a table, with what its properties say of the layout.
    *
    * Throws `RequestInvalid` for columns that the table does not have.
    */
  def put(body: ObjectNode, properties: Map[String, String]): ObjectNode = {
    val schema = body.required("schema").asInstanceOf[ObjectNode]
    lazy val ids = PartitionTransforms.names(schema).map(_.swap)
    def id(property: String, column: Seq[String]): Int = ids.getOrElse(
      column, throw invalid(property, s"The table has no column ${column.mkString(".").take(80)}."))
    properties.get(Order).foreach { text =>
      val order = body.putObject("write-order").put("order-id", 1)
      val fields = order.putArray("fields")
      terms(Order, text).foreach { each =>
        fields.addObject().put("source-id", id(Order, each.term.column)).put("transform", each.term.transform)
          .put("direction", if (each.ascending) "asc" else "desc")
          .put("null-order", if (each.nullsFirst) "nulls-first" else "nulls-last")
      }
    }
    properties.get(Identifiers).foreach { text =>
      val fields = schema.putArray("identifier-field-ids")
      val listed = terms(Identifiers, text.trim.stripPrefix("[").stripSuffix("]"))
      if (listed.exists(each => each != SortTerm(Term(each.term.column, "identity"), ascending = true, nullsFirst = true)))
        throw invalid(Identifiers, s"'${text.take(80)}' is not a list of columns.")
      listed.foreach(each => fields.add(id(Identifiers, each.term.column)))
    }
    body
  }

  private def terms(property: String, text: String): Seq[SortTerm] =
    parse(text).left.getOrElse(throw invalid(property, "A z-order is not the order of a table."))
}

object LayoutProperties {
  private val Order = "sort-order"
  private val Identifiers = "identifier-fields"
  private val Plain = "[A-Za-z_][A-Za-z0-9_]*".r
  private val Numbered = """(bucket|truncate)\[(\d+)\]""".r

  /** They are not stored. */
  val Names: Set[String] = Set(Order, Identifiers)

  /** Those of a table's metadata. */
  def of(metadata: JsonNode): Map[String, String] = {
    val schema = PartitionTransforms.current(metadata, "schemas", "schema-id", "current-schema-id")
    val names = PartitionTransforms.names(schema).map { case (id, path) => id -> path.map(quoted).mkString(".") }
    val order = PartitionTransforms.current(metadata, "sort-orders", "order-id", "default-sort-order-id")
    val fields = order.required("fields").elements.asScala.map(described(_, names)).toSeq
    val identifiers = schema.path("identifier-field-ids").elements.asScala.map(id => names(id.intValue)).toSeq
    Map(
      Order -> Option.when(fields.nonEmpty)(fields.mkString(", ")),
      Identifiers -> Option.when(identifiers.nonEmpty)(identifiers.mkString("[", ",", "]")))
      .collect { case (name, Some(value)) => name -> value }
  }

  private def described(field: JsonNode, names: Map[Int, String]): String = {
    val column = names(field.required("source-id").intValue)
    val term = field.required("transform").textValue match {
      case "identity"              => column
      case Numbered(name, width)   => s"$name($width, $column)"
      case other                   => s"$other($column)"
    }
    val direction = field.required("direction").textValue.toUpperCase(java.util.Locale.ROOT)
    val nulls = field.required("null-order").textValue.stripPrefix("nulls-").toUpperCase(java.util.Locale.ROOT)
    s"$term $direction NULLS $nulls"
  }

  private def quoted(part: String): String =
    if (Plain.matches(part)) part else "`" + part.replace("`", "``") + "`"

  private def invalid(property: String, problem: String) = TableStates.refused(
    s"$property: $problem", property, s"Correct $property, or use ALTER TABLE.")
}
