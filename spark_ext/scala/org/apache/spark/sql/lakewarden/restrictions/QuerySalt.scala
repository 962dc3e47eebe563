package org.apache.spark.sql.lakewarden.restrictions

import java.nio.charset.StandardCharsets.UTF_8
import java.security.SecureRandom
import javax.crypto.Mac
import javax.crypto.spec.SecretKeySpec

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.SQLExecution
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.lakewarden.LakewardenException
import org.apache.spark.sql.lakewarden.crypto.Secret

/** The salt of hashes that are the same within one execution of a query, and others in the next. All scans of a query
  * have one salt, so that their hashes can be joined; a stream has one as long as it runs.
  *
  * It is made on the executors, since Spark keeps what the driver makes for a query and can execute it again.
  *
  * @param key
  *   of this application
  */
private[lakewarden] final class QuerySalt private (key: Secret) extends Serializable {

  /** That of the query which the task runs for. */
  def ofTask: Array[Byte] = {
    val task = TaskContext.get()
    val named = QuerySalt.Names.view.flatMap(name => Option(task.getLocalProperty(name)).map(each => s"$name=$each"))
    // A job outside of queries is one by itself.
    of(named.headOption.getOrElse(s"stage=${task.stageId()}"))
  }

  private def of(query: String): Array[Byte] = {
    val mac = Mac.getInstance("HmacSHA256")
    mac.init(new SecretKeySpec(key.reveal, mac.getAlgorithm))
    mac.doFinal(query.getBytes(UTF_8))
  }
}

private[lakewarden] object QuerySalt {

  /** The id of a stream, and the number of an execution. */
  private val Names = Seq("sql.streaming.queryId", SQLExecution.EXECUTION_ROOT_ID_KEY, SQLExecution.EXECUTION_ID_KEY)

  private lazy val ofThis = {
    val bytes = new Array[Byte](32)
    new SecureRandom().nextBytes(bytes)
    new QuerySalt(new Secret(bytes))
  }

  /** That of this application, on the driver. Throws if the session's settings say which query it is: Spark would send
    * that to the tasks, and a user could keep a salt.
    */
  def ofApplication(settings: SQLConf): QuerySalt = {
    Names.find(settings.contains).foreach { name =>
      throw new LakewardenException(
        "RequestInvalid", s"The session sets $name, by which hashes of a query are made.", Some("query-salt"),
        Some(s"Run RESET $name."))
    }
    ofThis
  }
}
