package org.apache.spark.sql.lakewarden.catalog

import java.util.concurrent.ExecutionException
import java.util.concurrent.atomic.AtomicInteger

import scala.annotation.tailrec
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.internal.Logging
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.SQLExecution
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.rest.Answers
import org.apache.spark.sql.lakewarden.write.{CommitTarget, GroupsTarget}
import org.apache.spark.util.ThreadUtils

/** What a procedure rewrites. */
private[catalog] trait RewriteSource {

  /** Asks for groups: an answer of `POST …/rewrites`, or of one below it. */
  def ask(done: Rewritten, groups: Int): JsonNode

  def group(answered: JsonNode): RewriteGroup

  /** Takes what the jobs of one commit write. */
  def target(): GroupsTarget

  /** Runs the job that writes a group. */
  def write(group: RewriteGroup, target: GroupsTarget): Unit
}

/** Rewrites the groups of files that the catalog names.
  *
  * Each group is a Spark job, and a commit of its own, or several are one commit, as the options say. A commit goes on
  * top of what others commit meanwhile. A group that fails is passed over and counted; where one of its files is the
  * reason, the group is tried again without that file. Where it is not said which one, a group with a commit of its own
  * is halved until it is found. Where executors were lost, nothing is searched for, since each attempt costs several
  * of them; after some groups in a row, the call ends.
  *
  * @param begun
  *   the catalog's first answer
  * @param most
  *   how many groups
  */
private[catalog] final class Rewriting(source: RewriteSource, begun: JsonNode, progress: Progress, most: Int)
    extends Logging {
  import Rewriting._
  private val pace = Pace.of(Answers.field(begun, "pace"), math.min(most, total(begun)))

  def run(): Rewritten = rewritten(Rewritten(), most)

  /** Pass by pass, until none is left, or a pass neither rewrote a group nor found a file to do without. */
  @tailrec
  private def rewritten(done: Rewritten, most: Int): Rewritten = {
    val answer = source.ask(done, math.min(most, if (pace.isTogether) pace.together else AtOnce))
    val groups = Answers.field(answer, "groups").elements.asScala.map(source.group).toSeq
    val pass = new Pass(done.forgiven, done.groups + math.min(most, total(answer)))
    val after = if (pace.isTogether) pass.together(groups) else pass.apart(groups)
    if (after.isNoMoreThan(done) || after.isLosing) after.orRefusal
    else rewritten(after, math.max(0, most - (after.groups - done.groups)))
  }

  /** @param of the number of groups in all */
  private final class Pass(start: Rewritten, of: Int) {
    private val number = new AtomicInteger(start.groups)
    private var sum = start

    /** Each group is a commit. */
    def apart(groups: Seq[RewriteGroup]): Rewritten = {
      inParallel(groups)(group => unlessLosing(group)(searched(group, next())))
      sum
    }

    /** The groups of a branch are a commit. */
    def together(groups: Seq[RewriteGroup]): Rewritten = {
      val batches = groups.groupBy(_.files.branch).values.toSeq
      batches.foreach(batch => requireFew(batch.map(_.files.paths.size).sum))
      if (!pace.partial && batches.size > 1) throw tooMany(s"files of ${batches.size} branches", "Name a branch.")
      batches.foreach(batched)
      sum
    }

    private def batched(groups: Seq[RewriteGroup]): Unit = committed(groups.map(_.files)) { target =>
      inParallel(groups) { group =>
        unlessLosing(group) {
          try described(group, next(), target)
          catch { case NonFatal(problem) if pace.partial => add(_.and(group.files, RewriteProblems.refusal(problem))) }
        }
      }
    }.foreach { why =>
      if (!pace.partial) throw why
      groups.foreach(group => add(_.and(group.files, why)))
    }

    private def unlessLosing(group: RewriteGroup)(work: => Unit): Unit =
      if (add(identity).isLosing) add(_.and(group.files, RewriteProblems.notTried)) else work

    /** A group is rewritten; or, if it fails and it is not said for which file, its halves one after the other. */
    private def searched(group: RewriteGroup, label: String): Unit =
      committed(Seq(group.files))(described(group, label, _)).foreach { why =>
        if (why.file.isEmpty && RewriteProblems.mayBeAFiles(why) && !add(identity).isHopeless)
          group.files.paths match {
            case Seq(path) => add(_.and(group.files, RewriteProblems.ofFile(path, why)))
            case _ =>
              add(_.failedOnce)
              group.halves.foreach(searched(_, s"part of $label"))
          }
        else add(_.and(group.files, why))
      }

    private def described(group: RewriteGroup, label: String, target: GroupsTarget): Unit =
      progress.described(label)(source.write(group, target))

    /** Commits what jobs write, one commit at a time; or why not, with nothing left of it. */
    private def committed(groups: Seq[FileGroup])(jobs: GroupsTarget => Unit): Option[LakewardenException] = {
      val target = source.target()
      try {
        jobs(target)
        Rewriting.this.synchronized {
          val (done, written) = target.land()
          if (done.nonEmpty) add(_.and(done, written))
        }
        None
      } catch {
        case problem: Throwable =>
          quietly(target.abort())
          if (NonFatal(problem)) Some(RewriteProblems.refusal(problem)) else throw problem
      }
    }

    private def next(): String = s"group ${number.incrementAndGet()} of $of"

    private def add(what: Rewritten => Rewritten): Rewritten = synchronized {
      sum = what(sum)
      sum
    }
  }

  /** As many at a time as the options say, for the same user and in the same job group as the caller. */
  private def inParallel[T](items: Seq[T])(work: T => Unit): Unit =
    if (pace.concurrent == 1 || items.size < 2) items.foreach(work)
    else {
      val session = SparkSession.active
      val pool = ThreadUtils.newDaemonFixedThreadPool(math.min(pace.concurrent, items.size), "lakewarden-rewrite")
      try items.map(item => SQLExecution.withThreadLocalCaptured(session, pool)(work(item))).foreach(_.get)
      catch { case failed: ExecutionException => throw failed.getCause }
      finally pool.shutdownNow()
    }

  private def quietly(action: => Unit): Unit =
    try action
    catch { case NonFatal(problem) => logWarning(
      s"A write is left for garbage collection: ${problem.getClass.getName}") }
}

private object Rewriting {

  /** Groups that are asked for at a time. */
  private val AtOnce = 100

  /** The most groups of an answer, and the most files that a commit names. */
  private val (mostGroups, mostFiles) = (1000, 5000)

  private def total(answer: JsonNode): Int = Answers.field(answer, "total-groups").intValue

  private def requireFew(files: Int): Unit = if (files > mostFiles) throw tooMany(
    s"$files files", "Set max-file-group-size-bytes and partial-progress.max-commits, or rewrite with where.")

  private def tooMany(what: String, hint: String): LakewardenException = LakewardenException.notSupportedYet(
    s"One commit cannot replace $what; it can replace $mostFiles files of one branch.", "rewrite-option",
    s"$hint Or leave the options partial-progress.… out.")

  /** How groups are rewritten, as the catalog read the options.
    *
    * @param partial
    *   whether what can be rewritten is committed, though something else cannot
    * @param together
    *   how many groups one commit has
    * @param concurrent
    *   how many are rewritten at a time
    */
  private final case class Pace(partial: Boolean, together: Int, concurrent: Int) {
    def isTogether: Boolean = !partial || together > 1
  }

  private object Pace {
    def of(answered: JsonNode, groups: Int): Pace = {
      val commits = Option(Answers.field(answered, "max-commits")).filterNot(_.isNull).map(_.intValue)
      val together = commits.fold(1)(most => math.max(1, (groups + most - 1) / most))
      if (together > mostGroups) throw tooMany(
        s"$together groups", "Set partial-progress.max-commits to a larger number.")
      Pace(
        Answers.field(answered, "partial-progress").asBoolean, together,
        Answers.field(answered, "concurrent").intValue)
    }
  }
}
