package org.apache.spark.sql.lakewarden.catalog

import org.apache.spark.{SparkConf, SparkContext}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.rest._

/** A Lakewarden catalog as this application was launched with it.
  *
  * The launch configuration alone (the SparkConf of the SparkContext) says which catalogs there are and where
  * they answer. A session brings nothing but its user's token, `lakewarden.catalog.<name>.token`
  * (`SessionTokens`), which is looked for at each request, so that it can be renewed. Settings whose names begin
  * with `spark` Spark would send to the executors with every task, and write into its event log in plaintext.
  *
  * @param settings
  *   all of its settings by their whole names
  */
final case class LaunchedCatalog(name: String, settings: Map[String, String]) {

  /** Asks the catalog with the token that a session has at that time, as the engine if this is one. */
  def client(session: () => Option[SparkSession], engine: EngineKeys): CatalogClient = {
    val key = engine.at(address)
    new CatalogClient(address, () => new Credentials(token(session()), key))
  }

  /** Whose token a session has now. */
  def user(session: Option[SparkSession]): TokenDigest = TokenDigest.of(token(session))

  /** The session setting that its user's token is set by. */
  def tokenSetting: String = LaunchedCatalog.tokenKey(name)

  /** Refuses a session under whose settings this catalog would be another one. */
  def requireUnchanged(session: Iterable[(String, String)]): Unit = {
    val there = session.filter { case (key, _) => LaunchedCatalog.belongs(name, key) }.toMap
    val changed = (there.toSet ++ settings).filterNot(each => there.get(each._1) == settings.get(each._1)).map(_._1)
    if (changed.nonEmpty)
      throw LaunchedCatalog.refused(
        s"This session changes ${changed.toSeq.sorted.mkString(", ")}, which only the launch configuration can set.",
        s"Unset it in the session. The only setting of a session is the token, ${LaunchedCatalog.tokenKey(name)}.")
  }

  /** Refuses a setting of this catalog's as a session's. */
  def requireNotOwn(setting: String): Unit =
    if (LaunchedCatalog.belongs(name, setting))
      throw LaunchedCatalog.refused(
        s"The setting $setting cannot be set in a session.",
        s"Set it at launch. A session can set its token, ${LaunchedCatalog.tokenKey(name)}, but not in SQL.")

  /** Where it answers. */
  def address: CatalogAddress = {
    val prefix = LaunchedCatalog.key(name) + "."
    val unknown = settings.keySet.filter(_.startsWith(prefix)) - (prefix + "uri")
    if (unknown.nonEmpty)
      throw LaunchedCatalog.refused(
        s"Unknown Lakewarden settings: ${unknown.toSeq.sorted.mkString(", ")}.",
          "Remove them from the launch configuration.")
    val uri = settings.getOrElse(
      prefix + "uri", throw LaunchedCatalog.refused(s"The setting ${prefix}uri is missing.",
        "Set it in the launch configuration."))
    CatalogAddress.parse(uri)
  }

  private def token(session: Option[SparkSession]): String =
    session.flatMap(new SessionTokens(_).get(tokenSetting)).orElse(LaunchedCatalog.ofProcess.get).getOrElse(
      throw new LakewardenException(
        "NotAuthenticated", s"This session has no token for the catalog $name.", Some("token"),
        Some(s"Set $tokenSetting with spark.conf.set, or ${ProcessToken.FileVariable} at launch.")))

  override def toString: String = s"LaunchedCatalog($name)"
}

object LaunchedCatalog {
  private val Prefix = "spark.sql.catalog."

  /** The class that `spark.sql.catalog.<name>` names. */
  val PluginClass = "lakewarden.spark.LakewardenCatalog"
  private val ExtensionsClass = "lakewarden.spark.LakewardenExtensions"

  /** The Lakewarden catalogs of a launch configuration, by name. It holds no token: every session would have it. */
  def all(launch: SparkConf): Map[String, LaunchedCatalog] = {
    launch.getAll.map(_._1).find(isToken).foreach { setting =>
      throw refused(s"Spark was launched with $setting.",
        "Set the token in the user's session instead, and revoke this token.")
    }
    val settings = launch.getAll.toSeq.filter(_._1.startsWith(Prefix))
    val named = (name: String) => LaunchedCatalog(name, settings.filter(each => belongs(name, each._1)).toMap)
    defined(settings).map(name => name -> named(name)).toMap
  }

  /** The catalog that a session asks for by name, checked against the session's settings. */
  def trusted(name: String): LaunchedCatalog = {
    val launch = SparkContext.getActive.getOrElse(throw refused("No Spark application is running.",
      "Start Spark first.")).getConf
    if (name == "spark_catalog")
      throw refused("Lakewarden cannot replace spark_catalog.", "Launch the catalog under another name.")
    guard(SparkSession.active)
    val launched = all(launch).getOrElse(name, throw unknown(name))
    launched.requireUnchanged(SQLConf.get.getAllConfs)
    launched
  }

  /** The guard of a session. Where Spark cannot load an extension that it is told, it merely warns. */
  def guard(session: SparkSession): SessionUserRule = SessionUserRule.of(session).getOrElse(
    throw refused(
      s"Spark was launched without the extension $ExtensionsClass.",
      s"Launch it with spark.sql.extensions=$ExtensionsClass, and add the jar to spark.jars."))

  /** The names under which settings define a Lakewarden catalog. */
  def defined(settings: Iterable[(String, String)]): Seq[String] = settings.collect {
    case (key, PluginClass) if key.startsWith(Prefix) => key.substring(Prefix.length)
  }.toSeq

  /** Refuses a token in the text of a statement, which Spark shows in its UI and keeps in its event log. */
  def requireNoToken(setting: String): Unit =
    if (isToken(setting))
      throw new LakewardenException(
        "RequestInvalid", "A token cannot be set in SQL, because Spark stores and shows the text of statements.",
        Some("token"), Some("Revoke this token, and set a new one with spark.conf.set."))

  /** A name under which a session has put something else. */
  def replaced(name: String): LakewardenException = refused(
    s"In this session, the catalog name $name belongs to another class.", "Open a new session.")

  /** A catalog that nobody launched. */
  def unknown(name: String): LakewardenException = refused(
    s"The catalog $name was not defined when Spark was launched.",
    "Define it in the launch configuration.")

  private val ofProcess =
    new ProcessToken(sys.env, SparkContext.getActive.fold(0)(context => all(context.getConf).size))

  private def isToken(setting: String): Boolean =
    setting.startsWith("lakewarden.catalog.") && setting.endsWith(".token")
  private def key(name: String): String = Prefix + name
  private def tokenKey(name: String): String = s"lakewarden.catalog.$name.token"

  private def belongs(name: String, setting: String): Boolean =
    setting == key(name) || setting.startsWith(key(name) + ".")

  private def refused(problem: String, hint: String): LakewardenException =
    new LakewardenException("CatalogNotTrusted", problem, Some("launch-configuration"), Some(hint))
}
