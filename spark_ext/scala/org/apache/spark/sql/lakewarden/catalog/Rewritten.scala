package org.apache.spark.sql.lakewarden.catalog

import scala.collection.immutable.ListMap

import com.fasterxml.jackson.databind.node.ObjectNode

import org.apache.spark.sql.lakewarden.LakewardenException

/** What a rewrite has done.
  *
  * @param groups
  *   groups that were rewritten
  * @param bytes
  *   of the files that were rewritten
  * @param addedBytes
  *   of the files that came in their place
  * @param failed
  *   why groups of the last pass could not be rewritten, whose files are not the reason
  * @param failedFiles
  *   the files of these groups
  * @param unread
  *   the files that could not be rewritten, and why
  * @param failing
  *   attempts that failed since one did not
  * @param lost
  *   groups that lost their executors since one was rewritten
  */
private[catalog] final case class Rewritten(
    groups: Int = 0,
    files: Long = 0,
    added: Long = 0,
    bytes: Long = 0,
    addedBytes: Long = 0,
    failed: Seq[LakewardenException] = Nil,
    failedFiles: Int = 0,
    unread: ListMap[String, LakewardenException] = ListMap.empty,
    failing: Int = 0,
    lost: Int = 0) {
  import Rewritten._

  def and(done: Seq[FileGroup], written: (Int, Long)): Rewritten = copy(
    groups + done.size, files + done.map(_.paths.size).sum, added + written._1, bytes + done.map(_.bytes).sum,
    addedBytes + written._2, failing = 0, lost = 0)

  def and(group: FileGroup, why: LakewardenException): Rewritten = {
    val sum = if (RewriteProblems.isLoss(why)) failedOnce.copy(lost = lost + 1) else failedOnce
    why.file.filter(file => group.paths.contains(file) && unread.size < mostUnread)
      .fold(sum.copy(failed = failed :+ why, failedFiles = failedFiles + group.paths.size))(file =>
        sum.copy(unread = unread.updated(file, why)))
  }

  def failedOnce: Rewritten = copy(failing = failing + 1)

  /** Before another pass. */
  def forgiven: Rewritten = copy(failed = Nil, failedFiles = 0)

  /** Whether so many attempts failed one after the other that it is no file's fault any more. To find one file among
    * the most that a group has takes 14.
    */
  def isHopeless: Boolean = failing >= mostFailing

  /** Whether the last groups all lost their executors, so that the cluster can be the reason. */
  def isLosing: Boolean = lost >= mostLost

  /** Whether a pass neither rewrote a group nor found a file to do without. */
  def isNoMoreThan(before: Rewritten): Boolean = groups == before.groups && unread.size == before.unread.size

  /** The request, for groups without the files that cannot be rewritten. */
  def without(request: ObjectNode): ObjectNode = {
    val asked = request.deepCopy
    unread.keys.foldLeft(asked.putArray("without"))((paths, path) => paths.add(path))
    asked
  }

  def problems: Seq[LakewardenException] = unread.values.toSeq ++ failed

  /** What nothing came of is refused, by its first reason. */
  def orRefusal: Rewritten = if (files == 0) orProblem("") else this

  /** Throws the first problem, with all others and with more to say. */
  def orProblem(more: String): Rewritten = problems.headOption.fold(this) { first =>
    val all = RewriteProblems.told(problems.map(_.getMessage))
    throw new LakewardenException(first.kind, s"${all.stripPrefix(s"${first.kind}: ")}$more", cause = first)
  }
}

private object Rewritten {

  /** Files that a call does without at the most. */
  private val mostUnread = 100
  private val mostFailing = 30
  private val mostLost = 3
}
