package org.apache.spark.sql.lakewarden.code

import org.apache.spark.sql.catalyst.plans.logical.{CommandResult, LogicalPlan, ReturnAnswer}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}
import org.apache.spark.sql.execution.command.{ResetCommand, SetCommand}
import org.apache.spark.sql.lakewarden.LakewardenException

/** In a shared engine, code and paths of users take the permission `engine:code`.
  *
  * The catalog is asked only for what is not known to be harmless. Without an engine's credential the process is
  * the user's own, and nothing is restricted.
  */
final class CodeGuard(session: SparkSession, grants: CodeGrants) {
  private val plans = new PlanRules(new NameRules(session))
  private val settings = new SettingRules(session.sparkContext.conf)

  /** Refuses a plan with code or paths in it, or of a session with such settings. */
  def check(plan: LogicalPlan): Unit = if (grants.isNeeded) {
    Servers.requireChecked(session.sparkContext.conf)
    findingIn(plan).foreach(grants.require(session, _))
  }

  /** Refuses a session with settings of the single-pass analyzer, which runs no rules of extensions. The refusal
    * is unchecked: parsers, which ask for it, declare no other exception than their own.
    */
  def checkAnalyzer(): Unit = if (grants.isNeeded)
    try settings.ofAnalyzer(session.sessionState.conf).foreach(grants.require(session, _))
    catch { case refusal: LakewardenException => throw new SecurityException(refusal.getMessage, refusal) }

  /** What sets settings passes in whatever session, so that one can be set right again. */
  private def findingIn(plan: LogicalPlan): Option[String] = plan match {
    case _: SetCommand | _: ResetCommand => plans.finding(plan)
    case ReturnAnswer(answered)          => findingIn(answered)
    case result: CommandResult           => findingIn(result.commandLogicalPlan)
    case _                               => settings.finding(session.sessionState.conf).orElse(plans.finding(plan))
  }
}

/** Asks the guard before relations and functions are looked up; it changes no plan. */
final class CodeRule(guard: CodeGuard) extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = {
    guard.check(plan)
    plan
  }
}

/** Asks the guard once relations and functions are known. */
final class CodeCheck(guard: CodeGuard) extends (LogicalPlan => Unit) {
  override def apply(plan: LogicalPlan): Unit = guard.check(plan)
}

/** Asks the guard once more when a whole plan is made physical, however it was analyzed. It plans nothing. */
final class CodeStrategy(guard: => CodeGuard) extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = {
    plan match {
      case whole: ReturnAnswer => guard.check(whole)
      case _                   =>
    }
    Nil
  }
}
