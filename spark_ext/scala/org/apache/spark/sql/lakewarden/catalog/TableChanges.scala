package org.apache.spark.sql.lakewarden.catalog

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}

import org.apache.spark.sql.connector.catalog.{TableCatalog, TableChange}
import org.apache.spark.sql.connector.catalog.TableChange._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.schema.IcebergSchema
import org.apache.spark.sql.util.SchemaUtils

/** ALTER TABLE as the catalog takes it (docs/rest-api.md, "alter"). */
object TableChanges {
  private val json = JsonNodeFactory.instance

  /** Strings of Iceberg have no other. */
  private val BinaryCollation = "UTF8_BINARY"

  /** All changes of one statement, in order; they are one commit. */
  def toRequest(changes: Seq[TableChange]): JsonNode = {
    requireDistinct(changes)
    val list = json.arrayNode
    changes.foreach(each => list.add(change(each)))
    json.objectNode.set[ObjectNode]("changes", list)
  }

  /** As Spark asks of ALTER TABLE, and not of columns that rows bring: it could read no table that has both. */
  private def requireDistinct(changes: Seq[TableChange]): Unit = {
    val added = changes.collect { case add: AddColumn => add.fieldNames.mkString(".") }
    SchemaUtils.checkColumnNameDuplication(added, SQLConf.get.caseSensitiveAnalysis)
  }

  private def change(change: TableChange): ObjectNode = change match {
    case iceberg: IcebergChange => iceberg.toJson
    case set: SetProperty if set.property == TableCatalog.PROP_LOCATION =>
      json.objectNode.put("action", "set-location").put("location", set.value)
    case set: SetProperty if set.property == TableCatalog.PROP_COLLATION && set.value != BinaryCollation =>
      throw unsupported(s"DEFAULT COLLATION ${set.value}")
    case set: SetProperty => property("set-property", set.property).put("value", set.value)
    case remove: RemoveProperty => property("remove-property", remove.property)
    case add: AddColumn => addColumn(add)
    case rename: RenameColumn => column("rename-column", rename).put("name", rename.newName)
    case drop: DeleteColumn => column("drop-column", drop).put("if-exists", drop.ifExists.booleanValue)
    case update: UpdateColumnType =>
      val wanted = IcebergSchema.typeToIceberg(update.newDataType, update.fieldNames.toSeq)
      column("update-type", update).set("type", wanted)
    case update: UpdateColumnComment => column("update-doc", update).put("doc", update.newComment)
    case update: UpdateColumnNullability => column(if (update.nullable) "make-optional" else "make-required", update)
    case move: UpdateColumnPosition => column("move-column", move).set("position", position(move.position))
    case update: UpdateColumnDefaultValue => throw unsupported(s"a default value of ${update.fieldNames.mkString(".")}")
    case other => throw unsupported(other.getClass.getSimpleName)
  }

  private def addColumn(add: AddColumn): ObjectNode = {
    if (add.defaultValue != null) throw unsupported("a column with a default value")
    val node = column("add-column", add).put("required", !add.isNullable).put("doc", add.comment)
    node.set[ObjectNode]("type", IcebergSchema.typeToIceberg(add.dataType, add.fieldNames.toSeq))
    node.set[ObjectNode]("position", Option(add.position).fold[JsonNode](json.nullNode)(position))
  }

  private def position(position: ColumnPosition): JsonNode = position match {
    case after: After => json.objectNode.put("after", after.column)
    case _: First     => json.textNode("first")
  }

  private def column(action: String, change: ColumnChange): ObjectNode = {
    val path = json.arrayNode
    change.fieldNames.foreach(path.add(_))
    json.objectNode.put("action", action).set("path", path)
  }

  /** SET LOCATION comes as a property; Spark refuses others of its own names itself. */
  private def property(action: String, name: String): ObjectNode =
    json.objectNode.put("action", action).put("name", name)

  private def unsupported(what: String): LakewardenException = LakewardenException.notSupportedYet(
    s"ALTER TABLE does not support $what.", "alter", "Remove it, or create a new table.")
}
