package org.apache.spark.sql.lakewarden.code

import java.time.Duration
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.catalog.LaunchedCatalog
import org.apache.spark.sql.lakewarden.rest.{EngineKeys, TokenDigest}

/** Whether a session's user has `engine:code`, as each catalog of the engine decides it.
  *
  * A grant is known for `CodeGrants.ValidFor`. A refusal is asked for again each time, so that each is on record.
  *
  * @param engine
  *   the keys of the engine; without any the process is the user's own
  */
final class CodeGrants(private[this] val engine: EngineKeys) {
  private val granted = new ConcurrentHashMap[(String, TokenDigest), Long]

  /** Whether the process acts for several users, so that the permission is needed. */
  def isNeeded: Boolean = engine.isEngine

  /** Refuses a session whose user does not have the permission at every catalog.
    *
    * @param what
    *   it is needed for; begins a sentence
    */
  def require(session: SparkSession, what: String): Unit = if (isNeeded)
    try LaunchedCatalog.all(session.sparkContext.getConf).values.foreach(require(session, _))
    catch {
      case refusal: LakewardenException if CodeGrants.Refusals(refusal.kind) =>
        throw CodeGrants.refused(what, CodeGrants.sentence(refusal), refusal)
    }

  private def require(session: SparkSession, catalog: LaunchedCatalog): Unit = {
    val key = (catalog.name, catalog.user(Some(session)))
    if (!Option(granted.get(key)).exists(_ - System.nanoTime > 0)) {
      catalog.client(() => Some(session), engine).post(Seq("engine", "v1", "code"))
      granted.values.removeIf(_ - System.nanoTime <= 0)
      granted.put(key, System.nanoTime + CodeGrants.ValidFor.toNanos)
    }
  }

  override def toString: String = "CodeGrants(***)"
}

object CodeGrants {
  private val ValidFor = Duration.ofSeconds(20)
  private val Refusals = Set("NotAuthorized", "NotAuthenticated")

  /** A refusal, with what is refused and why. */
  def refused(what: String, why: String, cause: Throwable): LakewardenException = new LakewardenException(
    "NotAuthorized", s"$what requires the permission code on this shared engine. $why",
    Some("engine-code"), Some("Ask an administrator for the permission, or run Spark in a process of your own."), cause)

  /** The catalog's reason, without the rule and the advice that follow it. */
  private def sentence(refusal: LakewardenException): String =
    refusal.getMessage.stripPrefix(s"${refusal.kind}: ").takeWhile(_ != '[').trim
}
