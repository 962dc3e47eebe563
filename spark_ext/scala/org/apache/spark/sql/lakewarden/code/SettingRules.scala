package org.apache.spark.sql.lakewarden.code

import org.apache.spark.SparkConf
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lakewarden.options.IcebergNames

/** Which settings a session in a shared engine can have and see without `engine:code`.
  *
  * @param launch
  *   the launch configuration; what a session has from it is the administrator's
  */
final class SettingRules(launch: SparkConf) {
  import SettingRules._

  /** What a session's settings have that is not on the list, if anything. */
  def finding(session: SQLConf): Option[String] = {
    val settings = session.getAllConfs
    val changed = settings.collectFirst {
      case (key, value) if !launch.getOption(key).contains(value) && !isKnown(key) => key
    }
    def removed = launch.getAll.collectFirst {
      case (key, _) if key.startsWith("spark.sql.") && !settings.contains(key) && !isChangeable(key) => key
    }
    changed.orElse(removed).map(key => s"The setting $key of this session").orElse(unsafe(session))
  }

  /** What a session's settings have of the single-pass analyzer, if anything. It is asked of each statement. */
  def ofAnalyzer(session: SQLConf): Option[String] = {
    val keys = session.settings.keySet.toArray(Array.empty[String])
    keys.find(key => key.startsWith(SinglePass) && !launch.contains(key)).map(key => s"The setting $key of this session")
  }

  private def isKnown(key: String): Boolean = isChangeable(key) || Completed(key)

  private def unsafe(session: SQLConf): Option[String] = Required.collectFirst {
    case (key, value) if session.getConfString(key, "true") != value =>
      s"An engine that was launched without $key=$value"
  }
}

object SettingRules {

  /** Settings of a shared engine, by which text of a user could otherwise show variables of the driver's
    * environment (`$${env:…}`) or name classes to load (types in JSON).
    */
  val Required: Map[String, String] =
    Map("spark.sql.variable.substitute" -> "false", "spark.sql.udt.allowCreatingUDTFromString" -> "false")

  private val SinglePass = "spark.sql.analyzer.singlePassResolver."
  private val Token = """lakewarden\.catalog\.[^.]+\.token""".r

  /** Settings that Spark completes at launch, when sessions have them already; a session's have no effect. */
  private val Completed = Set("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")

  /** Whether a session can change a setting. Those of Iceberg are judged where they have an effect (`GivenOptions`). */
  def isChangeable(key: String): Boolean = Harmless.settings(key) || Token.matches(key) || IcebergNames.isSetting(key)

  /** Whether a session can read a setting. */
  def isReadable(key: String): Boolean = Harmless.readable(key) || IcebergNames.isSetting(key)
}
