package org.apache.spark.sql.lakewarden.catalog

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.rest.Answers

/** A session's settings for write-audit-publish. They apply to tables with `write.wap.enabled=true`.
  *
  * @param id
  *   writes are staged under it
  * @param branch
  *   takes the writes, and is read
  */
final case class Wap(id: Option[String], branch: Option[String])

object Wap {
  private val (idSetting, branchSetting) = ("spark.wap.id", "spark.wap.branch")

  /** The table property. */
  val Enabled = "write.wap.enabled"

  def of(settings: SQLConf): Wap = {
    def get(name: String) = Option(settings.getConfString(name, null))
    Wap(get(idSetting), get(branchSetting))
  }

  def isEnabled(properties: Map[String, String]): Boolean = properties.get(Enabled).exists(_.equalsIgnoreCase("true"))

  /** Throws if a session sets both, so that nobody can tell where a row goes. */
  def requireOne(wap: Wap): Unit =
    for (id <- wap.id; branch <- wap.branch)
      throw TableStates.refused(
        s"The session sets both $idSetting=$id and $branchSetting=$branch.", "wap", "Unset one of them.")
}

/** Which states of a table names, times and settings stand for.
  *
  * Names and times are resolved when the table is loaded, so that the schema and the plan of one query are of the
  * same state. Source: Apache Iceberg's `SparkCatalog` and `SparkTableUtil`.
  *
  * @param table
  *   its name, for messages
  * @param metadata
  *   Iceberg's table metadata
  * @param session
  *   the session's settings
  */
final class TableStates(table: String, metadata: JsonNode, session: Wap) {
  import TableStates._

  private val isAudited = Wap.isEnabled(Answers.texts(metadata.path("properties")))
  if (isAudited) Wap.requireOne(session)
  private val wap = if (isAudited) session else Wap(None, None)

  /** What a name without more stands for: main, or the branch that the session audits writes on. */
  def current: Branch = wap.branch.fold(main) { name =>
    if (name == Branch.Main || ref(name).nonEmpty) branch(name).copy(isNamed = false)
    else Branch(name, main.head, exists = false)
  }

  /** A branch that a statement names. */
  def branch(name: String): Branch =
    if (name == Branch.Main) main.copy(isNamed = true)
    else {
      val found = ref(name).getOrElse(throw unknown("branch", name))
      if (found.path("type").asText != "branch") throw otherKind(name, "tag", "branch")
      Branch(name, Some(snapshotId(found)), isNamed = true, wapId = wap.id)
    }

  def tag(name: String): AsOf = {
    val found = ref(name).getOrElse(throw unknown("tag", name))
    if (found.path("type").asText != "tag") throw otherKind(name, "branch", "tag")
    AsOf(snapshotId(found))
  }

  def snapshot(digits: String): AsOf =
    metadata.path("snapshots").elements.asScala.map(_.get("snapshot-id").longValue).find(_.toString == digits)
      .map(AsOf(_)).getOrElse(throw noSuch(s"$table has no snapshot ${digits.take(20)}."))

  /** The snapshot of that id, or a branch or tag. Digits are an id. */
  def version(text: String): TableState =
    if (isNumber(text)) snapshot(text)
    else if (text.startsWith(TagOption)) tag(text.substring(TagOption.length))
    else if (text == Branch.Main) branch(text)
    else ref(text) match {
      case Some(found) if found.path("type").asText == "tag" => AsOf(snapshotId(found))
      case Some(_)                                           => branch(text)
      case None => throw noSuch(s"$table has no snapshot, branch or tag '${text.take(80)}'.")
    }

  /** The snapshot that was current at a time.
    *
    * @param micros
    *   since the epoch
    */
  def timestamp(micros: Long): AsOf = {
    val millis = Math.floorDiv(micros, 1000L)
    val earlier = metadata.path("snapshot-log").elements.asScala.filter(_.get("timestamp-ms").longValue <= millis).toSeq
    val last = earlier.lastOption.getOrElse(throw noSuch(s"$table had no snapshot at that time."))
    AsOf(snapshotId(last))
  }

  private def main: Branch = {
    val head = Option(metadata.path("current-snapshot-id")).filter(_.isNumber).map(_.longValue).filter(_ >= 0)
    Branch(Branch.Main, head, wapId = wap.id)
  }

  private def ref(name: String): Option[JsonNode] = Option(metadata.path("refs").get(name))

  private def unknown(kind: String, name: String): LakewardenException =
    noSuch(s"$table has no $kind '${name.take(80)}'.")

  private def otherKind(name: String, kind: String, wanted: String): LakewardenException = refused(
    s"'${name.take(80)}' is a $kind of $table, not a $wanted.", "snapshot-reference", s"Name a $wanted, or use VERSION AS OF.")
}

object TableStates {

  /** Marks a version that has to be a tag: no statement of a user's has this character. */
  val TagOption = "\u0000tag:"

  /** The state of a table that was made just now. */
  val Empty: Branch = Branch(Branch.Main, None)

  def isNumber(text: String): Boolean = text.nonEmpty && text.forall(each => each >= '0' && each <= '9')

  private def snapshotId(node: JsonNode): Long = node.get("snapshot-id").longValue

  private def noSuch(problem: String): LakewardenException = new LakewardenException(
    "NoSuchSnapshot", problem, Some("snapshot"), Some("Choose a snapshot that is not expired, or create the branch or tag."))

  private[lakewarden] def refused(problem: String, rule: String, hint: String): LakewardenException =
    new LakewardenException("RequestInvalid", problem, Some(rule), Some(hint))
}
