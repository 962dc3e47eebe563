package org.apache.spark.sql.lakewarden.catalog

import com.fasterxml.jackson.databind.node.ObjectNode

/** A state of a table that a statement names: a snapshot, or a branch as it is. */
sealed trait TableState

/** An earlier state of a table: `VERSION AS OF`, `TIMESTAMP AS OF`, a tag. It has the schema of its time.
  *
  * @param currentSchema
  *   whether it is read by the table's current schema in place of that
  */
final case class AsOf(snapshotId: Long, currentSchema: Boolean = false) extends TableState

/** A branch, which has the current schema, and which can be written.
  *
  * @param head
  *   the snapshot that it stands on; none: it is empty
  * @param exists
  *   false: the first write to it creates it at the head of main, and until then it is read as main
  * @param isNamed
  *   whether the statement names it by the table's name; no option can name another one
  * @param wapId
  *   under which writes are staged: their snapshots move no branch
  */
final case class Branch(
    name: String, head: Option[Long], exists: Boolean = true, isNamed: Boolean = false, wapId: Option[String] = None)
    extends TableState {

  /** What the catalog is asked to read; none: the main branch. */
  def ref: Option[String] = Option.when(exists && name != Branch.Main)(name)

  /** Says in the body of a commit what takes the snapshot. */
  def put(body: ObjectNode): Unit = {
    if (name != Branch.Main) body.put("branch", name)
    wapId.foreach(body.put("wap-id", _))
  }

  /** As people read it, behind the table's name. */
  def shown: String = if (name == Branch.Main) "" else s" [branch=$name]"
}

object Branch {
  val Main = "main"
}
