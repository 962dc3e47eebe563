package org.apache.spark.sql.lakewarden.rest

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}
import java.nio.file.attribute.PosixFilePermission._

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.lakewarden.LakewardenException

/** The engine's own token, with which it acts for its users.
  *
  * The launch environment names a file that holds it (`EngineCredential.FileVariable`). The file is read once,
  * when Spark starts, and deleted: settings, environment variables and files are all within reach of SQL
  * (`SET`, `${env:…}`, ``SELECT * FROM text.`…` ``), and a user who had the token could act as the engine.
  */
object EngineCredential {

  /** The environment variable of the driver that names the file. */
  val FileVariable = "LAKEWARDEN_ENGINE_TOKEN_FILE"

  private val Private = Set(OWNER_READ, OWNER_WRITE, OWNER_EXECUTE)

  /** The token, if this application was launched with one. */
  lazy val token: Option[String] = sys.env.get(FileVariable).filter(_.nonEmpty).map(name => take(Path.of(name)))

  /** The token in a file, which is gone afterwards; a pipe is read to its end. */
  def take(file: Path): String =
    try {
      if (Files.isRegularFile(file) && !Files.getPosixFilePermissions(file).asScala.subsetOf(Private))
        throw refused("others than its owner may use it", "Give it the mode 0600.", null)
      val token = Files.readString(file, UTF_8).trim
      if (Files.isRegularFile(file)) Files.delete(file)
      if (token.isEmpty) throw refused("it is empty", "Put the token there anew for each start.", null)
      token
    } catch {
      case error: IOException => throw refused(
          s"it cannot be read and deleted (${error.getClass.getSimpleName})",
          "Put the token there anew for each start, in a directory that Spark's driver may delete it from.", error)
    }

  private def refused(problem: String, hint: String, cause: Throwable): LakewardenException =
    new LakewardenException(
      "CatalogNotTrusted", s"The file that $FileVariable names is not taken: $problem.", Some("engine-credential"),
      Some(hint), cause)
}
