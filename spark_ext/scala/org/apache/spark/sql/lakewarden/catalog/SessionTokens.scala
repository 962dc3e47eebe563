package org.apache.spark.sql.lakewarden.catalog

import java.lang.ref.WeakReference
import java.lang.reflect.{InvocationTargetException, Method, Proxy}
import java.util.{Collections, WeakHashMap}

import scala.jdk.CollectionConverters._

import org.apache.spark.SparkContext
import org.apache.spark.sql.catalyst.parser.{ParseException, ParserInterface}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.exceptions.SqlScriptingException
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}
import org.apache.spark.sql.lakewarden.Untyped

/** The tokens of a session's user, out of reach of its SQL.
  *
  * A token is set as a session's setting, which `SET`, `${…}` and everything that lists settings can read. So it
  * is taken out of the settings as soon as the session does anything: before a statement's text is parsed, before
  * a plan is analyzed, and when the catalog is asked. `SessionTokens.Held` stays in its place; a session that unsets it
  * takes the token away. What is held goes with the session to its clones, as settings do, and to no other.
  *
  * A streaming query runs in a clone that nobody can reach. It has the token that the session which started it has at
  * the time, so that its user can renew the token there, or take it away.
  */
final class SessionTokens(session: SparkSession) {

  /** Takes the tokens of these settings out of reach. */
  def take(settings: Iterable[String]): Unit = settings.foreach(own)

  /** The token that was set last; none if there is none, or if it was unset. */
  def get(setting: String): Option[String] = starter.fold(own(setting))(new SessionTokens(_).own(setting))

  /** Of a streaming query's session, the one that started the query. */
  private def starter: Option[SparkSession] = {
    if (StreamThread.isCurrent) SessionTokens.streaming.add(session)
    if (SessionTokens.streaming.contains(session)) held.flatMap(_.holder).filter(_ ne session) else None
  }

  private def own(setting: String): Option[String] = session.experimental.synchronized {
    // The map itself, which replaces a value only if it is still the one that was read.
    val settings = session.sessionState.conf.settings
    settings.get(setting) match {
      case null =>
        hold(setting, None)
        None
      case SessionTokens.Held => held.flatMap(_.get(setting))
      case token =>
        hold(setting, Some(token))
        settings.replace(setting, token, SessionTokens.Held)
        Some(token)
    }
  }

  private def held: Option[HeldTokens] = session.experimental.extraStrategies.collectFirst { case held: HeldTokens => held }

  private def hold(setting: String, token: Option[String]): Unit = {
    val others = session.experimental.extraStrategies.filterNot(_.isInstanceOf[HeldTokens])
    val before = held match { // a function that makes one would be a static method, which SQL can call
      case Some(found) => found
      case None        => new HeldTokens(Map.empty, new WeakReference(session))
    }
    val after = before.changed(setting, token, session)
    session.experimental.extraStrategies = if (after.isEmpty) others else others :+ after
  }
}

object SessionTokens {

  /** What stands in the place of a token in a session's settings. */
  val Held = "(held by the driver)"

  /** The sessions of streaming queries: threads that ask for them know no query. */
  private val streaming =
    Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap[SparkSession, java.lang.Boolean]))
}

private[lakewarden] object StreamThread {

  /** Whether this thread runs a streaming query (Spark's `StreamExecution.QUERY_ID_KEY`). */
  def isCurrent: Boolean = SparkContext.getActive.exists(_.getLocalProperty("sql.streaming.queryId") != null)
}

/** Tokens by the settings that they came from. Never changed, since clones of a session share it. It is one of a
  * session's strategies because Spark keeps these for each session and hands them to clones; it plans nothing.
  *
  * @param session
  *   the one that they were set in
  */
final class HeldTokens(private[this] val tokens: Map[String, String], session: WeakReference[SparkSession])
    extends SparkStrategy {
  def get(setting: String): Option[String] = tokens.get(setting)
  def holder: Option[SparkSession] = Option(session.get)

  /** The same for this session, with another token of a setting, or without one. */
  def changed(setting: String, token: Option[String], session: SparkSession): HeldTokens =
    new HeldTokens(token.fold(tokens - setting)(each => tokens + (setting -> each)), new WeakReference(session))

  def isEmpty: Boolean = tokens.isEmpty

  override def apply(plan: LogicalPlan): Seq[SparkPlan] = Nil
  override def toString: String = "HeldTokens(***)"
}

/** Takes a session's tokens before the text of a statement is parsed, which is when `${…}` is substituted. */
object TokenTakingParser {

  /** The parser itself, with that done first. Its interface differs between releases of Spark.
    *
    * @param read
    *   reads the text of a statement before the parser does; none: it is left to the parser
    * @param view
    *   what stands for the text of a view that is read now; none: it is read as any other text
    */
  def over(
      parser: ParserInterface, take: () => Unit, read: String => Option[LogicalPlan], view: () => Option[LogicalPlan])
      : ParserInterface =
    Proxy.newProxyInstance(
      classOf[ParserInterface].getClassLoader, Array(classOf[ParserInterface]),
      (_, method, arguments) => {
        take()
        val known = if (readsQuery(method)) view() else None
        known.orElse(statement(method, arguments).flatMap(read)).getOrElse(Untyped.told("Spark's parser", Literals) {
          try method.invoke(parser, arguments: _*)
          catch { case failed: InvocationTargetException => throw declared(failed.getCause) }
        })
      }).asInstanceOf[ParserInterface]

  private val Literals = "Write a literal where Spark takes no function, such as TIMESTAMP '2026-01-31 12:00:00' in CHANGES."

  private def readsQuery(method: Method): Boolean = method.getName.startsWith("parsePlan") || method.getName == "parseQuery"

  /** The text of a whole statement, where one is parsed. */
  private def statement(method: Method, arguments: Array[AnyRef]): Option[String] =
    if (method.getName.startsWith("parsePlan")) arguments.headOption.collect { case text: String => text } else None

  /** The same error of a SQL script as one that Spark's interface declares: a proxy throws no other checked ones. */
  private def declared(failure: Throwable): Throwable = failure match {
    case script: SqlScriptingException =>
      new ParseException(
        None, script.origin, script.getCondition, script.getMessageParameters.asScala.toMap, script.getQueryContext)
    case other => other
  }
}
