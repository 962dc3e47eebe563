package org.apache.spark.sql.lakewarden.read

import scala.collection.mutable

import org.apache.spark.sql.catalyst.analysis.{caseSensitiveResolution, Resolver}
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

  /** The column by a filter's name for it, where parts with odd characters are quoted.
    *
    * @param same
    *   how names are compared; Spark has written those of most filters as the table has them
    */
  def find(schema: StructType, name: String, same: Resolver = caseSensitiveResolution): Option[WantedColumn] =
    fields(schema, parseColumnPath(name), same)
      .map(found => WantedColumn(found.map(_.name), FieldIds.of(found.last), found.last.dataType))

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

  /** The fields on the way to a column; none for a name that stands for two. */
  private def fields(schema: StructType, path: Seq[String], same: Resolver): Option[Seq[StructField]] =
    schema.fields.filter(each => same(each.name, path.head)) match {
      case Array(found) => found.dataType match {
          case _ if path.size == 1 => Some(Seq(found))
          case inner: StructType   => fields(inner, path.tail, same).map(found +: _)
          case _                   => None
        }
      case _ => None
    }
}

/** The columns that the filters of one task name. Spark's SQL parser reads a name, which takes long: here once for all
  * files.
  */
private[read] final class FilterColumns(schema: StructType) {
  private val known = mutable.Map.empty[String, Option[WantedColumn]]

  def find(name: String): Option[WantedColumn] = known.getOrElseUpdate(name, WantedColumn.find(schema, name))
}
