package org.apache.spark.sql.lakewarden.read

import scala.jdk.CollectionConverters._

import org.apache.parquet.hadoop.metadata.ColumnPath
import org.apache.parquet.schema.{GroupType, LogicalTypeAnnotation, MessageType, PrimitiveType, Type}
import org.apache.parquet.schema.Type.Repetition.{REPEATED, REQUIRED}

import org.apache.spark.sql.execution.datasources.parquet.ParquetToSparkSchemaConverter
import org.apache.spark.sql.lakewarden.schema.FieldIds
import org.apache.spark.sql.types._

/** The columns of one file, found by field id: a file keeps the names that its columns had when it was written.
  *
  * A file with a field without an id, or with an id or a name twice, is refused: its columns could be mistaken
  * for one another. A field that the file does not have reads as NULL where it may be null, and refuses the file
  * where it may not; so does one that may hold NULL where the table has none.
  *
  * Source: Iceberg table specification, "Column Projection"; "Appendix A: Format-specific Requirements", Parquet.
  *
  * Whether a struct is NULL is seen from what is read of it. Where the file has nothing of it that is wanted, Spark
  * reads any other leaf of it; one is chosen here where some have keys that this scan has not.
  *
  * @param withoutLike
  *   ids of fields whose absence does not mean NULL (identity partitions, default values): they refuse the file
  * @param masked
  *   ids of columns that read as NULL whatever the file has
  * @param locked
  *   ids of leaves under keys that were not released
  * @param doubtful
  *   ids of fields that a writer without their keys could have described: their types have to be just what the table's
  *   are stored as
  */
private[read] final class FileColumns(
    file: MessageType, withoutLike: Set[Int], errors: ReadErrors, masked: Set[Int] = Set.empty,
    locked: Set[Int] = Set.empty, doubtful: Set[Int] = Set.empty) {

  /** The wanted schema with the file's own names, position by position; absent fields get a name that the file
    * does not have.
    *
    * @param wanted
    *   with ids in the metadata
    */
  def renamed(wanted: StructType): StructType = renamed(wanted, file)

  /** The leaf with this id that is nested in structs alone, where the file has it. */
  def leaf(id: Int): Option[FileColumns.Leaf] = leaves.get(id)

  private lazy val leaves: Map[Int, FileColumns.Leaf] = leavesOf(file, Nil).toMap

  private def leavesOf(group: GroupType, above: Seq[String]): Seq[(Int, FileColumns.Leaf)] =
    group.getFields.asScala.toSeq.filterNot(_.isRepetition(REPEATED)).flatMap {
      case inner: GroupType if inner.getLogicalTypeAnnotation == null => leavesOf(inner, above :+ inner.getName)
      case leaf: PrimitiveType if leaf.getId != null =>
        Seq(leaf.getId.intValue -> FileColumns.Leaf(ColumnPath.get(above :+ leaf.getName: _*), leaf))
      case _ => Nil
    }

  private def renamed(wanted: StructType, group: GroupType): StructType = {
    val known = byId(group)
    StructType(wanted.map { field =>
      known.get(FieldIds.of(field)).filterNot(_ => masked(FieldIds.of(field))) match {
        case Some(found) =>
          StructField(found.getName, renamedType(field.dataType, found, field.nullable), field.nullable)
        case None => absent(field, group)
      }
    })
  }

  private def byId(group: GroupType): Map[Int, Type] = {
    val fields = group.getFields.asScala.toSeq
    if (fields.exists(_.getId == null)) throw errors.damaged(
      s"The field ${fields.find(_.getId == null).get.getName} of the file has no Iceberg field id.", "field-id")
    val known = fields.map(each => each.getId.intValue -> each).toMap
    if (known.size < fields.size || fields.map(_.getName).distinct.size < fields.size)
      throw errors.damaged("The file's schema repeats a field id or a name.", "field-id")
    known
  }

  private def absent(field: StructField, group: GroupType): StructField = {
    val id = FieldIds.of(field)
    if (withoutLike(id) && !masked(id)) throw errors.unsupported(
      s"The file has no column ${field.name}; values from the table's metadata are not supported.", "absent-column")
    if (!field.nullable) throw errors.required(field.name, masked(id))
    val name = Iterator.iterate(s"_absent_$id")(_ + "_").find(each => !group.containsField(each)).get
    StructField(name, FieldIds.stripType(field.dataType))
  }

  private def renamedType(wanted: DataType, found: Type, nullable: Boolean): DataType = {
    if (!nullable && !found.isRepetition(REQUIRED)) throw errors.damaged(
      s"The column ${found.getName} can contain NULL in the file, but the table requires a value.", "required-column")
    renamedType(wanted, found)
  }

  private def renamedType(wanted: DataType, found: Type): DataType = (wanted, found) match {
    case (struct: StructType, group: GroupType) if group.getLogicalTypeAnnotation == null =>
      val fields = renamed(struct, group)
      if (locked.isEmpty || fields.exists(each => group.containsField(each.name))) fields
      else fields.add(witness(group))
    case (ArrayType(element, nullable), group: GroupType) =>
      val Seq(inner) = repeated(group, LogicalTypeAnnotation.listType, 1)
      ArrayType(renamedType(element, inner, nullable), nullable)
    case (MapType(key, value, nullable), group: GroupType) =>
      val Seq(keys, values) = repeated(group, LogicalTypeAnnotation.mapType, 2)
      MapType(renamedType(key, keys, nullable = false), renamedType(value, values, nullable), nullable)
    case (_: StructType | _: ArrayType | _: MapType, _) | (_, _: GroupType) =>
      throw errors.damaged(mistyped(found), "column-type")
    case (primitive, leaf) =>
      if (Option(leaf.getId).exists(id => doubtful(id.intValue)) && !StoredType.fits(primitive, leaf.asPrimitiveType))
        throw errors.refused(mistyped(leaf), "column-type")
      primitive
  }

  private def mistyped(found: Type): String =
    s"The column ${found.getName} has a different type in the file than in the table's schema."

  /** A part of a struct that can be read: behind all that is wanted of it, so that nobody sees more than whether the
    * struct is there.
    */
  private def witness(group: GroupType): StructField = {
    val readable = group.getFields.asScala.toSeq.filterNot(FileColumns.leavesIn(_).exists(locked))
    val chosen = readable.find(_.isPrimitive).orElse(readable.headOption).getOrElse(throw errors.unsupported(
      s"All columns of the struct ${group.getName} in the file have column keys, and the query reads none of them." +
        " Select a column of the struct that you can read, or rewrite the file.", "absent-column"))
    val found = new ParquetToSparkSchemaConverter().convert(new MessageType("witness", chosen)).head
    StructField(chosen.getName, found.dataType)
  }

  /** What stands inside a list or map of the standard layout of three levels. */
  private def repeated(group: GroupType, annotation: LogicalTypeAnnotation, count: Int): Seq[Type] = {
    val inner = group.getFields.asScala.toSeq match {
      case Seq(middle: GroupType) if middle.isRepetition(REPEATED) => middle.getFields.asScala.toSeq
      case _                                                       => Nil
    }
    if (group.getLogicalTypeAnnotation != annotation || inner.size != count || inner.exists(_.isRepetition(REPEATED)))
      throw errors.damaged(
        s"The column ${group.getName} of the file is not a list or map in the standard Parquet layout.", "column-type")
    inner
  }
}

private[read] object FileColumns {

  /** Ids of all fields in a type. */
  def idsIn(one: GroupType): Set[Int] = one.getFields.asScala.toSet.flatMap { (each: Type) =>
    val inner = if (each.isPrimitive) Set.empty[Int] else idsIn(each.asGroupType)
    inner ++ Option(each.getId).map(_.intValue)
  }

  /** Ids of the primitive columns in a type, itself included. */
  private def leavesIn(one: Type): Seq[Int] = one match {
    case group: GroupType => group.getFields.asScala.toSeq.flatMap(leavesIn)
    case leaf             => Option(leaf.getId).map(_.intValue).toSeq
  }

  /** A primitive column of a file. */
  final case class Leaf(path: ColumnPath, primitive: PrimitiveType)
}
