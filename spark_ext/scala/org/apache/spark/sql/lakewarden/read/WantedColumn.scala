package org.apache.spark.sql.lakewarden.read

import org.apache.spark.sql.connector.catalog.CatalogV2Implicits.parseColumnPath
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.types._

/** A column that a filter names, nested in structs or not.
  *
  * @param path
  *   the names from the top level down
  */
private[read] final case class WantedColumn(path: Seq[String], id: Int, dataType: DataType)

private[read] object WantedColumn {

  /** The column by a filter's name for it, where parts with odd characters are quoted. */
  def find(schema: StructType, name: String): Option[WantedColumn] = {
    val path = parseColumnPath(name)
    field(schema, path).map(found => WantedColumn(path, FieldIds.of(found), found.dataType))
  }

  /** Names for the catalog of all that a part of a schema wants, nested fields dotted.
    *
    * @param part
    *   columns left out, nested ones too
    * @param whole
    *   the table's schema
    */
  def names(part: StructType, whole: StructType): Seq[String] =
    part.fields.toSeq.flatMap(each => names(each.dataType, whole(each.name).dataType, each.name))

  private def names(part: DataType, whole: DataType, name: String): Seq[String] = (part, whole) match {
    case (same, known) if FieldIds.stripType(same) == FieldIds.stripType(known) => Seq(name)
    case (struct: StructType, known: StructType) =>
      struct.fields.toSeq.flatMap(each => names(each.dataType, known(each.name).dataType, s"$name.${each.name}"))
    case (list: ArrayType, known: ArrayType) => names(list.elementType, known.elementType, s"$name.element")
    case (map: MapType, known: MapType) =>
      names(map.keyType, known.keyType, s"$name.key") ++ names(map.valueType, known.valueType, s"$name.value")
    case _ => Seq(name)
  }

  private def field(schema: StructType, path: Seq[String]): Option[StructField] =
    schema.fields.find(_.name == path.head).flatMap { found =>
      found.dataType match {
        case _ if path.size == 1 => Some(found)
        case inner: StructType   => field(inner, path.tail)
        case _                   => None
      }
    }
}
