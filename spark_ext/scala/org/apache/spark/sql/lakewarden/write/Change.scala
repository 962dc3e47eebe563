package org.apache.spark.sql.lakewarden.write

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.lakewarden.catalog.{FileGroup, LoadedTable}
import org.apache.spark.sql.lakewarden.read.CommandScan

/** What the commit of a write does, beside adding the files that were written (docs/rest-api.md, "Engines"). */
trait Change {

  /** As people read it. */
  def name: String

  /** Puts the operation into the body of a commit, and what is removed. */
  def put(body: ObjectNode): Unit

  /** Whether a commit that adds these files changes nothing. */
  def isEmpty(files: Seq[JsonNode]): Boolean = false
}

/** Adds rows. */
case object Append extends Change {
  override def name: String = "append"

  override def put(body: ObjectNode): Unit = {
    body.put("operation", "append")
    ()
  }
}

/** Makes a table, or makes it anew, without a snapshot. */
case object NoRows extends Change {
  override def name: String = "none"

  override def put(body: ObjectNode): Unit = {
    body.put("operation", name)
    ()
  }
}

/** The same rows in other files, in the place of those of a group. */
final case class Replace(group: FileGroup) extends Change {
  override def name: String = "replace"

  override def put(body: ObjectNode): Unit = {
    body.put("operation", "replace").put("branch", group.branch).put("base-snapshot-id", group.snapshotId)
    Change.putPaths(body, group.paths)
  }
}

/** Removes all rows that match a filter, which are whole files.
  *
  * @param filter
  *   for the catalog; it means there what it means to Spark
  * @param validation
  *   against which commits it is validated
  */
final case class RemoveRows(filter: JsonNode, validation: Validation, adds: Boolean)
    extends Change {
  override def name: String = if (adds) "overwrite" else "delete"

  def isOfAll: Boolean = filter.path("type").asText == "true"

  override def put(body: ObjectNode): Unit = {
    body.put("operation", name).set[ObjectNode]("delete-filter", filter)
    validation.put(body)
  }
}

/** Replaces all rows, whatever they are when it is committed. */
case object ReplaceAll extends Change {
  override def name: String = "overwrite"

  override def put(body: ObjectNode): Unit = {
    body.put("operation", name).putObject("delete-filter").put("type", "true")
    ()
  }
}

/** Removes all rows of the partitions of the files that are added. */
final case class RemovePartitions(validation: Validation) extends Change {
  override def name: String = "overwrite of partitions"

  override def put(body: ObjectNode): Unit = {
    body.put("operation", "overwrite").put("replace-partitions", true)
    validation.put(body)
  }

  override def isEmpty(files: Seq[JsonNode]): Boolean = files.isEmpty
}

/** What DELETE, UPDATE or MERGE does. The conflicts of a commit with others follow from what the command read.
  *
  * @param command
  *   `delete`, `update` or `merge`
  * @param condition
  *   that the rows meet on which the command depends; asked when they are written. None: all rows
  */
sealed abstract class CommandChange(table: LoadedTable, command: String, condition: () => Option[JsonNode])
    extends Change {
  override def name: String = command

  override def put(body: ObjectNode): Unit = {
    body.put("operation", "overwrite").put("command", command)
    table.snapshotId.foreach(body.put("base-snapshot-id", _))
    condition().foreach(body.set[JsonNode]("conflict-filter", _))
  }
}

/** Removes the files that a command read and wrote again. */
final class RewriteFiles(table: LoadedTable, command: String, scan: () => CommandScan)
    extends CommandChange(table, command, () => scan().condition) {

  override def put(body: ObjectNode): Unit = {
    super.put(body)
    Change.putPaths(body, paths)
  }

  override def isEmpty(files: Seq[JsonNode]): Boolean = files.isEmpty && paths.isEmpty

  private def paths: Seq[String] = scan().partitions.keys.toSeq.sorted
}

/** Adds delete files of the rows that a command deletes or changes, and data files of those that come. */
final class DeleteRows(table: LoadedTable, command: String, condition: () => Option[JsonNode])
    extends CommandChange(table, command, condition) {
  override def isEmpty(files: Seq[JsonNode]): Boolean = files.isEmpty
}

private object Change {
  def putPaths(body: ObjectNode, paths: Seq[String]): Unit = {
    val deleted = body.putArray("deleted-paths")
    paths.foreach(deleted.add(_))
  }
}
