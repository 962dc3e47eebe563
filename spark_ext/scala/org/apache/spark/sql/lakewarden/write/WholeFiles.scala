package org.apache.spark.sql.lakewarden.write

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}

import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.TableHandle
import org.apache.spark.sql.lakewarden.options.{GivenOptions, IcebergNames}
import org.apache.spark.sql.lakewarden.rest.Answers
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** DELETE of whole files, without reading one: the catalog knows by partitions and bounds which files these are. */
private[lakewarden] final class WholeFiles(handle: TableHandle) {
  private val table = handle.table

  /** Whether in each file all rows match the conditions, or none. */
  def canDelete(predicates: Array[Predicate]): Boolean = exact(predicates).exists { filter =>
    isNothing(filter) || ask(filter)
  }

  /** Removes the files whose rows match, as they are when this is committed. */
  def delete(predicates: Array[Predicate]): Unit =
    exact(predicates) match {
      case Some(filter) if isNothing(filter) =>
      case Some(filter)                      => remove(filter)
      case None => throw LakewardenException.notSupportedYet(
          s"The rows to delete from ${table.fullName} are not whole files: ${predicates.mkString(" AND ")}.", "row-level",
          "Compare columns with literals.")
    }

  private def ask(filter: JsonNode): Boolean = {
    val body = JsonNodeFactory.instance.objectNode().set[ObjectNode]("filter", filter)
    table.branch.ref.foreach(body.put("branch", _))
    Answers.field(handle.client.post(table.engineSegments("whole-files"), Some(body)), "whole-files").asBoolean
  }

  private def remove(filter: JsonNode): Unit = {
    val none = CaseInsensitiveStringMap.empty
    val session = new GivenOptions("write", IcebergNames.write, none, table.properties)
    session.check()
    val change = RemoveRows(filter, Validation(table.snapshotId), adds = false)
    val target = new TableTarget(handle, change, WriteOptions.summary(session, none))
    target.begin()
    try target.commit(Nil)
    catch {
      case failure: Throwable =>
        try target.abort()
        catch { case other: Exception => failure.addSuppressed(other) }
        throw failure
    }
  }

  private def exact(predicates: Array[Predicate]): Option[JsonNode] = ExactFilters.of(predicates, table.schema)

  private def isNothing(filter: JsonNode): Boolean = filter.path("type").asText == "false"
}
