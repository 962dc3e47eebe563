package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.sql.catalyst.plans.logical.{CommandResult, LogicalPlan, ReturnAnswer}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.CatalogPlugin
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}
import org.apache.spark.sql.execution.command.{ResetCommand, SetCommand}
import org.apache.spark.sql.internal.SQLConf

/** A catalog that has to know whose it is. */
trait SessionBound extends CatalogPlugin {

  /** Tells it the session that it was made for; Spark does not. */
  def bind(session: SparkSession): Unit
}

/** Compares a session with the launch configuration.
  *
  * A session that puts another class or address under the name of a launched catalog, or defines a Lakewarden
  * catalog of its own, can do nothing but set its settings right again. It costs a walk over the session's
  * settings for each query.
  */
final class LaunchGuard(session: SparkSession) {
  private val launched = LaunchedCatalog.all(session.sparkContext.getConf)

  /** Refuses a plan of a session that is not to be trusted; what sets settings passes, and what it answers. */
  def check(plan: LogicalPlan): Unit = {
    takeTokens()
    checkPlan(plan)
  }

  /** Takes the tokens of the session's user out of its settings. */
  def takeTokens(): Unit = new SessionTokens(session).take(launched.values.map(_.tokenSetting))

  private def checkPlan(plan: LogicalPlan): Unit = plan match {
    case SetCommand(Some((setting, Some(_)))) => checkSetting(setting)
    case _: SetCommand | _: ResetCommand      =>
    case ReturnAnswer(answered)               => checkPlan(answered)
    case result: CommandResult                => checkPlan(result.commandLogicalPlan)
    case _ =>
      checkSettings(SQLConf.get.getAllConfs)
      launched.keys.foreach(checkCatalog)
  }

  /** Before it takes effect: the text of a statement stays in Spark's records, whatever becomes of it. */
  private def checkSetting(setting: String): Unit = {
    LaunchedCatalog.requireNoToken(setting)
    launched.values.foreach(_.requireNotOwn(setting))
  }

  private def checkSettings(settings: Map[String, String]): Unit = {
    launched.values.foreach(_.requireUnchanged(settings))
    LaunchedCatalog.defined(settings).filterNot(launched.contains).foreach(name => throw LaunchedCatalog.unknown(name))
  }

  /** A catalog stays loaded when settings change: what was put under the name for a moment would stay there.
    * (Asked for by a name in it: Spark's manager of catalogs is a class in 4.1 and an interface in 4.3.)
    */
  private def checkCatalog(name: String): Unit = {
    val lookup = session.sessionState.analyzer.CatalogAndIdentifier
    lookup.unapply(Seq(name, "any")) match {
      case Some((ours: SessionBound, _)) if ours.name == name => ours.bind(session)
      case _                                                 => throw LaunchedCatalog.replaced(name)
    }
  }
}

/** Asks the guard before relations are looked up; it changes no plan. */
final class LaunchRule(guard: LaunchGuard) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = {
    guard.check(plan)
    plan
  }
}

/** Asks the guard once more when a whole plan is made physical: there is no other way for any plan, however it was
  * analyzed. It plans nothing. Spark makes strategies anew for each part of a plan.
  */
final class LaunchStrategy(guard: => LaunchGuard) extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = {
    plan match {
      case whole: ReturnAnswer => guard.check(whole)
      case _                   =>
    }
    Nil
  }
}
