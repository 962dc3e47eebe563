package org.apache.spark.sql.lakewarden.catalog

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}
import java.nio.file.attribute.PosixFilePermission._

import scala.jdk.CollectionConverters._

import com.sun.security.auth.module.UnixSystem
import org.apache.spark.SparkContext
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.rest._

/** Makes this driver an engine that acts for its users, if it was launched as one.
  *
  * The launch environment names a file with the engine's own token. At launch, before any user has a session,
  * the driver makes a key, registers it with that token, and deletes the file. A one-time token is worth nothing
  * afterwards. A file that cannot be deleted (a read-only mount) serves again at the next start if its token is a
  * reusable one; the catalog refuses those where users can run code, and so can read the file.
  *
  * @param environment
  *   of the driver
  */
final class EngineLaunch(environment: Map[String, String]) {
  import EngineLaunch._

  /** The keys of this application: those that its sessions have, if there are any already. */
  def keys(): EngineKeys = running.getOrElse(registered())

  private def running: Option[EngineKeys] = SparkSession.getDefaultSession
    .filter(session => SparkContext.getActive.exists(_ eq session.sparkContext))
    .flatMap(session => SessionUserRule.of(session)).map(_.engine)

  private def catalogs: Iterable[LaunchedCatalog] =
    SparkContext.getActive.toSeq.flatMap(context => LaunchedCatalog.all(context.getConf).values)

  /** New keys, by the token that this application was launched with. */
  def registered(): EngineKeys = environment.get(FileVariable).filter(_.nonEmpty).map(Path.of(_)) match {
    case None => new EngineKeys(Map.empty)
    case Some(file) =>
      val token = read(file)
      val addresses = catalogs.map(_.address).groupBy(_.toString).values.map(_.head).toSeq
      if (addresses.size > 1)
        throw refused(
          "the token belongs to one catalog, and Spark is launched with several",
          "Launch one engine for each catalog, or launch Spark without an engine token.", null)
      val known = addresses.map(each => each.toString -> EngineKey.register(bootstrap(each, token))).toMap
      delete(file)
      new EngineKeys(known)
  }

  private def bootstrap(address: CatalogAddress, token: String): CatalogClient = {
    val credentials = new Credentials(token, None)
    new CatalogClient(address, () => credentials)
  }

  /** A pipe is read to its end. */
  private def read(file: Path): String =
    try {
      if (Files.isRegularFile(file)) requirePrivate(file)
      val token = Files.readString(file, UTF_8).trim
      if (token.isEmpty) throw refused("it is empty", NewToken, null)
      token
    } catch {
      case error: IOException =>
        throw refused(s"it cannot be read (${error.getClass.getSimpleName})", NewToken, error)
    }

  /** Secret mounts of Kubernetes belong to root, and with an `fsGroup` the group can read them. */
  private def requirePrivate(file: Path): Unit = {
    if (!Files.getPosixFilePermissions(file).asScala.subsetOf(Private))
      throw refused("users other than its owner can write it, or users outside its group can read it", Modes, null)
    val owner = Files.getAttribute(file, "unix:uid").asInstanceOf[Integer].longValue
    if (owner != 0 && owner != new UnixSystem().getUid)
      throw refused(s"it belongs to the user $owner", "Change its owner to root or to the driver's user.", null)
  }

  /** What stays is a token that was used, or one that the catalog knows to be reusable. */
  private def delete(file: Path): Unit =
    try if (Files.isRegularFile(file)) Files.delete(file)
    catch { case _: IOException => }

  private def refused(problem: String, hint: String, cause: Throwable): LakewardenException =
    new LakewardenException(
      "CatalogNotTrusted", s"The engine token file that $FileVariable names is not accepted: $problem.",
        Some("engine-credential"),
      Some(hint), cause)
}

object EngineLaunch {

  /** The environment variable of the driver that names the file. */
  val FileVariable = "LAKEWARDEN_ENGINE_TOKEN_FILE"

  private val NewToken = "Write a new token to it before each start, or use a reusable token."
  private val Modes = "Set its mode to 0600 or 0400, or to 0640 or 0440 with a dedicated group."
  private val Private = Set(OWNER_READ, OWNER_WRITE, GROUP_READ)
}
