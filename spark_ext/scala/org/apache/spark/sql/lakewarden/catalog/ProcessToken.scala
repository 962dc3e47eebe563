package org.apache.spark.sql.lakewarden.catalog

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}
import java.nio.file.attribute.PosixFilePermission.{OWNER_READ, OWNER_WRITE}

import scala.jdk.CollectionConverters._

import com.sun.security.auth.module.UnixSystem
import org.apache.spark.sql.lakewarden.LakewardenException

/** The token of the user whose own process this is, for shells that set no token in their session.
  *
  * The environment variable `LAKEWARDEN_TOKEN_FILE` names a file that this user alone can read. It is read each time, so
  * that the token can be renewed. It counts in no engine, and where other people's sessions can reach the process: a
  * session of a Spark Connect or Thrift client has its own token or none.
  *
  * @param environment
  *   of the driver
  * @param catalogs
  *   how many there are: a token is sent to no other catalog
  */
final class ProcessToken(environment: Map[String, String], catalogs: => Int) {
  import ProcessToken._

  /** None where the process has none. Throws `CatalogNotTrusted` for a file that is empty, or that others can read. */
  def get: Option[String] =
    environment.get(FileVariable).filter(_.nonEmpty && !ServedClients.any).map { name =>
      if (environment.get(EngineLaunch.FileVariable).exists(_.nonEmpty))
        throw refused("this process is an engine", s"Unset $FileVariable.", null)
      if (catalogs > 1) throw refused("Spark is launched with several catalogs", "Set the token in the session.", null)
      read(Path.of(name))
    }

  private def read(file: Path): String =
    try {
      val mine = Files.getAttribute(file, "unix:uid") == Integer.valueOf(new UnixSystem().getUid.toInt)
      if (!mine || !Files.getPosixFilePermissions(file).asScala.subsetOf(Set(OWNER_READ, OWNER_WRITE)))
        throw refused("other users can read it, or it belongs to another user", "Set its mode to 0600.", null)
      val token = Files.readString(file, UTF_8).trim
      if (token.isEmpty) throw refused("it is empty", "Write a token to it.", null)
      token
    } catch {
      case error: IOException =>
        throw refused(s"it cannot be read (${error.getClass.getSimpleName})", "Write a token to it.", error)
    }

  private def refused(problem: String, hint: String, cause: Throwable): LakewardenException = new LakewardenException(
    "CatalogNotTrusted", s"The token file that $FileVariable names is not accepted: $problem.", Some("token-file"),
    Some(hint), cause)
}

object ProcessToken {

  /** The environment variable of the driver that names the file. */
  val FileVariable = "LAKEWARDEN_TOKEN_FILE"
}
