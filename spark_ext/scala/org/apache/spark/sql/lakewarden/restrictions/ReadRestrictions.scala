package org.apache.spark.sql.lakewarden.restrictions

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.types.{ArrayType, DataType, MapType, StructField, StructType}

/** Which rows of a table a user sees, and through which masks: as the catalog decided, enforced by the reader.
  *
  * The filter is applied to unmasked values, then the masks.
  *
  * Source: docs/plan-format.md, "Read restrictions"; Iceberg REST specification, `ReadRestrictions`.
  *
  * @param filter
  *   a row is kept only where it is true; none: all rows
  * @param masks
  *   by field id
  */
private[lakewarden] final case class ReadRestrictions(filter: Option[RowPredicate], masks: Map[Int, MaskAction]) {

  def isEmpty: Boolean = filter.isEmpty && masks.isEmpty

  /** Ids of the columns that the filter reads. */
  def filtered: Set[Int] = filter.fold(Set.empty[Int])(_.columns)

  /** Ids of fields that are not read, since they are shown as NULL: files of tables with column keys come without
    * their keys. A field is read where the filter reads a part of it, and so is a required part of such a field.
    *
    * @param schema
    *   with ids
    */
  def unread(schema: StructType): Set[Int] = {
    val known = ReadRestrictions.types(schema).map { case (id, (_, kind, nullable)) =>
      (id, ReadRestrictions.inside(kind) + id, nullable)
    }
    def isNull(id: Int): Boolean = masks.get(id).contains(MaskAction.ReplaceWithNull)
    val nulled = known.collect { case (id, inside, _) if isNull(id) => inside }.flatten.toSet
    known.collect {
      case (id, inside, nullable) if nulled(id) && (nullable || isNull(id)) && !inside.exists(filtered) => id
    }.toSet
  }

  /** Ids of the top-level columns with a mask on them or inside of them.
    *
    * @param schema
    *   with ids
    */
  def masked(schema: StructType): Set[Int] =
    schema.filter(field => FieldIds.all(StructType(Seq(field))).exists(masks.contains)).map(FieldIds.of).toSet

  /** Whether a value of a mask is the same within a query and another one in the next. */
  def isSalted: Boolean = masks.values.exists(_ == MaskAction.Sha256QueryLocal)

  /** Throws what refuses masks that do not fit their columns.
    *
    * @param schema
    *   of what is read, with ids
    */
  def requireFitting(table: String, schema: StructType): Unit =
    ReadRestrictions.types(schema).foreach { case (id, (path, kind, nullable)) =>
      masks.get(id).foreach { action =>
        if (!action.takes(kind)) throw LakewardenException.notSupportedYet(
          s"The mask ${action.name} of the column $path of $table does not take values of the type ${kind.sql}.",
          "mask-type", "Ask for another mask in the policy that masks the column.")
        if (!nullable && action.makesNull) throw LakewardenException.notSupportedYet(
          s"The mask ${action.name} of the column $path of $table shows NULL, and the column is required.",
          "mask-type", "Run ALTER COLUMN … DROP NOT NULL, or ask for another mask.")
      }
    }
}

private[lakewarden] object ReadRestrictions {
  val None: ReadRestrictions = ReadRestrictions(scala.None, Map.empty)

  /** Out of a plan's header. Throws `NotSupportedYet` for a filter or action that this version does not know.
    *
    * @param said
    *   `read-restrictions`, or null
    * @param schema
    *   the plan's, with ids
    */
  def of(said: JsonNode, schema: StructType): ReadRestrictions =
    if (said.isNull) None
    else {
      val known = Set("required-row-filter", "required-column-projections")
      if (!said.isObject) throw unknown("what is no restriction")
      said.fieldNames.asScala.find(!known(_)).foreach(name => throw unknown(s"the restriction $name"))
      val filter = Option(said.get("required-row-filter")).filterNot(_.isNull)
      val projections = Option(said.get("required-column-projections"))
      if (projections.exists(!_.isArray)) throw unknown("masks that are not in a list")
      val ids = types(schema).map(_._1).toSet
      val masks = projections.toSeq.flatMap(_.elements.asScala.map(mask(_, ids)))
      if (masks.map(_._1).distinct.size < masks.size) throw unknown("two masks of one column")
      ReadRestrictions(filter.map(new PredicateJson(schema).of), masks.toMap)
    }

  private def mask(said: JsonNode, ids: Set[Int]): (Int, MaskAction) = {
    if (names(said) != Set("field-id", "action")) throw unknown("a mask with other fields")
    val name = said.get("action").asText
    val action = MaskAction.named(name).getOrElse(throw unknown(s"the mask ${name.take(40)}"))
    val id = said.get("field-id")
    if (!id.isInt || !ids(id.intValue)) throw unknown(s"a mask of the field ${id.asText.take(40)}")
    id.intValue -> action
  }

  /** The names of the fields of an object; none for anything else. */
  private[restrictions] def names(said: JsonNode): Set[String] = said.fieldNames.asScala.toSet

  private[restrictions] def unknown(what: String): LakewardenException = LakewardenException.notSupportedYet(
    s"The catalog restricts the read by $what, which this version of the plugin does not support.", "read-restrictions",
    "Install the plugin of the catalog's release.")

  /** Ids of all that is inside of a type. */
  private def inside(kind: DataType): Set[Int] = kind match {
    case struct: StructType     => FieldIds.all(struct)
    case ArrayType(element, _)  => inside(element)
    case MapType(key, value, _) => inside(key) ++ inside(value)
    case _                      => Set.empty
  }

  /** By id the path, type and nullability of each field, element, key and value. */
  private def types(schema: StructType): Seq[(Int, (String, DataType, Boolean))] =
    schema.flatMap(field => typesIn(field.name, field))

  private def typesIn(path: String, field: StructField): Seq[(Int, (String, DataType, Boolean))] = {
    val nested = FieldIds.nested(field)
    def parts(kind: DataType, at: String): Seq[(Int, (String, DataType, Boolean))] = {
      def part(name: String, inner: DataType, nullable: Boolean) = {
        val here = if (at.isEmpty) name else s"$at.$name"
        nested.get(here).map(_ -> ((s"$path.$here", inner, nullable))).toSeq ++ parts(inner, here)
      }
      kind match {
        case struct: StructType =>
          val under = if (at.isEmpty) path else s"$path.$at"
          struct.flatMap(each => typesIn(s"$under.${each.name}", each))
        case ArrayType(element, nullable)  => part("element", element, nullable)
        case MapType(key, value, nullable) => part("key", key, nullable = false) ++ part("value", value, nullable)
        case _                             => Nil
      }
    }
    (FieldIds.of(field) -> ((path, field.dataType, field.nullable))) +: parts(field.dataType, "")
  }
}
