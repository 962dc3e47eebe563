package org.apache.spark.sql.lakewarden

import com.fasterxml.jackson.databind.JsonNode

import org.apache.spark.sql.AnalysisException

/** What the catalog, or the guard in this engine, refused.
  *
  * @param kind
  *   the class of the error, by the catalog's names: `LocationNotAllowed`, `NotAuthorized`, …
  * @param problem
  *   what is wrong, in a sentence; without keys, tokens, or paths that the user may not see
  * @param rule
  *   the rule that was broken
  * @param hint
  *   what the user can do
  * @param file
  *   the data file that is the matter, and that no other attempt would read either
  * @param cause
  *   what went wrong below, for logs. It is suppressed, and not the cause: Spark's Thrift server and shell show the
  *   last one in a chain of causes alone, with its SQLSTATE
  * @param about
  *   what else the error is about, by name: `table`, `snapshot`
  */
final class LakewardenException(
    val kind: String,
    problem: String,
    val rule: Option[String] = None,
    val hint: Option[String] = None,
    cause: Throwable = null,
    val file: Option[String] = None,
    about: Map[String, String] = Map.empty)
    extends AnalysisException(
      message = LakewardenException.text(kind, problem, rule, hint),
      cause = None,
      errorClass = Some(LakewardenException.condition(kind)),
      messageParameters = about ++ Map("problem" -> problem) ++ rule.map("rule" -> _) ++ hint.map("hint" -> _)) {

  /** What went wrong below. `getCause` has none. */
  val below: Option[Throwable] = Option(cause)
  below.foreach(addSuppressed)

  /** SQL scripts look for a handler by it; without one they would end with an error of their own. */
  override def getSqlState: String = SqlStates.of(kind)
}

object LakewardenException {

  private val About = Seq("table", "snapshot")

  /** The error class: `LocationNotAllowed` is `LAKEWARDEN.LOCATION_NOT_ALLOWED`. */
  def condition(kind: String): String =
    "LAKEWARDEN." + kind.replaceAll("(?<=[a-z0-9])(?=[A-Z])", "_").toUpperCase(java.util.Locale.ROOT)

  /** An error as the catalog answers it (docs/rest-api.md, "Errors"). */
  def of(error: JsonNode): LakewardenException = new LakewardenException(
    error.path("lakewarden").asText, error.path("message").asText,
    Option(error.get("rule")).map(_.asText), Option(error.get("hint")).map(_.asText),
    about = About.flatMap(name => Option(error.get(name)).map(value => name -> value.asText)).toMap)

  /** What this release does not do; nothing was changed. */
  def notSupportedYet(what: String, rule: String, hint: String): LakewardenException =
    new LakewardenException("NotSupportedYet", what, Some(rule), Some(hint))

  /** The catalog's own messages name rule and hint already. */
  private def text(kind: String, problem: String, rule: Option[String], hint: Option[String]): String = {
    val ruleTold = rule.filterNot(each => problem.contains(s"rule=$each")).fold("")(each => s" [rule=$each]")
    val hintTold = hint.filterNot(each => problem.endsWith(each)).fold("")(" " + _)
    s"$kind: $problem$ruleTold$hintTold"
  }
}
